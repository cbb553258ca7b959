package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/holdfast-hpc/holdfast/apps/matmul/matfile"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

type real interface{ float32 | float64 }

// inputs are the matrices to multiply, element by element.
type inputs struct {
	m, k, n int
	a, b    func(i, j int) float64
	name    string // marks that distinguish them from others
}

func (c *config) load() (*inputs, error) {
	if c.a == "" {
		return &inputs{c.m, c.k, c.n, made(c.seed, 0, c.k), made(c.seed, 1, c.n),
			fmt.Sprintf("seed %d size %dx%dx%d", c.seed, c.m, c.k, c.n)}, nil
	}
	a, err := matfile.Open(c.a)
	if err != nil {
		return nil, err
	}
	b, err := matfile.Open(c.b)
	if err != nil {
		return nil, err
	}
	if a.Cols != b.Rows {
		return nil, fmt.Errorf("%s is %d by %d, %s is %d by %d: want as many rows as the first has columns",
			c.a, a.Rows, a.Cols, c.b, b.Rows, b.Cols)
	}
	return &inputs{a.Rows, a.Cols, b.Cols, a.At, b.At, "matrices " + digest(a, b)}, nil
}

func digest(all ...*matfile.Matrix) string {
	h := sha256.New()
	var raw [8]byte
	for _, m := range all {
		fmt.Fprintf(h, "%d %d\n", m.Rows, m.Cols)
		for _, x := range m.Data {
			binary.LittleEndian.PutUint64(raw[:], math.Float64bits(x))
			h.Write(raw[:])
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// made returns a matrix of cols columns from a seed: multiples of 2^-23 from -1
// to below 1, so float32 holds them exactly. Element (i, j) is the first 24 bits
// of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) at a place of its own.
func made(seed uint64, which, cols int) func(i, j int) float64 {
	start := splitMix(seed*2 + uint64(which))
	return func(i, j int) float64 {
		z := splitMix(start + uint64(i)*uint64(cols) + uint64(j))
		return float64(z>>40)/(1<<23) - 1
	}
}

// splitMix applies the mixing function of SplitMix64, after its increment.
func splitMix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// block returns the elements of rows by cols of a matrix, row by row. One that T
// cannot hold is an error.
func block[T real](at func(i, j int) float64, rows, cols span) ([]T, error) {
	if err := matfile.Fits(rows.len(), cols.len(), len(gpustate.Bytes(make([]T, 1)))); err != nil {
		return nil, err
	}
	out := make([]T, 0, rows.len()*cols.len())
	for i := rows.lo; i < rows.hi; i++ {
		for j := cols.lo; j < cols.hi; j++ {
			x := T(at(i, j))
			if math.IsInf(float64(x), 0) {
				return nil, fmt.Errorf("element %d, %d is %g, beyond the range of %T: give -type float64", i, j,
					at(i, j), x)
			}
			out = append(out, x)
		}
	}
	return out, nil
}
