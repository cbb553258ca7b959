//go:build !mpi_openmpi && !mpi_mpich

package abi

// The second flag lets disconnect.c stand before the library.

// #cgo LDFLAGS: -ldl -Wl,--export-dynamic
// #cgo CFLAGS: -O2
import "C"

// Direct reports whether the executable itself is linked with the MPI library.
const Direct = false
