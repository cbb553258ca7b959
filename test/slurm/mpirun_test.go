package slurm

import (
	"strings"
	"testing"
)

// TestMpirun: a power cut under mpirun and mpiexec, with no Slurm around them.
// MPICH's launcher would hang for ever.
func TestMpirun(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	for mpi, launcher := range []string{
		"mpirun.openmpi --hostfile $TESTBED_OPENMPI_HOSTS --mca mpi_yield_when_idle 1 -np 2",
		"mpiexec.mpich -launcher ssh -launcher-exec $TESTBED_RSH -f $TESTBED_MPICH_HOSTS -n 2",
	} {
		t.Run(mpis[mpi].name, func(t *testing.T) {
			j := b.newJob(t, mpi, "mpirun", held, 2)
			script := "exec " + b.bin + "/holdfast run --spares 1 -- " + launcher + " " + b.bin + "/testprog " +
				strings.Join(j.args(held), " ")
			env := []string{"HOLDFAST_GLOBAL=" + j.there + "/ckpt", "HOLDFAST_LOCAL=" + j.local,
				"HOLDFAST_REDUNDANCY=partner:1", "HOLDFAST_INTERVAL=1s"}
			k := b.start(t, env, "bash", "-c", script)
			k.says(t, "level=global")
			b.Verb(t, "kill", "n2")
			k.says(t, "computing again")
			j.proceed(t)
			if code := k.wait(); code != 0 {
				t.Fatalf("exit %d\n%s", code, k.output())
			}
			if !strings.Contains(k.output(), "node n2 is no longer used") || !again.MatchString(k.output()) {
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
// stopped under one MPI continues under the other, with other nodes and more ranks
// on each.
func TestPlacement(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	j := b.submit(t, 1, "fewer", []string{"-N3", "--ntasks-per-node=1", "--no-kill", "-t", "10"}, nil, nil, held, 3)
	j.says(t, "level=global", 1)
	b.Verb(t, "kill", "n2")
	j.says(t, "computing again", 1)
	j.proceed(t)
	j.ends(t)
	j.held(t, "only 2 of 3 nodes are left", "-N 2 -n 3", "computing again")
	b.Verb(t, "revive", "n2")

	j = b.newJob(t, 0, "placement", held, 4)
	env := []string{patient, "HOLDFAST_GLOBAL=" + j.there + "/ckpt", "HOLDFAST_LOCAL=" + j.local,
		"HOLDFAST_REDUNDANCY=partner:1", "HOLDFAST_INTERVAL=500ms"}
	k := b.start(t, env, b.srunLine(0, 4, []string{"-J", "placement", "-N2", "-w", "n1,n2"}, j.args(held)...)...)
	k.until(t, "epochs", func() bool { return newest(k.output(), "global") >= 2 })
	b.Run(t, "scancel", "--signal=USR2", strings.TrimSpace(b.Run(t, "squeue", "-h", "-n", "placement", "-o", "%i")))
	if code := k.wait(); code != 3 {
		t.Fatalf("the program that was to stop: exit %d\n%s", code, k.output())
	}
	j.proceed(t)
	k = b.start(t, env, b.srunLine(1, 4, []string{"-J", "placement", "-N2", "-w", "n2,n3", "-m", "cyclic"},
		j.args(held)...)...)
	if code := k.wait(); code != 0 || !strings.Contains(k.output(), "restored=true") {
		t.Fatalf("restart under the other MPI: exit %d\n%s", code, k.output())
	}
	if got := read(t, j.here+"/result", k.output()); got != j.want {
		t.Errorf("got %s, the undisturbed run %s", got, j.want)
	}
}
