package coordinated

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/storage"
)

type body struct {
	X, Y float64
	ID   int32
}

type counter struct{ n uint64 }

func (c *counter) SaveTo(w io.Writer) error   { return binary.Write(w, binary.LittleEndian, c.n) }
func (c *counter) LoadFrom(r io.Reader) error { return binary.Read(r, binary.LittleEndian, &c.n) }

// moveRegion saves through one region and loads through another.
func moveRegion(t *testing.T, from, to any) error {
	t.Helper()
	src, err := newRegion(from)
	if err != nil {
		t.Fatal(err)
	}
	dst, err := newRegion(to)
	if err != nil {
		t.Fatal(err)
	}
	if src.kind() != dst.kind() {
		t.Fatalf("kinds %q and %q", src.kind(), dst.kind())
	}
	b, _, err := src.view()
	if err != nil {
		t.Fatal(err)
	}
	s, err := dst.stage(int64(len(b)))
	if err != nil {
		return err
	}
	copy(s.dst, b)
	if s.apply != nil {
		return s.apply()
	}
	return nil
}

func TestRegionsRoundTrip(t *testing.T) {
	step, stepBack := 42, 0
	bodies, bodiesBack := []body{{1, 2, 3}, {4, 5, 6}}, []body(nil)
	arr, arrBack := [3]complex128{1, 2i, 3}, [3]complex128{}
	rng, rngBack := rand.NewPCG(1, 2), rand.NewPCG(9, 9)
	c, cBack := &counter{7}, &counter{}
	for _, m := range []struct{ from, to any }{{&step, &stepBack}, {&bodies, &bodiesBack}, {&arr, &arrBack},
		{rng, rngBack}, {c, cBack}} {
		if err := moveRegion(t, m.from, m.to); err != nil {
			t.Errorf("%T: %v", m.from, err)
		}
		if !reflect.DeepEqual(m.from, m.to) {
			t.Errorf("%T: got %v, want %v", m.from, m.to, m.from)
		}
	}
}

// TestSliceKeepsMemory: a slice whose length fits is read in place, because the
// program may have handed its memory to a queue or a request.
func TestSliceKeepsMemory(t *testing.T) {
	from, to := []float64{1, 2, 3}, make([]float64, 3)
	before := unsafe.SliceData(to)
	if err := moveRegion(t, &from, &to); err != nil {
		t.Fatal(err)
	}
	if unsafe.SliceData(to) != before {
		t.Error("the slice was reallocated although its length fits")
	}
	longer := []float64{1, 2, 3, 4, 5}
	if err := moveRegion(t, &longer, &to); err != nil || len(to) != 5 {
		t.Errorf("got %v, %v, want 5 elements", to, err)
	}
	empty := []float64{}
	if err := moveRegion(t, &empty, &to); err != nil || len(to) != 0 {
		t.Errorf("got %v, %v, want none", to, err)
	}
}

func TestUnsupportedTypes(t *testing.T) {
	type withString struct {
		A int
		S string
	}
	type oneWay struct{ withString }
	s, m, p, f := "x", map[int]int{}, new(int), func() {}
	for _, x := range []any{nil, 3, s, &s, m, &m, &p, &f, []int{1}, &withString{}, &[]string{}, (*int)(nil), &oneWay{},
		new(any), make(chan int)} {
		_, err := newRegion(x)
		if err == nil {
			t.Errorf("%T was accepted", x)
			continue
		}
		if len(err.Error()) < 10 {
			t.Errorf("%T: error says too little: %v", x, err)
		}
	}
	_, err := newRegion(&withString{})
	if err == nil || !strings.Contains(err.Error(), "field S") {
		t.Errorf("got %v, want the field to be named", err)
	}
}

func TestVarsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 20).Draw(t, "n")
		var want []entry
		for range n {
			e := entry{name: rapid.String().Draw(t, "name"), kind: rapid.String().Draw(t, "kind")}
			if rapid.Bool().Draw(t, "inline") {
				e.inline = rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "bytes")
				e.size = int64(len(e.inline))
			} else {
				e.size = rapid.Int64Min(0).Draw(t, "size")
			}
			want = append(want, e)
		}
		b, err := encodeVars(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeVars(b)
		if err != nil || len(got) != len(want) {
			t.Fatalf("got %d entries, %v, want %d", len(got), err, len(want))
		}
		for i := range want {
			if got[i].name != want[i].name || got[i].kind != want[i].kind || got[i].size != want[i].size ||
				(got[i].inline == nil) != (want[i].inline == nil) || !bytes.Equal(got[i].inline, want[i].inline) {
				t.Fatalf("entry %d: got %+v, want %+v", i, got[i], want[i])
			}
		}
		for cut := range b {
			if _, err := decodeVars(b[:cut]); err == nil {
				t.Fatalf("%d of %d bytes were accepted", cut, len(b))
			}
		}
	})
}

func FuzzDecodeVars(f *testing.F) {
	b, err := encodeVars([]entry{{"step", "value int64", 8, make([]byte, 8)}, {"energy", "slice float64", 1 << 20,
		nil}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := decodeVars(b)
		if err != nil {
			return
		}
		again, err := encodeVars(entries)
		if err != nil || len(again) > len(b) {
			t.Fatalf("%d bytes became %d, %v", len(b), len(again), err)
		}
	})
}

func TestPool(t *testing.T) {
	p := newPool(4<<20, newPins(nil, func() []*gpustate.Device { return nil }))
	defer func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}()
	p.reserve(1 << 20)
	a, b := p.alloc(5000), p.alloc(100)
	if len(a) != 5000 || len(b) != 100 || uintptr(unsafe.Pointer(&a[0]))%pageBytes != 0 ||
		uintptr(unsafe.Pointer(&b[0]))%pageBytes != 0 {
		t.Fatalf("got %d and %d bytes", len(a), len(b))
	}
	if p.hasGrown() {
		t.Error("grew although there was room")
	}
	if c := p.alloc(2 << 20); c == nil || !p.hasGrown() {
		t.Error("did not grow within the limit")
	}
	if c := p.alloc(8 << 20); c != nil {
		t.Error("went over the limit")
	}
	p.claim()
	if d := p.alloc(1 << 20); d == nil || p.hasGrown() {
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
	pins := newPins(slog.New(slog.DiscardHandler), func() []*gpustate.Device { return []*gpustate.Device{d} })
	p := newPool(0, pins)
	p.reserve(4 << 20)
	for range 3 {
		c, err := d.Capture(t.Context(), p.allocDevice)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Slice(0, 0, int64(len(want))); !bytes.Equal(got, want) {
			t.Fatalf("captured %d other bytes", len(got))
		}
		if err := c.Release(); err != nil {
			t.Fatal(err)
		}
		p.pinUsed()
		p.claim()
		if n := len(pins.undo); n != 1 {
			t.Errorf("%d pieces of the pool are pinned, want 1", n)
		}
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if n := len(pins.undo); n != 0 {
		t.Errorf("%d pieces are pinned after the pool has gone", n)
	}
}

func TestCopyAll(t *testing.T) {
	src := make([]byte, 3*copyPiece+17)
	for i := range src {
		src[i] = byte(i * 7)
	}
	dst := make([]byte, len(src))
	copyAll([]copyJob{{dst[:10], src[:10]}, {dst[10:], src[10:]}, {nil, nil}}, 4)
	if !bytes.Equal(dst, src) {
		t.Error("copied wrongly")
	}
}

func TestPlace(t *testing.T) {
	nodes := []string{"a", "b", "a", "b", "c", "a"}
	seen := map[int]int{}
	for r := range nodes {
		topo := place(r, nodes, 2)
		if (topo.parent < 0) != (r == 0) {
			t.Errorf("rank %d has parent %d", r, topo.parent)
		}
		for _, c := range topo.children {
			seen[c]++
			if up := place(c, nodes, 2); up.parent != r {
				t.Errorf("rank %d is a child of %d and thinks of %d", c, r, up.parent)
			}
		}
	}
	if len(seen) != len(nodes)-1 {
		t.Errorf("%d ranks have a parent, want %d", len(seen), len(nodes)-1)
	}
}

func TestIntersect(t *testing.T) {
	id := func(b byte) (x [16]byte) { x[0] = b; return x }
	per := [][]candidate{
		{{5, id(1)}, {4, id(1)}, {2, id(1)}},
		{{5, id(2)}, {4, id(1)}, {3, id(1)}, {2, id(1)}},
	}
	if got, want := intersect(per), []storage.Epoch{4, 2}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v: epoch 5 differs in contents", got, want)
	}
	var nc *NoCommonEpochError
	if err := noCommon([][]candidate{{{5, id(1)}}, nil}, nil, nil); !errors.As(err, &nc) ||
		!strings.Contains(err.Error(), "rank(s) 1 find none") {
		t.Errorf("got %v", err)
	}
}
