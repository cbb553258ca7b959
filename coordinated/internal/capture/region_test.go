package capture

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
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
	if src.Kind() != dst.Kind() {
		t.Fatalf("kinds %q and %q", src.Kind(), dst.Kind())
	}
	b, _, err := src.View()
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
