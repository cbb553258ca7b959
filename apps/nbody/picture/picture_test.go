package picture

import (
	"bytes"
	"image/color"
	"image/png"
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/nbody/bodies"
)

// TestDraw: a body to the right and up is drawn there, the rest stays black.
func TestDraw(t *testing.T) {
	s := bodies.New(1, bodies.NBody)
	s.Set(0, 1, [3]float64{1, 0.5, 0}, [3]float64{})
	img := ViewOf(s).Draw(s)
	black := color.RGBA{A: 255}
	lit := 0
	for y := range Size {
		for x := range Size {
			if img.RGBAAt(x, y) != black {
				lit++
				if x < 3*Size/4 || y > Size/2 {
					t.Fatalf("pixel %d, %d is lit", x, y)
				}
			}
		}
	}
	if lit != 29 { // the pixels within 3 of a centre
		t.Errorf("got %d lit pixels, want a disc of 29", lit)
	}
}

// TestViewLeavesOutStragglers: of many bodies 2 % may lie outside, of few none.
func TestViewLeavesOutStragglers(t *testing.T) {
	for n, want := range map[int]float64{10: 1100, 100: 1.1} {
		s := bodies.New(n, bodies.NBody)
		for i := range n {
			s.Set(i, 1, [3]float64{1, 0, 0}, [3]float64{})
		}
		s.Set(0, 1, [3]float64{0, -1000, 0}, [3]float64{})
		if got := ViewOf(s).half; got < want*0.999 || got > want*1.001 {
			t.Errorf("%d bodies: half a side is %g, want %g", n, got, want)
		}
	}
	if v := ViewOf(bodies.New(1, bodies.NBody)); v.half != 1 {
		t.Errorf("a body in the origin: got %g", v.half)
	}
}

func TestWriteIsPNG(t *testing.T) {
	s, err := bodies.Plummer(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	var a, b bytes.Buffer
	v := ViewOf(s)
	if err := v.Write(&a, s); err != nil {
		t.Fatal(err)
	}
	if err := v.Write(&b, s); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Errorf("the same bodies gave two pictures, %v", err)
	}
	img, err := png.Decode(&a)
	if err != nil || img.Bounds().Dx() != Size {
		t.Errorf("got %v, %v", img, err)
	}
}
