// Package mpilayer tests libholdfast-mpi: programs in C, under both MPIs, whose messages it counts and drains.
package mpilayer
