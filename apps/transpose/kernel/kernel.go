// Package kernel holds the device code of the distributed transpose. Elements are uint32,
// matrices row-major.
package kernel

import (
	_ "embed"
	"fmt"

	"github.com/holdfast-hpc/holdfast/apps/internal/dialect"
)

// The kernels, with their arguments in order.
const (
	// Transpose writes the transpose of a rows×cols matrix, adding one to every
	// element: dst[j,i] = src[i,j] + 1. dst, src uint32, rows, cols int32. A group
	// moves a tile of Tile × Tile elements through local memory, so that both
	// sides are read and written by rows. Launch with Global(rows, cols) items in
	// groups of Local().
	Transpose = "transpose"

	// Place copies a rows×cols block into a matrix: dst[i, col+j] = src[off + i·cols+j].
	// dst, src uint32, off, rows, cols, width (of dst), col int32. Launch with
	// PlaceGlobal(rows, cols) items in groups of PlaceLocal().
	Place = "place"
)

// Tile is the side of a tile, Lines the number of its rows that a group moves at
// once.
const (
	Tile  = 32
	Lines = 8
)

//go:embed transpose.cl
var text string

// Sources is the source for all devices.
var Sources = dialect.Sources(text)

// Options are the build options.
var Options = fmt.Sprintf("-DTILE=%d -DLINES=%d", Tile, Lines)

// Local returns the size of a group of Transpose.
func Local() []int { return []int{Tile, Lines} }

// Global returns the number of work items of Transpose. The first dimension runs
// along the columns of src.
func Global(rows, cols int) []int {
	return []int{(cols + Tile - 1) / Tile * Tile, (rows + Tile - 1) / Tile * Lines}
}

// PlaceLocal returns the size of a group of Place.
func PlaceLocal() []int { return []int{Tile * Lines} }

// PlaceGlobal returns the number of work items of Place.
func PlaceGlobal(rows, cols int) []int {
	const group = Tile * Lines
	return []int{(rows*cols + group - 1) / group * group}
}
