//go:build mpi_openmpi || mpi_mpich

package abi

/*
#include "check.h"
*/
import "C"

import "errors"

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
