//go:build mpi_mpich

package abi

// #cgo pkg-config: mpich
// #cgo LDFLAGS: -ldl
// #cgo CFLAGS: -O2
import "C"

// Direct says whether the executable itself is linked with the MPI library.
const Direct = true
