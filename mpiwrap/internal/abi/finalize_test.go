package abi

import "testing"

func TestHangs(t *testing.T) {
	for text, want := range map[string]bool{
		"MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 2022\n": true,
		"MPICH Version:      3.4.1":                                     true, "MPICH Version:\t4.1.2": true,
		"MPICH Version:\t4.2.0": false, "MPICH Version: 5.0": false,
		"MPI VERSION    : CRAY MPICH version 8.1.28.29 (ANL base 3.4a2)": false,
		"Open MPI v4.1.4, package: Debian OpenMPI":                       false,
	} {
		if got := hangs(text); got != want {
			t.Errorf("%q: got %t", text, got)
		}
	}
}
