// Package kernel holds the device code of the alignment.
//
// # Tiles
//
// A rank's part of the matrix, all rows and its columns, is cut into tiles of Rows × Cols cells. A row of tiles is a
// strip. The tiles on a diagonal of tiles do not depend on each other: one launch computes them, a work group each. In
// a group every work item owns one row and is one cell behind the item above, so that it finds that item's result of
// the step before in local memory.
//
// # Borders
//
// A tile reads its left border from the border record of its strip, and replaces it
// with the border for the next tile to the right; the next rank gets the last one. It
// reads its upper border from two rows over all columns, and replaces it in the same
// way. For the trace back, the border records and, every
// Keep strips, the rows are kept.
package kernel

import (
	_ "embed"
	"fmt"

	"github.com/holdfast-hpc/holdfast/apps/internal/dialect"
	"github.com/holdfast-hpc/holdfast/apps/smithwaterman/align"
)

// Diagonal computes the tiles of one diagonal: tile column first + group with
// strip diagonal - first - group. Its arguments, in order:
//
//	a, b          uint8, codes of all rows and of the rank's columns
//	pair          int32, align.Scoring.Pair
//	top           int32, H then F above every column, 2·cols
//	border        int32, a record of Border numbers per strip
//	best          int32, score, row, column per tile column
//	keptBorders   int32, a record per tile, strip by strip
//	keptRows      int32, H then F of every column, every Keep strips
//	rows, cols, tileCols, diagonal, first, open, extend, keep    int32
//
// keep is 0 or 1: whether borders and rows are kept. Launch with a group of Rows
// work items per tile.
const Diagonal = "diagonal"

// Rows and Cols are the size of a tile, Keep how many strips share a kept row.
const (
	Rows = 64
	Cols = 512
	Keep = 16
)

// Border is the length of a border record: H of the row above and of the strip's
// rows, then E of the strip's rows.
const Border = 2*Rows + 1

//go:embed diagonal.cl
var text string

// Sources is the source for all devices.
var Sources = dialect.Sources(text)

// Options are the build options.
var Options = fmt.Sprintf("-DROWS=%d -DCOLS=%d -DKEEP=%d -DLETTERS=%d", Rows, Cols, Keep, align.Letters)
