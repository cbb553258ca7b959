//go:build !mpi_openmpi && !mpi_mpich

package abi

import (
	"os/exec"
	"testing"
)

// TestTablesAgainstHeaders compiles this package against each MPI's own header
// and compares the tables with it; see CheckTable.
func TestTablesAgainstHeaders(t *testing.T) {
	for tag, module := range map[string]string{"mpi_openmpi": "ompi-c", "mpi_mpich": "mpich"} {
		t.Run(tag, func(t *testing.T) {
			if err := exec.Command("pkg-config", "--exists", module).Run(); err != nil {
				t.Skipf("no headers: pkg-config %s: %v (make setup installs them)", module, err)
			}
			cmd := exec.Command("go", "test", "-count=1", "-v", "-run", "TestTableMatchesHeader", "-tags", tag, ".")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
