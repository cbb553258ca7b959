//go:build mpi_openmpi || mpi_mpich

package abi

/*
#cgo mpi_openmpi pkg-config: ompi-c
#cgo mpi_mpich pkg-config: mpich
#cgo mpi_mpich LDFLAGS: -ldl
#cgo CFLAGS: -O2

// Compares the table with mpi.h. It returns 0 when all is the same; else err describes the difference. checked counts
// the comparisons.
int hfmpi_check(char *err, int cap, int *checked);
*/
import "C"

import "errors"

// Direct reports whether the executable itself is linked with the MPI library.
const Direct = true

// CheckTable compares every constant, handle, prototype and layout of the table
// with the mpi.h this build was compiled with. It returns how many were compared.
func CheckTable() (checked int, err error) {
	var text [512]C.char
	var n C.int
	if C.hfmpi_check(&text[0], C.int(len(text)), &n) != 0 {
		return int(n), errors.New(C.GoString(&text[0]))
	}
	return int(n), nil
}
