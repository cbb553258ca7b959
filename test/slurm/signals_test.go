package slurm

import (
	"strings"
	"testing"
)

// medium is one of some ten seconds.
var medium = []string{"-shape", "stencil", "-steps", "700", "-pace", "10ms", "-size", "2000"}

// template submits a job with a template of slurm/ and the program under test.
func (b *bed) template(t *testing.T, mpi int, name string, sbatch, program []string, ranks int, env ...string) *job {
	t.Helper()
	j := b.newJob(t, mpi, "template-"+name, program, ranks)
	text := b.read(t, "../../slurm/"+name+".sh")
	vars := append([]string{"HOLDFAST=" + b.bin + "/holdfast", "MPI_PLUGIN=" + mpis[mpi].plugin, "HOLDFAST_GLOBAL=" + j.there + "/ckpt",
		"HOLDFAST_INTERVAL=1s"}, append(env, mpis[mpi].env...)...)
	j.sbatch(t, text, sbatch, vars, b.line(program, j.there+"/result"))
	return j
}

// line is the program under test with its result file.
func (b *bed) line(program []string, result string) []string {
	return append(append([]string{b.bin + "/testprog"}, program...), "-result", result)
}

// TestTemplates runs each job script of slurm/ as a user would.
func TestTemplates(t *testing.T) {
	b := newBed(t, 4, "CLUSTER_KILL_WAIT=10")
	t.Run("time-limit", func(t *testing.T) {
		// Slurm sends the signal between the start of the job and 30 s before its limit
		// of a minute, and holdfast run acts by itself then; an idle machine takes 45 s
		// for the program.
		long := []string{"-shape", "stencil", "-steps", "3000", "-pace", "15ms", "-size", "2000"}
		j := b.template(t, 0, "time-limit", []string{"-N2", "-t", "1", "--signal=B:USR1@30"}, long, 2, patient)
		j.ends(t)
		j.held(t, "time limit is near", "stopped after the final checkpoint", "requeued", "restored epoch")
	})
	t.Run("preemptible", func(t *testing.T) {
		j := b.template(t, 0, "preemptible", []string{"-N4", "-t", "10"}, medium, 4, patient)
		j.says(t, "level=global", 2)
		urgent := strings.TrimSpace(b.Run(t, "sbatch", "--parsable", "-p", "urgent", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1"))
		j.ends(t)
		j.held(t, "the job is being preempted: final checkpoint", "stopped after the final checkpoint", "restored epoch")
		if got := b.Run(t, "scontrol", "show", "job", urgent); !strings.Contains(got, "JobState=COMPLETED") {
			t.Errorf("the urgent job did not run:\n%s", got)
		}
	})
	t.Run("node-failure", func(t *testing.T) {
		j := b.template(t, 1, "node-failure", []string{"-N4", "-t", "10"}, stencil, 3, "HOLDFAST_LOCAL=/mnt/nvme/failure")
		j.says(t, "level=global", 2)
		b.Verb(t, "kill", "n3")
		j.ends(t)
		j.held(t, "node n3 is not used any more", "computing again")
		b.Verb(t, "revive", "n3")
	})
	t.Run("array", func(t *testing.T) {
		j := b.newJob(t, 0, "template-array", stencil, 2)
		vars := []string{"HOLDFAST=" + b.bin + "/holdfast", "MPI_PLUGIN=pmix", "CHECKPOINTS=" + j.there + "/ckpt"}
		j.sbatch(t, b.read(t, "../../slurm/array.sh"), []string{"--array=1-2", "-N2", "-t", "10"}, append(vars, mpis[0].env...),
			b.line(stencil, j.there+"/result-%a"))
		poll(t, "the end of both", nil, j.log, func() bool { return strings.Count(j.log(), "the program has ended") == 2 })
		for _, task := range []string{"1", "2"} {
			if got := read(t, j.here+"/result-"+task, j.log()); got != j.want {
				t.Errorf("task %s: got %s, want %s", task, got, j.want)
			}
		}
	})
}

// TestSignals: a signal to the ranks in the middle is a checkpoint and no more;
// a requeue and the end of the time limit, which nobody announced, are final
// ones, and the job goes on under its number.
func TestSignals(t *testing.T) {
	b := newBed(t, 3, "CLUSTER_KILL_WAIT=10")
	never := "HOLDFAST_INTERVAL=0s"
	for mpi, m := range mpis {
		t.Run(m.name, func(t *testing.T) {
			j := b.submit(t, mpi, "signals", []string{"-N3", "-t", "10", "--requeue"}, []string{"--requeue"}, nil, medium, 3, never, patient)
			j.says(t, "computing on 3 ranks", 1)
			b.Run(t, "scancel", "--signal=USR1", j.id)
			j.says(t, "epoch=1 level=global", 1)
			b.Run(t, "scancel", "--batch", "--signal=USR1", j.id)
			j.says(t, "passed on to the ranks", 1)
			j.says(t, "epoch=2 level=global", 1)
			b.Run(t, "scontrol", "requeue", j.id)
			j.ends(t)
			j.held(t, "final checkpoint", "stopped after the final checkpoint", "restored epoch")
		})
	}
}
