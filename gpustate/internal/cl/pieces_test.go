package cl

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// strictly reports whether NVIDIA's OpenCL takes a box.
func strictly(l driver.Layout, b driver.Box, bytes int64) bool {
	o := l.Origin()
	ok := l.Row >= b[0] && l.Slice >= b[1]*l.Row && l.Slice%l.Row == 0 && (o[2]+b[2])*l.Slice <= bytes
	for i := range 3 {
		ok = ok && o[i] >= 0 && b[i] >= 1
	}
	return ok
}

func ramp(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i/251)
	}
	return b
}

// someLayout places a box within a number of bytes, often up to their end.
func someLayout(r *rand.Rand, b driver.Box, bytes int64) (l driver.Layout, fits bool) {
	l.Row = b[0] + r.Int64N(3)*r.Int64N(20)
	l.Slice = l.Row * (b[1] + r.Int64N(3))
	left := bytes - (b[2]-1)*l.Slice - (b[1]-1)*l.Row - b[0]
	if left < 0 {
		return l, false
	}
	if l.Off = left; r.IntN(2) == 0 {
		l.Off = r.Int64N(left + 1)
	}
	return l, true
}

// TestPieces: a box goes in pieces that the strictest platform takes, which are the box.
func TestPieces(t *testing.T) {
	const n = 2000
	r := rand.New(rand.NewPCG(1, 2))
	src, split := ramp(n), 0
	for range 20000 {
		box := driver.Box{1 + r.Int64N(60), 1 + r.Int64N(6), 1 + r.Int64N(5)}
		to, ok := someLayout(r, box, n)
		from, also := someLayout(r, box, n)
		if !ok || !also {
			continue
		}
		whole := driver.Rect{Size: box, To: to, From: from}
		if !to.Fits(box, n) || !from.Fits(box, n) {
			t.Fatalf("%v does not fit", whole)
		}
		list := pieces(whole, func(r driver.Rect) bool {
			return holds(r.To, r.Size, n) && holds(r.From, r.Size, n)
		})
		if len(list) > 1 {
			split++
		}
		want, got := make([]byte, n), make([]byte, n)
		whole.CopyRows(want, src)
		for _, p := range list {
			if !strictly(p.To, p.Size, n) || !strictly(p.From, p.Size, n) {
				t.Fatalf("%v, a piece of %v, is refused", p, whole)
			}
			p.CopyRows(got, src)
		}
		if len(list) > 3 || !bytes.Equal(got, want) {
			t.Fatalf("%v as %v is another box", whole, list)
		}
	}
	if split < 1000 {
		t.Errorf("%d boxes went in pieces", split)
	}
}

// TestBoxesInPieces: boxes whose slices end beyond the object arrive.
func TestBoxesInPieces(t *testing.T) {
	d, q := poclDevice(t)
	const n = 700
	parent := create(t, d, driver.MemDesc{Kind: driver.MemBuffer, Bytes: 4096 + n})
	sub := create(t, d, driver.MemDesc{Kind: driver.MemSub, Parent: parent, Offset: 4096, Bytes: n})
	other := create(t, d, driver.MemDesc{Kind: driver.MemBuffer, Bytes: n})
	src := ramp(n)
	for _, c := range []driver.Rect{
		{Size: driver.Box{68, 4, 2}, To: driver.Layout{Off: 12, Row: 76, Slice: 380}},
		{Size: driver.Box{68, 3, 1}, To: driver.Layout{Off: 312, Row: 160, Slice: 480}},
		{Size: driver.Box{4, 5, 3}, To: driver.Layout{Off: 700 - 4 - 4*9 - 2*90, Row: 9, Slice: 90}},
	} {
		c.From = c.Size.Packed()
		back := driver.Rect{Size: c.Size, To: c.From, From: c.To}
		if holds(c.To, c.Size, n) && c.Size[2] > 1 {
			t.Fatalf("%v is not what this test is about", c)
		}
		if strictly(c.To, c.Size, n) && c.Size[2] > 1 {
			t.Fatalf("%v passes the check", c)
		}
		for _, block := range []bool{true, false} {
			size := c.Size.Bytes()
			got := make([]byte, size)
			done := func(e driver.Event, err error) {
				t.Helper()
				if err == nil {
					err = d.WaitEvent(e)
					d.ReleaseEvent(e)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			done(put(d, q, parent, make([]byte, 4096+n)))
			done(put(d, q, other, make([]byte, n)))
			box := driver.BoxAt(c.Size, c.To)
			done(d.Transfer(q, driver.Transfer{Mem: sub, Place: box, Host: src, There: c.From, Block: block}, nil))
			done(d.Copy(q, other, box, sub, box, nil))
			done(d.Transfer(q, driver.Transfer{Mem: other, Place: driver.BoxAt(back.Size, back.From), Host: got,
				There: back.To, Read: true, Block: block}, nil))
			if !bytes.Equal(got, src[:size]) {
				t.Errorf("%v came back as another box", c)
			}
			want, all := make([]byte, n), make([]byte, n)
			c.CopyRows(want, src)
			for _, h := range []driver.Handle{sub, other} {
				done(get(d, q, h, 0, all))
				if !bytes.Equal(all, want) {
					t.Errorf("%v wrote something else", c)
				}
			}
		}
	}
}

// TestLines: arrays of images of one dimension are copied from and to buffers.
func TestLines(t *testing.T) {
	d, q := poclDevice(t)
	const w, h = 50, 7
	desc := driver.ImageDesc{Dims: 1, Array: true, Width: w, Height: h, Depth: 1, Order: 0x10B5, Type: 0x10DA}
	im := create(t, d, driver.MemDesc{Kind: driver.MemImage, Image: desc, Bytes: 4 * w * h})
	buf := create(t, d, driver.MemDesc{Kind: driver.MemBuffer, Bytes: 4*w*h + 12})
	src, got := ramp(4*w*h), make([]byte, 4*w*h)
	ok := func(_ driver.Event, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	part := driver.Region{Origin: [3]int{5, 2, 0}, Size: [3]int{20, 4, 1}}
	whole := driver.Pixels(driver.Region{Size: desc.Extents()})
	ok(d.Transfer(q, driver.Transfer{Mem: im, Place: whole, Host: src, Block: true}, nil))
	const bytesOfPart = 20 * 4 * 4
	ok(d.Copy(q, buf, driver.Bytes(12, bytesOfPart), im, driver.Pixels(part), nil))
	part.Origin = [3]int{30, 0, 0}
	ok(d.Copy(q, im, driver.Pixels(part), buf, driver.Bytes(12, bytesOfPart), nil))
	ok(d.Transfer(q, driver.Transfer{Mem: im, Place: whole, Host: got, Read: true, Block: true}, nil))
	want := bytes.Clone(src)
	for y := range 4 {
		copy(want[4*(y*w+30):][:80], src[4*((y+2)*w+5):])
	}
	if !bytes.Equal(got, want) {
		t.Error("the region is another one")
	}
	if _, err := d.Copy(q, buf, driver.Bytes(4*w*h, bytesOfPart), im, driver.Pixels(part), nil); err == nil {
		t.Error("a copy beyond the buffer succeeded")
	}
}
