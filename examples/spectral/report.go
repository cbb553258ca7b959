package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log"
	"math"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// report compares the field with the solution of the heat equation and prints its bytes' hash. A
// transform and its inverse round an element by less than 1e-15 log2(n n) of the largest one.
func report(rank, step int, u []complex128) {
	worst := 0.0
	fast, slow := math.Exp(-rate*float64(step)*(3*3+40*40)), math.Exp(-rate*float64(step))
	for i := range u {
		x, y := 2*math.Pi*float64(i%n)/n, 2*math.Pi*float64(i/n)/n
		want := fast*math.Sin(3*x+40*y) + slow*math.Cos(y)
		worst = max(worst, math.Hypot(real(u[i])-want, imag(u[i])))
	}
	if bound := 1e-12 + 4e-14*float64(step); !(worst < bound) {
		log.Fatalf("rank %d: after step %d an element is off by %g, more than %g", rank, step, worst, bound)
	}
	fmt.Printf("rank %d ends at step %d, the field is %x\n", rank, step, sha256.Sum256(gpustate.Bytes(u)))
}

// check ends the program, and with it all ranks, if something has failed.
func check(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
