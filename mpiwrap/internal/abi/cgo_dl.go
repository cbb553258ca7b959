//go:build !mpi_openmpi && !mpi_mpich

package abi

// #cgo LDFLAGS: -ldl
// #cgo CFLAGS: -O2
import "C"
