package blas

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
)

func TestRefused(t *testing.T) {
	d, err := gpustate.Open(gpustate.Select{Kind: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := Open(d); err == nil || !strings.Contains(err.Error(), "fake:0") ||
		!strings.Contains(err.Error(), "leave out -blas") {
		t.Errorf("got %v, want the device and the remedy", err)
	}
}

// TestMultiplyAdd multiplies small whole numbers, which floats hold exactly, before and after a
// move: the library's handle is made again for the new context.
func TestMultiplyAdd(t *testing.T) {
	d, err := gpustate.Open(gpustate.Select{Kind: "cuda"})
	if err != nil {
		t.Skip("no CUDA device: ", err)
	}
	defer d.Close()
	b, err := Open(d)
	if err != nil {
		t.Skip(err)
	}
	const m, n, k = 33, 17, 29
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	q, err := d.Queue("q")
	ok(err)
	a, x, c := make([]float64, m*k), make([]float64, k*n), make([]float64, m*n)
	for i := range a {
		a[i] = float64(i % 7)
	}
	for i := range x {
		x[i] = float64(i % 5)
	}
	var bufs []*gpustate.Buffer
	for i, data := range [][]float64{a, x, c} {
		buf, err := d.Buffer([]string{"a", "x", "c"}[i], 8*len(data))
		ok(err)
		ok(q.Write(buf, 0, gpustate.Bytes(data)))
		bufs = append(bufs, buf)
	}
	for round := 1.0; round <= 2; round++ {
		ok(b.MultiplyAdd(q, false, m, n, k, bufs[2], bufs[0], bufs[1]))
		ok(q.Read(bufs[2], 0, gpustate.Bytes(c)))
		for i := range m {
			for j := range n {
				want := 0.0
				for l := range k {
					want += round * a[i*k+l] * x[l*n+j]
				}
				if c[i*n+j] != want {
					t.Fatalf("round %g: element %d,%d is %g, want %g", round, i, j, c[i*n+j], want)
				}
			}
		}
		ok(d.MigrateTo(context.Background(), gpustate.Select{Kind: "cuda"}))
	}
	ok(b.Close())
}
