// Package kernel holds the device code of the alignment.
//
// # Tiles
//
// A rank's part of the matrix, all rows and its columns, is cut into tiles of
// Rows × Cols cells. A row of tiles is a strip. The tiles on a diagonal of tiles
// do not depend on each other: one launch computes them, a work group each. In a
// group every work item owns one row and is one cell behind the item above, so
// that it finds what that one left a step before in local memory.
//
// # Borders
//
// What a tile needs from the left stands in a border record of its strip, which
// the tile replaces with what the next tile to the right needs; the last one is
// what the next rank needs. What it needs from above stands in two rows over all
// columns, replaced likewise. For the trace back, the border records and, every
// Keep strips, the rows are kept.
package kernel
