package gpustate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/chunkhash"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

func init() {
	fake.Register(chunkhash.Kernel, 6, func(l fake.Launch) {
		number := func(i int) uint64 { return binary.NativeEndian.Uint64(l.Args[i].Bytes) }
		chunkhash.Run(l.Args[0].Bytes, number(1), number(2), l.Args[3].Bytes, l.Args[4].Bytes, number(5))
	})
}

// TestHashesUnsupported: a device without the kernel says so at each try, and captures as before.
func TestHashesUnsupported(t *testing.T) {
	d, _ := fakeDevice(t, func(i *driver.Info) { i.MaxGroup = 64 })
	must(d.Buffer("x", HashBytes))(t)
	c := must(d.Capture(context.Background(), nil))(t)
	for range 2 {
		if _, err := c.Hashes(context.Background()); !errors.Is(err, ErrUnsupported) {
			t.Errorf("got %v, want ErrUnsupported", err)
		}
	}
	if err := c.ReadAt(context.Background(), 0, make([]byte, HashBytes), 0); err != nil {
		t.Error(err)
	}
	if err := c.Release(); err != nil {
		t.Error(err)
	}
	if _, err := c.Hashes(context.Background()); !errors.Is(err, ErrReleased) {
		t.Errorf("got %v, want ErrReleased", err)
	}
}

// TestHashesOnFullDevice: where the program has all memory, a block of the shadow makes room for the
// hashes of the others; the bytes are those that were captured.
func TestHashesOnFullDevice(t *testing.T) {
	const n = 2 * HashBytes
	d, _ := fakeDevice(t, func(i *driver.Info) { i.GlobalBytes, i.MaxAllocBytes = 4*n, n })
	d.state.Reserve = 0
	q := must(d.Queue("q"))(t)
	fillWith(t, q, must(d.Buffer("x", n))(t), 1)
	fillWith(t, q, must(d.Buffer("y", n))(t), 2)
	c := must(d.Capture(context.Background(), nil))(t)
	if checkpoint.ShadowBlocks(c) != 2 {
		t.Fatalf("the shadow has %d blocks, want 2: this tests nothing", checkpoint.ShadowBlocks(c))
	}
	hashes := must(c.Hashes(context.Background()))(t)
	for i, want := range []bool{true, false} {
		got := make([]byte, n)
		ok(t, c.ReadAt(context.Background(), i, got, 0))
		if !bytes.Equal(got, bytes.Repeat([]byte{byte(i + 1)}, n)) {
			t.Errorf("content %d has other bytes than were captured", i)
		}
		for k, h := range hashes[i] {
			host := d.state.HashKey().Of(got[k*HashBytes : (k+1)*HashBytes])
			if want && h != host || !want && h != (Hash{}) {
				t.Errorf("chunk %d of content %d: got %x, want that of the host, if there is one: %v", k, i, h, want)
			}
		}
	}
	ok(t, c.Release())
}

// TestHashesLeaveNothing: the program gets the memory that the kernel of the hashes has kept, and the
// next capture is hashed as before.
func TestHashesLeaveNothing(t *testing.T) {
	const n = HashBytes
	d, _ := fakeDevice(t, func(i *driver.Info) { i.GlobalBytes, i.MaxAllocBytes = 4*n, 4*n })
	d.state.Reserve = 0
	q := must(d.Queue("q"))(t)
	fillWith(t, q, must(d.Buffer("x", n))(t), 1)
	hash := func() Hash {
		c := must(d.Capture(context.Background(), nil))(t)
		hashes := must(c.Hashes(context.Background()))(t)
		ok(t, c.Release())
		return hashes[0][0]
	}
	before := hash()
	if before == (Hash{}) {
		t.Fatal("nothing was hashed")
	}
	all := must(d.Buffer("all", 3*n))(t)
	ok(t, all.Release())
	if after := hash(); after != before {
		t.Errorf("the hash is %x, before it was %x", after, before)
	}
}
