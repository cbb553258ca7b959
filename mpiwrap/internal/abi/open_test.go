package abi

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

func TestLauncherFromEnvironment(t *testing.T) {
	for _, c := range []struct {
		name   string
		env    map[string]string
		family string
		ranks  int
	}{
		{"none", nil, "", 0},
		{"Open MPI", map[string]string{"OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "1"}, "Open MPI", 4},
		{"hydra", map[string]string{"PMI_SIZE": "3", "PMI_RANK": "0"}, "MPICH", 3},
		{"PMIx without Open MPI", map[string]string{"PMIX_RANK": "0"}, "Open MPI", 0},
		{"srun without PMI", map[string]string{"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "8"}, "", 8},
		{"srun with PMIx", map[string]string{"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "8", "PMIX_RANK": "1"},
			"Open MPI", 8},
		{"mpirun inside a Slurm step", map[string]string{"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8",
			"OMPI_COMM_WORLD_SIZE": "1"}, "Open MPI", 1},
		{"noise", map[string]string{"PMI_SIZE": "many"}, "MPICH", 0},
	} {
		env := func(k string) string { return c.env[k] }
		n, _ := launched(env)
		if got := launcherOf(env); got != c.family || n != c.ranks {
			t.Errorf("%s: got %q with %d ranks, want %q with %d", c.name, got, n, c.family, c.ranks)
		}
	}
}

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
