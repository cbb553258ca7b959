package main

import (
	"bytes"
	"fmt"
	"math"
	"os"

	"github.com/holdfast-hpc/holdfast/apps/nbody/bodies"
)

// sameBytes reports the first difference between two files.
func sameBytes(a, b string) error {
	x, err := os.ReadFile(a)
	if err != nil {
		return err
	}
	y, err := os.ReadFile(b)
	if err != nil {
		return err
	}
	if bytes.Equal(x, y) {
		return nil
	}
	at := 0
	for at < min(len(x), len(y)) && x[at] == y[at] {
		at++
	}
	return fmt.Errorf("%s and %s differ from byte %d on (%d and %d bytes)", a, b, at, len(x), len(y))
}

// readBodies reads a result file.
func readBodies(name string) (*bodies.System, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bodies.Read(f)
}

// farthest returns the largest difference of a coordinate between two results.
func farthest(a, b string) (float64, error) {
	x, err := readBodies(a)
	if err != nil {
		return 0, err
	}
	y, err := readBodies(b)
	if err != nil {
		return 0, err
	}
	if x.Len() != y.Len() {
		return 0, fmt.Errorf("%s has %d bodies, %s has %d", a, x.Len(), b, y.Len())
	}
	apart := 0.0
	for i := range x.Pos {
		apart = math.Max(apart, math.Abs(float64(x.Pos[i])-float64(y.Pos[i])))
	}
	return apart, nil
}
