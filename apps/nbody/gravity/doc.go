// Package gravity computes softened Newtonian gravity on the host in float64:
// energies for a run whose forces are computed on a device in float32, and
// a bound on how far two devices may differ.
//
// All functions are pure, and sum in a fixed order: on one architecture equal
// arguments give equal bits.
package gravity
