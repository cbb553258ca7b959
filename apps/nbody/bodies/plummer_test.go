package bodies

import (
	"math"
	"slices"
	"testing"
)

// TestPlummerIsReproducible pins the bits of one small sphere: a checkpoint's
// initial conditions must be the same for ever.
func TestPlummerIsReproducible(t *testing.T) {
	a, err := Plummer(64, 42)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := Plummer(64, 42)
	c, _ := Plummer(64, 43)
	if a.Digest() != b.Digest() {
		t.Error("the same seed gave different bodies")
	}
	if a.Digest() == c.Digest() {
		t.Error("different seeds gave the same bodies")
	}
}

// TestPlummerModel compares the sample with the model. With n bodies a fraction
// p of them lies within a radius up to a standard error sqrt(p(1-p)/n), the
// largest being 0.5/sqrt(n); five of these are allowed.
func TestPlummerModel(t *testing.T) {
	const n = 20000
	s, err := Plummer(n, 1)
	if err != nil {
		t.Fatal(err)
	}
	radii := make([]float64, n)
	for i := range radii {
		p := s.Pos[4*i : 4*i+3]
		radii[i] = math.Sqrt(float64(p[0]*p[0] + p[1]*p[1] + p[2]*p[2]))
	}
	slices.Sort(radii)
	a := 3 * math.Pi / 16
	cut := math.Pow(1+1.0/(maxRadius*maxRadius), -1.5) // mass within the cut
	tolerance := 5 * 0.5 / math.Sqrt(n)
	for _, p := range []float64{0.1, 0.25, 0.5, 0.75, 0.9} {
		r := radii[int(p*n)] / a
		model := math.Pow(1+1/(r*r), -1.5) / cut
		if math.Abs(model-p) > tolerance {
			t.Errorf("within %.3f a: got a fraction %.4f of the bodies, want %.4f ± %.4f", r, p, model, tolerance)
		}
	}
}

// TestPlummerIsolation checks that the sphere stands still: the centring rounds
// each number once, to a relative 2^-24 of at most about 6.
func TestPlummerIsolation(t *testing.T) {
	s, err := Plummer(5000, 3)
	if err != nil {
		t.Fatal(err)
	}
	var pos, vel [3]float64
	for i := range s.Len() {
		for k := range 3 {
			pos[k] += float64(s.Mass(i)) * float64(s.Pos[4*i+k])
			vel[k] += float64(s.Mass(i)) * float64(s.Vel[4*i+k])
		}
	}
	for k := range 3 {
		if math.Abs(pos[k]) > 6.0/(1<<24) || math.Abs(vel[k]) > 6.0/(1<<24) {
			t.Errorf("axis %d: centre of mass at %g moving with %g, want 0", k, pos[k], vel[k])
		}
	}
}

func TestPlummerRefusesTooFew(t *testing.T) {
	if _, err := Plummer(1, 1); err == nil {
		t.Error("got no error for one body")
	}
}
