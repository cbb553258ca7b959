package abi

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// codeEnv names the library of which a process of its own asks what an error means.
const codeEnv = "HOLDFAST_ABI_ERROR_LIBRARY"

// TestErrorBeforeInit: a library that is not up is not asked what its error means.
// Open MPI would end the process, MPICH has crashed in it.
func TestErrorBeforeInit(t *testing.T) {
	if library := os.Getenv(codeEnv); library != "" {
		if _, err := open(library, false); err != nil {
			t.Skip(err)
		}
		e := describe(14 | 0x1200)
		if !strings.Contains(e.Text, "not up") || e.Code != 14|0x1200 {
			t.Errorf("got %v", e)
		}
		if e := describe(6); e.Class != driver.ClassRank {
			t.Errorf("class %v of code 6, want rank", e.Class)
		}
		return
	}
	for _, library := range []string{openMPINames[0], mpichNames[0]} {
		t.Run(library, func(t *testing.T) {
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestErrorBeforeInit$", "-test.v")
			c.Env = append(os.Environ(), codeEnv+"="+library)
			out, err := c.CombinedOutput()
			switch text := string(out); {
			case strings.Contains(text, "--- SKIP"):
				t.Skip(text)
			case err != nil || !strings.Contains(text, "--- PASS"):
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}
