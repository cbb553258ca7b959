//go:build mpi_openmpi

package abi

// #cgo pkg-config: ompi-c
// #cgo CFLAGS: -O2
import "C"
