package main

import (
	"fmt"
	"math"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// verify checks the product on vectors of random signs (Freivalds, MFCS 1979):
// C x must be A (B x). A wrong element of C shows on every vector; an error that
// escapes one vector does so with probability 1/2 at most. It is collective.
//
// Rounding makes an element of C differ from the true one by at most
// (K + p) u Σ_k |a[i,k]| |b[k,j]|, p being the number of panels and u the unit
// roundoff of T (Higham, Accuracy and Stability, section 3.5). Over a row that is
// (K + p) u (|A| |B| 1)[i]; 2u more allow for the check itself, in float64. With
// -repeat R the sums are R times as long. Numbers below the smallest normal one, t,
// may become 0 on the device, elements of A and B as well as products, which adds
// at most t Σ_k (|a[i,k]| + 1) (|b[k,j]| + 1). The error of a bad product names the
// row and shows the residual.
func (s *summa[T]) verify(c []T) error {
	ones := make([]float64, s.input.n)
	for j := range ones {
		ones[j] = 1
	}
	size, err := s.apply(nil, ones, math.Abs)
	if err != nil {
		return err
	}
	lost, err := s.apply(nil, ones, func(v float64) float64 { return math.Abs(v) + 1 })
	if err != nil {
		return err
	}
	kind, unit, least := "float64", math.Ldexp(1, -53), math.Ldexp(1, -1022)
	if s.config.single {
		kind, unit, least = "float32", math.Ldexp(1, -24), math.Ldexp(1, -126)
	}
	factor := float64(s.config.repeat*(s.input.k+len(s.panels))+2)*unit + float64(s.input.k+s.input.n)*math.Ldexp(1,
		-53)
	for round := range s.config.checks {
		signs := made(s.config.seed+uint64(round), 2, s.input.n)
		x := make([]float64, s.input.n)
		for j := range x {
			x[j] = math.Copysign(1, signs(0, j))
		}
		residual, err := s.apply(c, x, func(v float64) float64 { return v })
		if err != nil {
			return err
		}
		for i, r := range residual {
			bound := factor*size[i] + least*lost[i]
			switch {
			case math.IsNaN(r) || math.IsInf(r, 0) || math.IsInf(bound, 0):
				return fmt.Errorf("row %d of the product is beyond the range of %s", i, kind)
			case math.Abs(r) > bound:
				return fmt.Errorf("row %d of the product is off by %g on a vector of signs, rounding allows %g", i, r,
					bound)
			}
		}
	}
	return nil
}

// apply returns R A (B x) - C x over all ranks for -repeat R, with f applied to
// every element of A and B; without C if c is nil.
func (s *summa[T]) apply(c []T, x []float64, f func(float64) float64) ([]float64, error) {
	y := make([]float64, s.input.k)
	product(y[s.sharedB.lo:s.sharedB.hi], s.b, x[s.cols.lo:s.cols.hi], f)
	if err := s.sum(&y); err != nil {
		return nil, err
	}
	for i := range y {
		y[i] *= float64(s.config.repeat)
	}
	z := make([]float64, s.input.m)
	product(z[s.rows.lo:s.rows.hi], s.a, y[s.sharedA.lo:s.sharedA.hi], f)
	if c != nil {
		product(z[s.rows.lo:s.rows.hi], c, x[s.cols.lo:s.cols.hi], func(v float64) float64 { return -v })
	}
	err := s.sum(&z)
	return z, err
}

// product adds to y the product of a block, len(y) by len(x), and x.
func product[T real](y []float64, block []T, x []float64, f func(float64) float64) {
	for i := range y {
		var sum float64
		for j, v := range x {
			sum += f(float64(block[i*len(x)+j])) * v
		}
		y[i] += sum
	}
}

func (s *summa[T]) sum(v *[]float64) error {
	total := make([]float64, len(*v))
	err := mpiwrap.Allreduce(s.World, total, *v, mpiwrap.Sum)
	*v = total
	return err
}
