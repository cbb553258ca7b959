//go:build mpi_openmpi || mpi_mpich

package abi

import "testing"

// TestTableMatchesHeader runs in directly linked builds only.
func TestTableMatchesHeader(t *testing.T) {
	n, err := CheckTable()
	if err != nil {
		t.Fatal(err)
	}
	if n < 70 {
		t.Errorf("only %d entries were compared", n)
	}
	t.Logf("%d entries compared", n)
}
