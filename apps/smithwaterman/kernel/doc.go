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
// A tile reads its left border from the border record of its strip, and replaces it
// with the border for the next tile to the right; the next rank gets the last one. It
// reads its upper border from two rows over all columns, and replaces it in the same
// way. For the trace back, the border records and, every
// Keep strips, the rows are kept.
package kernel
