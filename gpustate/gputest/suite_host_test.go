package gputest

import (
	"bytes"
	"context"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// scratch moves bytes from and to host memory in all ways, also such that lie in
// it in part, over migrations, a capture, a restore and the end of the device.
func scratch(t *testing.T, b *bench) {
	const n = 3<<20 + 4099 // an odd end
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	x, err := d.Buffer("x", n)
	b.ok(err)
	one, free, err := gpustate.HostMemory[byte](d, n)
	b.ok(err)
	two, freeTwo, err := gpustate.HostMemory[uint64](d, n/8+1)
	b.ok(err)
	back := gpustate.Bytes(two)[:n]
	b.ok(same("new memory", one, make([]byte, n)))
	seed := uint64(0)
	check := func() {
		t.Helper()
		seed++
		want := seeded(seed, n)
		copy(one, want)
		clear(back)
		b.ok(q.Write(x, 0, one))
		b.ok(q.Read(x, 0, back))
		b.ok(same("blocking", back, want))
		// in order with what is issued before and after, and with offsets
		half := n / 2
		for i := range one {
			one[i] ^= 0xff
			want[i] ^= 0xff
		}
		_, err := q.WriteAsync(x, 0, one[:half])
		b.ok(err)
		_, err = q.WriteAsync(x, half, one[half:])
		b.ok(err)
		_, err = q.Copy(x, 0, x, n-64, 64)
		b.ok(err)
		last, err := q.ReadAsync(x, 0, back[:n-5])
		b.ok(err)
		_, err = q.WriteAsync(x, 1, one[:4])
		b.ok(err)
		b.ok(last.Wait())
		copy(want, want[n-64:])
		b.ok(same("in flight", back[:n-5], want[:n-5]))
		copy(want[1:], one[:4])
		clear(back)
		b.ok(q.Read(x, 3, back[7:n-4]))
		b.ok(same("odd offsets", back[7:n-4], want[3:n-8]))
		// a write that blocks may take another way
		for _, size := range []int{1, 4096, 128 << 10, 128<<10 + 1, 1 << 20} {
			for i := range one[:size] {
				one[i] = byte(i) + byte(seed)
			}
			copy(want[5:], one[:size])
			b.ok(q.Write(x, 5, one[:size]))
			clear(one[:size]) // it has been read
		}
		b.ok(q.Read(x, 0, back))
		b.ok(same("small writes", back, want))
		plain := make([]byte, n)
		b.ok(q.Read(x, 0, plain))
		b.ok(same("plain memory", plain, want))
	}
	check()
	b.ok(d.MigrateTo(context.Background(), gpustate.Select{Kind: "fake", Index: 1}))
	check()
	b.ok(d.MigrateTo(context.Background(), b.sel))
	check()
	b.ok(same("a capture", captured(b, d, one), back))
	check()
	other := b.open()
	strange, freeStrange, err := gpustate.HostMemory[byte](other, n)
	b.ok(err)
	copy(strange, one)
	b.ok(q.Write(x, 0, strange)) // another device's: memory as any
	b.ok(q.Read(x, 0, back))
	b.ok(same("another device's", back, strange))
	b.ok(other.Close())
	b.ok(same("after Close", strange, back))
	b.ok(freeStrange())
	e, err := q.ReadAsync(x, 0, back)
	b.ok(err)
	b.ok(freeTwo())
	done, err := e.Done()
	if b.ok(err); !done {
		t.Error("memory was freed before the command that writes to it was complete")
	}
	b.ok(freeTwo())
	if n := d.StateBytes(); n != int64(x.Bytes()) {
		t.Errorf("StateBytes is %d, want that of the buffer", n)
	}
	b.ok(d.Close())
	clear(one)
	b.ok(free())
}

// captured takes a capture, restores it elsewhere and here, and reads its one
// content into host memory.
func captured(b *bench, d *gpustate.Device, into []byte) []byte {
	b.Helper()
	c, err := d.Capture(context.Background(), nil)
	b.ok(err)
	defer c.Release()
	if n := len(c.Contents()); n != 1 {
		b.Fatalf("%d contents, want the buffer alone", n)
	}
	b.ok(c.ReadAt(context.Background(), 0, into, 0))
	got := bytes.Clone(into)
	read := func(i int, dst []byte, off int64) error { return c.ReadAt(context.Background(), i, dst, off) }
	again := b.open()
	b.ok(again.Restore(context.Background(), c.Record(), read))
	x, err := again.Buffer("x", len(got))
	b.ok(err)
	q, err := again.Queue("q")
	b.ok(err)
	m, free, err := gpustate.HostMemory[byte](again, len(got))
	b.ok(err)
	b.ok(q.Read(x, 0, m))
	b.ok(same("restored", m, got))
	b.ok(free())
	return got
}
