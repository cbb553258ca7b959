package slurm

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/test/cluster"
)

// TestSalvage: a job gives up while its only checkpoint is on the nodes' own disks. What
// both nodes have is brought to global first, and another job continues from it on other nodes.
func TestSalvage(t *testing.T) {
	t.Parallel()
	b := newBed(t, 4)
	// At one byte per second the program's own copy to global is never done.
	slow := []string{"HOLDFAST_LOCAL=" + cluster.Local, "HOLDFAST_FLUSH_RATE=1"}
	submit := func(nodes string) *job {
		return b.hold(t, 1, "salvage", 2, []string{"-N2", "-w", nodes, "--ntasks-per-node=1", "-t", "10"},
			[]string{"--max-restarts=0"}, slow...)
	}
	j := submit("n[1-2]")
	j.says(t, "computing on 2 ranks", 1)
	j.request(t)
	poll(t, "a checkpoint on the nodes", nil, j.log, func() bool { return newest(j.log(), "local") == 1 })
	b.Verb(t, "run-on", "n2", "pkill", "-9", "-x", "testprog")
	j.says(t, "epoch 1 is now committed at global", 1)
	j.held(t, "giving up")
	j = submit("n[3-4]")
	j.resumed(t, 2)
	j.held(t, "restored epoch 1")
}
