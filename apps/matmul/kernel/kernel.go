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
