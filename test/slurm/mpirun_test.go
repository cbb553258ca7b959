package slurm

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/test/cluster"
)

// TestMpirun: a power cut under mpirun and mpiexec, with no Slurm around them.
// MPICH's launcher would hang for ever.
func TestMpirun(t *testing.T) {
	b := newBed(t, 3)
	for mpi, launcher := range []string{
		"mpirun.openmpi --hostfile $TESTBED_OPENMPI_HOSTS --mca mpi_yield_when_idle 1 -np 2",
		"mpiexec.mpich -launcher ssh -launcher-exec $TESTBED_RSH -f $TESTBED_MPICH_HOSTS -n 2",
	} {
		t.Run(mpis[mpi].name, func(t *testing.T) {
			j := b.newJob(t, mpi, "mpirun", stencil, 2)
			script := "exec " + b.bin + "/holdfast run --spares 1 -- " + launcher + " " + b.bin + "/testprog " + strings.Join(stencil, " ") + " -result " + j.there + "/result"
			env := []string{"HOLDFAST_GLOBAL=" + j.there + "/ckpt", "HOLDFAST_LOCAL=" + j.local, "HOLDFAST_REDUNDANCY=partner:1", "HOLDFAST_INTERVAL=1s"}
			k := b.start(t, env, "bash", "-c", script)
			k.says(t, "level=global")
			b.Verb(t, "kill", "n2")
			if code := k.wait(); code != 0 {
				t.Fatalf("exit %d\n%s", code, k.output())
			}
			if !strings.Contains(k.output(), "node n2 is not used any more") || !again.MatchString(k.output()) {
				t.Errorf("no restart without n2:\n%s", k.output())
			}
			t.Log(again.FindString(k.output()))
			if got := read(t, j.here+"/result", k.output()); got != j.want {
				t.Errorf("got %s, the undisturbed run %s", got, j.want)
			}
			b.Verb(t, "revive", "n2")
		})
	}
}

// TestPlacement: without a spare node the ranks move together; a job that was
// stopped under one MPI goes on under the other, with other nodes and more ranks
// on each.
func TestPlacement(t *testing.T) {
	b := newBed(t, 3)
	j := b.submit(t, 1, "fewer", []string{"-N3", "--ntasks-per-node=1", "--no-kill", "-t", "10"}, nil, nil, stencil, 3)
	j.says(t, "level=global", 1)
	b.Verb(t, "kill", "n2")
	j.ends(t)
	j.held(t, "only 2 of 3 nodes are left", "-N 2 -n 3", "computing again")
	b.Verb(t, "revive", "n2")

	want := b.want(t, 0, 4, medium)
	there, here := b.dir(t, "placement")
	env := []string{patient, "HOLDFAST_GLOBAL=" + there, "HOLDFAST_LOCAL=" + cluster.Local, "HOLDFAST_REDUNDANCY=partner:1", "HOLDFAST_INTERVAL=500ms"}
	program := append(append([]string{}, medium...), "-result", there+"/result")
	k := b.start(t, env, b.srunLine(0, 4, []string{"-N2", "-w", "n1,n2"}, program...)...)
	k.until(t, "epochs", func() bool { return newest(k.output(), "global") >= 2 })
	b.Run(t, "scancel", "--signal=USR2", strings.Fields(b.Run(t, "squeue", "-h", "-t", "R", "-o", "%i"))[0])
	k.wait()
	if _, err := os.Stat(here + "/result"); err == nil {
		t.Fatalf("the program had ended before it was stopped\n%s", k.output())
	}
	k = b.start(t, env, b.srunLine(1, 4, []string{"-N2", "-w", "n2,n3", "-m", "cyclic"}, program...)...)
	if code := k.wait(); code != 0 || !strings.Contains(k.output(), "restored=true") {
		t.Fatalf("restart under the other MPI: exit %d\n%s", code, k.output())
	}
	if got := read(t, here+"/result", k.output()); got != want {
		t.Errorf("got %s, the undisturbed run %s", got, want)
	}
}
