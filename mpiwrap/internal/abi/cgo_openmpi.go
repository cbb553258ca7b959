//go:build mpi_openmpi

package abi

// #cgo pkg-config: ompi-c
// #cgo CFLAGS: -O2
import "C"

// Direct says whether the executable itself is linked with the MPI library.
const Direct = true
