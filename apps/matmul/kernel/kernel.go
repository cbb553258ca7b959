// Package kernel holds the device code of the matrix product, for float32 and float64.
//
// A work group of Group × Group items computes a tile of Tile × Tile elements of
// C, each item Tile/Group by Tile/Group of them in registers. It walks along the
// shared dimension Step at a time: the group reads Tile × Step of A and
// Step × Tile of B into local memory, and every item multiplies from there.
// Products are added in ascending order of the shared index, so one kind of
// device always gives the same bits for the same panels.
package kernel

import (
	_ "embed"
	"fmt"

	"github.com/holdfast-hpc/holdfast/apps/internal/dialect"
)

// Multiply adds a product to C: C += A B. Arguments: c, a, b (float32 or
// float64, row-major), m, n, k int32: the sizes m×n, m×k and k×n. Launch with
// Global(m, n, single) items in groups of Local().
const Multiply = "multiply"

// The sizes of the package comment.
const (
	Group = 16
	Step  = 16
)

// Tile returns the side of a tile of C. Twice as much fits into the registers in
// single precision.
func Tile(single bool) int {
	if single {
		return 128
	}
	return 64
}

//go:embed multiply.cl
var text string

// Sources is the source for all devices.
var Sources = dialect.Sources(text)

// Options returns the build options.
func Options(single bool) string {
	// Four floats in a row are one read from local memory; doubles in a row only
	// make work items wait for the same bank (on an H200, 11 against 15 TFLOP/s).
	real, run := "double", 1
	if single {
		real, run = "float", 4
	}
	return fmt.Sprintf("-DREAL=%s -DRUN=%d -DGROUP=%d -DTILE=%d -DSTEP=%d", real, run, Group, Tile(single), Step)
}

// Local returns the size of a work group.
func Local() []int { return []int{Group, Group} }

// Global returns the number of work items for a product of m×n elements. The
// first dimension runs along the columns.
func Global(m, n int, single bool) []int {
	t := Tile(single)
	return []int{(n + t - 1) / t * Group, (m + t - 1) / t * Group}
}
