// Package bodies holds the initial conditions and results of an N-body run:
// masses, positions and velocities in float32, as the device computes with
// them, their CSV form, and a generator of Plummer spheres. The gravitational
// constant is 1.
//
// Two Systems are the same if the bits of all their numbers are. Digest hashes
// these bits, and a CSV file written by Write reads back as the same bits.
package bodies
