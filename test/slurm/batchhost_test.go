package slurm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
)

// TestBatchHostEarly: the node of the batch script and of holdfast run dies, or freezes and
// comes back, while no rank has come to Open. Its guards put the job back into the queue, and
// it runs once.
func TestBatchHostEarly(t *testing.T) {
	t.Parallel()
	b := newBed(t, 8)
	// The first start of a job stays before MPI_Init until its node is gone.
	const early = "[ -n \"$SLURM_RESTART_COUNT\" ] || { echo stays before Open; exec sleep 600; }\n"
	submit := func(mpi int, name, nodes string) *job {
		j := b.newJob(t, mpi, name, short, 3)
		line := strings.Join(b.srunLine(mpi, 3, nil, j.args(short)...), " ")
		program := strings.SplitN(line, b.bin+"/testprog", 2)
		script := j.there + "/early.sh"
		write(t, j.here+"/early.sh", "#!/bin/sh\n"+early+"exec "+b.bin+"/testprog"+program[1]+"\n")
		j.sbatch(t, "#!/bin/bash\nexec "+b.bin+"/holdfast run --requeue --start-timeout 5m -- "+program[0]+script+"\n",
			[]string{"-N3", "-w", nodes, "--no-kill", "--requeue", "-t", "10"},
			[]string{"HOLDFAST_GLOBAL=" + j.there + "/ckpt"}, nil)
		j.says(t, "stays before Open", 3)
		return j
	}
	dead := submit(1, "early-dead", "n[1-3]")
	frozen := submit(0, "early-frozen", "n[4-6]")
	b.Verb(t, "freeze", "n4")
	b.Verb(t, "kill", "n1")
	for _, j := range []*job{dead, frozen} {
		poll(t, "the requeue", nil, j.log, func() bool {
			return !strings.Contains(b.Run(t, "scontrol", "show", "job", j.id), "Restarts=0")
		})
		// It wants the nodes that it was submitted with, one of which is gone.
		poll(t, "the update", nil, j.log, func() bool {
			_, err := b.Try(t, "scontrol", "update", "JobId="+j.id, "ReqNodeList=")
			return err == nil
		})
	}
	b.Verb(t, "thaw", "n4")
	for _, j := range []*job{dead, frozen} {
		j.ends(t)
		if n := strings.Count(j.log(), "the program has ended\n"); n != 1 {
			t.Errorf("it ended %d times\n%s", n, j.log())
		}
		t.Log("\n" + j.decisions())
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestShortCut: an ordinary node is cut off for long enough that its rank takes the others
// for dead, as they do it, and comes back while they leave. It does not requeue the job, which
// goes on.
func TestShortCut(t *testing.T) {
	t.Parallel()
	b := newBed(t, 4)
	j := b.submit(t, 1, "short-cut", []string{"-N4", "--no-kill", "--requeue", "-t", "10"},
		[]string{"--requeue", "--spares=1"}, nil, held, 3)
	j.says(t, "level=global", 2)
	l := &tail{dir: filepath.Join(j.here, "ckpt", events.DirName), rank: slices.Index(j.nodesOf(t, 1), "n2")}
	b.Verb(t, "cut", "n2")
	left := false
	poll(t, "both sides to leave", nil, j.log, func() bool {
		for _, e := range l.more() {
			left = left || e.Name == events.Failure && e.What == "lost"
		}
		return left && notices.MatchString(j.log())
	})
	b.Verb(t, "heal", "n2")
	j.says(t, "computing again", 1)
	j.proceed(t)
	j.ends(t)
	if info := b.Run(t, "scontrol", "show", "job", j.id); !strings.Contains(info, "Restarts=0") {
		t.Errorf("the job was requeued\n%s\n%s", info, j.decisions())
	}
}
