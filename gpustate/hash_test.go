package gpustate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

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

// TestHashKernel runs the kernel on every device of this machine, on memory of odd lengths and at
// odd places, and compares with the host.
func TestHashKernel(t *testing.T) {
	infos, err := Devices()
	if err != nil {
		t.Skip("no device: ", err)
	}
	for _, i := range infos {
		t.Run(i.String(), func(t *testing.T) {
			d, err := Open(Select{Kind: i.Kind, Platform: i.Platform, Name: i.Name, PCI: i.PCI})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}()
			hashesAgree(t, d)
		})
	}
}

func hashesAgree(t *testing.T, d *Device) {
	t.Helper()
	const n = 3*HashBytes + 4096
	q := must(d.Queue("q"))(t)
	x := must(d.Buffer("x", n))(t)
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{5}).Read(data)
	if err := q.Write(x, 0, data); err != nil {
		t.Fatal(err)
	}
	var pieces []piece
	var want []Hash
	var at int64
	for _, c := range []struct{ off, bytes int64 }{{0, n}, {16, 1}, {4096, HashBytes}, {112, HashBytes + 17},
		{0, 2*HashBytes - 1}, {HashBytes, 4096 + 5}, {48, 15}, {0, 16}} {
		p := piece{mem: x.e.Handle, off: c.off, bytes: c.bytes, chunks: (c.bytes + HashBytes - 1) / HashBytes, at: at}
		at += p.chunks
		pieces = append(pieces, p)
		for b := data[c.off : c.off+c.bytes]; len(b) > 0; b = b[min(HashBytes, len(b)):] {
			want = append(want, d.hashKey().Of(b[:min(HashBytes, len(b))]))
		}
	}
	raw, err := d.drv.hashPieces(context.Background(), d.hashKey(), pieces, at)
	if err != nil {
		t.Fatal(err)
	}
	if f, ok := d.drv.Device.(driver.FallbackReporter); ok {
		if why := f.FallbackReason(d.drv.hasher.program); why != "" {
			t.Errorf("the kernel was built from its source: %s", why)
		}
	}
	for i, got := range chunkhash.Sums(raw) {
		if got != want[i] {
			t.Errorf("chunk %d: the device gives %x, the host %x", i, got, want[i])
		}
	}
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

// TestHashPieces: the chunks that are hashed are those that lie in one part from end to end.
func TestHashPieces(t *testing.T) {
	for _, c := range []struct {
		p             part
		n             int64
		first, chunks int64
		off, bytes    int64
		ok            bool
	}{
		{part{off: 0, bytes: 100}, 100, 0, 1, 0, 100, true},
		{part{off: 0, bytes: 3 * HashBytes, memOff: 4096}, 3 * HashBytes, 0, 3, 4096, 3 * HashBytes, true},
		{part{off: 0, bytes: HashBytes + 4096}, 9 * HashBytes, 0, 1, 0, HashBytes, true},
		{part{off: HashBytes + 4096, bytes: 2 * HashBytes}, 9 * HashBytes, 2, 1, HashBytes - 4096, HashBytes, true},
		{part{off: HashBytes + 4096, bytes: HashBytes + 10}, 2*HashBytes + 4106, 2, 1, HashBytes - 4096, 4106, true},
		{part{off: 4096, bytes: 4096}, 9 * HashBytes, 0, 0, 0, 0, false},
		{part{off: 0, bytes: 100, host: bytes.Repeat([]byte{1}, 100)}, 100, 0, 0, 0, 0, false},
		{part{off: 0, bytes: HashBytes, memOff: 8}, HashBytes, 0, 0, 0, 0, false},
	} {
		x, ok := whole(c.p, c.n)
		if ok != c.ok || ok && (x.first != c.first || x.chunks != c.chunks || x.off != c.off || x.bytes != c.bytes) {
			t.Errorf("part %d+%d of %d: got %+v %v", c.p.off, c.p.bytes, c.n, x, ok)
		}
	}
}

// TestHashesOnFullDevice: where the program has all memory, a block of the shadow makes room for the
// hashes of the others; the bytes are those that were captured.
func TestHashesOnFullDevice(t *testing.T) {
	const n = 2 * HashBytes
	d, _ := fakeDevice(t, func(i *driver.Info) { i.GlobalBytes, i.MaxAllocBytes = 4*n, n })
	d.reserve = 0
	q := must(d.Queue("q"))(t)
	fillWith(t, q, must(d.Buffer("x", n))(t), 1)
	fillWith(t, q, must(d.Buffer("y", n))(t), 2)
	c := must(d.Capture(context.Background(), nil))(t)
	if len(c.blocks) != 2 {
		t.Fatalf("the shadow has %d blocks, want 2: this tests nothing", len(c.blocks))
	}
	hashes := must(c.Hashes(context.Background()))(t)
	for i, want := range []bool{true, false} {
		got := make([]byte, n)
		ok(t, c.ReadAt(context.Background(), i, got, 0))
		if !bytes.Equal(got, bytes.Repeat([]byte{byte(i + 1)}, n)) {
			t.Errorf("content %d has other bytes than were captured", i)
		}
		for k, h := range hashes[i] {
			if host := d.hashKey().Of(got[k*HashBytes : (k+1)*HashBytes]); want && h != host || !want && h != (Hash{}) {
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
	d.reserve = 0
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
