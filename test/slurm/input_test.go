package slurm

import (
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/test/cluster"
)

// TestBadInput: what cannot work on a site is said with its name and the remedy,
// before anything is started where that can be told.
func TestBadInput(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2, "CLUSTER_KILL_WAIT=30")
	holdfast := func(args ...string) []string {
		return append([]string{"salloc", "-Q", "-N2", "-n2", b.bin + "/holdfast", "run"}, args...)
	}
	preload := func(library string) string { return "--export=ALL,LD_PRELOAD=" + library }
	program := b.bin + "/testprog"
	nodes := []string{"salloc", "-Q", "-N2", "-n2", b.bin + "/holdfast", "doctor", "--nodes"}
	for _, c := range []struct {
		name string
		line []string
		code int
		says string
	}{
		{"no Slurm job", []string{b.bin + "/holdfast", "run", "--requeue", "--", "srun", "-n2", program}, 2,
			"this is not a Slurm job"},
		{"no Slurm commands", []string{"salloc", "-Q", "-N1", "/usr/bin/env", "PATH=/nosuch", b.bin + "/holdfast",
			"run", "--", "srun", "-n2", program}, 2, "no Slurm commands in PATH"},
		{"spares", holdfast("--spares", "2", "--", "srun", "-n2", program), 2, "--spares 2: the job has 2 nodes"},
		{"nodes and spares", holdfast("--spares", "1", "--", "srun", "-N2", "-n2", program), 2,
			"2 nodes for the program and 1 spare ones are more than the 2 of the job"},
		{"no MPI", holdfast("--", "srun", "--mpi=none", "-n2", program), 2,
			"use --mpi=pmix for Open MPI, --mpi=pmi2 for MPICH"},
		{"MPICH under pmix", holdfast("--", "srun", "--mpi=pmix", "-n2", preload("libmpich.so.12"), program), 1,
			"with MPICH every rank is alone; start the program with MPICH's own mpirun or with srun --mpi=pmi2"},
		{"Open MPI under pmi2", holdfast("--", "srun", "--mpi=pmi2", "-n2", preload("libmpi.so.40"), program), 1,
			"Open MPI needs --mpi=pmix and MPICH --mpi=pmi2"},
		{"directory that is each node's own", nodes, 2, "/tmp is not shared: n1 does not see what n2 wrote; n2 does"},
		{"shared directory", append([]string{"env", "HOLDFAST_GLOBAL=" + cluster.Shared}, nodes...), 0,
			"each of 2 nodes sees what the others write to " + cluster.Shared},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := b.start(t, []string{patient, "HOLDFAST_GLOBAL=/tmp"}, c.line...)
			if code := k.wait(); code != c.code || !strings.Contains(k.output(), c.says) {
				t.Errorf("exit %d, want %d and %q\n%s", code, c.code, c.says, k.output())
			}
		})
	}
	t.Run("no requeue", func(t *testing.T) {
		j := b.hold(t, 0, "no-requeue", 2, []string{"-N1", "-n2", "-t", "10", "--no-requeue"}, []string{"--requeue"})
		j.says(t, "computing on 2 ranks", 1)
		j.held(t, "was submitted with --no-requeue, or the site does not requeue")
		b.Run(t, "scancel", "--batch", "--signal=USR2", j.id)
		j.says(t, "it was submitted with --no-requeue, or the site does not requeue; submit the script again", 1)
		j.held(t, "stopped after the final checkpoint, epoch 1 at global")
	})
	t.Run("signal too late", func(t *testing.T) {
		const late = "warning: the final checkpoint begins 1s before the time limit, but epoch "
		throttled := []string{"HOLDFAST_LOCAL=" + cluster.Local, "HOLDFAST_FLUSH_RATE=10k"} // 32 KB of two ranks
		flags := []string{"-N1", "-n2", "-t", "10", "--signal=B:USR1@1"}
		j := b.hold(t, 1, "late", 2, flags, []string{"--max-restarts=1"}, throttled...)
		j.says(t, "computing on 2 ranks", 1)
		j.held(t, "no checkpoint of this job has been measured yet")
		j.request(t)
		j.says(t, late+"1 took", 1)
		b.Run(t, "scancel", j.id)
		j.says(t, "stopped after the final checkpoint", 1)
		j = b.hold(t, 1, "late", 2, flags, []string{"--max-restarts=1"}, throttled...)
		j.says(t, "computing on 2 ranks", 2)
		log := j.log()[strings.LastIndex(j.log(), "stopped after"):]
		if at := strings.Index(log, late); at < 0 || at > strings.Index(log, "start 1:") {
			t.Errorf("the second job does not warn before it starts the program:\n%s", log)
		}
	})
}
