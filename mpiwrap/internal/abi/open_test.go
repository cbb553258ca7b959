package abi

import "testing"

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
