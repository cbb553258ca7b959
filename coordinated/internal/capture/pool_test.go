package capture

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/storage"
)

func TestPool(t *testing.T) {
	p := newPool(4<<20, nil, newPinned(nil, func() []*gpustate.Device { return nil }))
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	p.Reserve(1 << 20)
	a, b := p.Alloc(5000), p.Alloc(100)
	if len(a) != 5000 || len(b) != 100 || uintptr(unsafe.Pointer(&a[0]))%pageBytes != 0 ||
		uintptr(unsafe.Pointer(&b[0]))%pageBytes != 0 {
		t.Fatalf("got %d and %d bytes", len(a), len(b))
	}
	if p.HasGrown() {
		t.Error("grew although there was room")
	}
	if c := p.Alloc(2 << 20); c == nil || !p.HasGrown() {
		t.Error("did not grow within the limit")
	}
	if c := p.Alloc(8 << 20); c != nil {
		t.Error("went over the limit")
	}
	p.claim()
	if d := p.Alloc(1 << 20); d == nil || p.HasGrown() {
		t.Error("did not reuse what was reset")
	}
}

// TestPoolPinned captures a device into a pool that is pinned and goes.
func TestPoolPinned(t *testing.T) {
	d, err := gpustate.Open(gpustate.Select{Kind: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.LimitShadow(0)
	want := bytes.Repeat([]byte("pinned."), 100000)
	x, err1 := d.Buffer("x", len(want))
	q, err2 := d.Queue("q")
	if err := errors.Join(err1, err2, q.Write(x, 0, want)); err != nil {
		t.Fatal(err)
	}
	pinned := newPinned(slog.New(slog.DiscardHandler), func() []*gpustate.Device { return []*gpustate.Device{d} })
	p := newPool(0, nil, pinned)
	p.Reserve(4 << 20)
	for range 3 {
		c, err := d.Capture(t.Context(), p.AllocDevice)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Slice(0, 0, int64(len(want))); !bytes.Equal(got, want) {
			t.Fatalf("captured %d other bytes", len(got))
		}
		if err := c.Release(); err != nil {
			t.Fatal(err)
		}
		p.PinUsed()
		p.claim()
		if n := len(pinned.undo); n != 1 {
			t.Errorf("%d pieces of the pool are pinned, want 1", n)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if n := len(pinned.undo); n != 0 {
		t.Errorf("%d pieces are pinned after the pool has gone", n)
	}
}

// TestPoolBehind: a capture that meets the pool while it is being made ready gets
// its memory, whichever comes first, and none is mapped twice.
func TestPoolBehind(t *testing.T) {
	const n = 12 << 20
	for range 50 {
		p := newPool(0, nil, newPinned(slog.New(slog.DiscardHandler), func() []*gpustate.Device { return nil }))
		var behind sync.WaitGroup
		behind.Go(func() { p.Reserve(n) })
		p.claim()
		if b := p.Alloc(n); len(b) != n {
			t.Fatalf("got %d bytes, want %d", len(b), n)
		} else {
			b[n-1] = 1
		}
		behind.Wait()
		if p.mapped != n {
			t.Errorf("%d bytes are mapped, want %d", p.mapped, n)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// noMemory is a node that has none left.
type noMemory struct{ program.Memory }

func (noMemory) Map(int) ([]byte, error) { return nil, unix.ENOMEM }

// TestPoolWithoutMemory: captures do without the pool, which counts nothing as its own.
func TestPoolWithoutMemory(t *testing.T) {
	p := newPool(0, noMemory{}, newPinned(nil, nil))
	if p.Alloc(3*pageBytes) != nil || p.mapped != 0 {
		t.Errorf("got memory, %d bytes are mapped", p.mapped)
	}
}

func TestLease(t *testing.T) {
	p := newPool(0, nil, newPinned(nil, func() []*gpustate.Device { return nil }))
	defer p.Close()
	p.Reserve(1 << 20)
	released := 0
	fill := func() (*Lease, []byte) {
		mem := p.Alloc(1 << 20)
		l := p.Lease(t.Context(),
			&Snapshot{Sections: []storage.Section{{Name: "x", Size: 1 << 20, Source: storage.Bytes(mem)}}})
		l.release = func() error { released++; return nil }
		return l, mem
	}
	l, mem := fill()
	if l.Done(); l.Hold() == nil {
		t.Fatal("the captured sections are gone before anyone wanted the memory")
	}
	l.Done()
	p.claim() // no reader: at once
	if l.Hold() != nil || released != 1 {
		t.Errorf("still leased after a claim, %d releases", released)
	}
	l2, mem2 := fill()
	if &mem2[0] != &mem[0] || p.HasGrown() {
		t.Error("the memory was not used again")
	}
	start := time.Now()
	p.claim() // l2 is still written
	if took := time.Since(start); took < ClaimPatience {
		t.Errorf("gave up after %v", took)
	}
	mem2[0] = 77
	l3, mem3 := fill()
	mem3[0] = 1
	if !p.HasGrown() || mem2[0] != 77 {
		t.Error("two epochs share memory")
	}
	if err := errors.Join(l2.End(), l2.End(), l3.End()); err != nil || released != 3 {
		t.Errorf("%v, %d releases", err, released)
	}
	if p.mapped != 1<<20 {
		t.Errorf("%d bytes stay mapped, want those of one epoch", p.mapped)
	}
	if l := p.Lease(t.Context(), nil); l.Hold() != nil || l.End() != nil {
		t.Error("a lease of nothing")
	}
}

func TestCopyAll(t *testing.T) {
	src := make([]byte, 3*copyPiece+17)
	for i := range src {
		src[i] = byte(i * 7)
	}
	dst := make([]byte, len(src))
	copyAll([]Copy{{dst[:10], src[:10]}, {dst[10:], src[10:]}, {nil, nil}}, 4)
	if !bytes.Equal(dst, src) {
		t.Error("copied wrongly")
	}
}
