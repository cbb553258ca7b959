package cufft

import (
	"context"
	"math"
	"math/cmplx"
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
	if _, err := New(d, 4, 4); err == nil || !strings.Contains(err.Error(), "fake:0") {
		t.Errorf("got %v, want the device", err)
	}
}

// TestTransform compares with the sum of the definition, before and after a move: the plan is made
// again for the new context.
func TestTransform(t *testing.T) {
	d, err := gpustate.Open(gpustate.Select{Kind: "cuda"})
	if err != nil {
		t.Skip("no CUDA device: ", err)
	}
	defer d.Close()
	const rows, cols = 6, 10
	p, err := New(d, rows, cols)
	if err != nil {
		t.Skip(err)
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	q, err := d.Queue("q")
	ok(err)
	field, err := d.Buffer("field", 16*rows*cols)
	ok(err)
	u := make([]complex128, rows*cols)
	for i := range u {
		u[i] = complex(float64(i%7), float64(i%4))
	}
	for range 2 {
		got := make([]complex128, len(u))
		ok(q.Write(field, 0, gpustate.Bytes(u)))
		ok(p.Transform(q, field, Forward))
		ok(q.Read(field, 0, gpustate.Bytes(got)))
		for k := range got {
			var want complex128
			for i := range u {
				turn := float64(k/cols*(i/cols))/rows + float64(k%cols*(i%cols))/cols
				want += u[i] * cmplx.Exp(complex(0, -2*math.Pi*turn))
			}
			if cmplx.Abs(got[k]-want) > 1e-11 {
				t.Fatalf("coefficient %d is %v, want %v", k, got[k], want)
			}
		}
		ok(p.Transform(q, field, Inverse))
		ok(d.MigrateTo(context.Background(), gpustate.Select{Kind: "cuda"}))
		ok(q.Read(field, 0, gpustate.Bytes(got)))
		for i := range got {
			if cmplx.Abs(got[i]/(rows*cols)-u[i]) > 1e-12 {
				t.Fatalf("there and back element %d is %v, want %v", i, got[i]/(rows*cols), u[i])
			}
		}
	}
	ok(p.Close())
}
