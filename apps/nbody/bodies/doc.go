// Package bodies holds the initial conditions and results of an N-body run:
// masses, positions and velocities in float32, as the device computes with
// them, their CSV form, and a generator of Plummer spheres.
//
// # Units
//
// A System says in which units it is. Two systems are computed in:
//
//	nbody  the gravitational constant is 1
//	solar  solar masses, astronomical units, days
//
// A CSV file may also be in SI units (kg, m, s); reading it converts to solar
// ones, since distances of the solar system cubed leave the range of float32.
//
// # Identity
//
// Two Systems are the same if the bits of all their numbers are. Digest hashes
// these bits, and a CSV file written by Write reads back as the same bits.
package bodies
