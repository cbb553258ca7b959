// Package kernel holds the device code of the matrix product, for float32 and float64.
//
// A work group of Group × Group items computes a tile of Tile × Tile elements of
// C, each item Tile/Group by Tile/Group of them in registers. It walks along the
// shared dimension Step at a time: the group reads Tile × Step of A and
// Step × Tile of B into local memory, and every item multiplies from there.
// Products are added in ascending order of the shared index, so one kind of
// device always gives the same bits for the same panels.
package kernel
