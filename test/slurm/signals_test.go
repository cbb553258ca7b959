package slurm

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/test/cluster"
)

// held is a program that stays in its middle, passing Points, until its job has a
// file "go": what a test does to it comes in time on any machine.
var held = []string{"-shape", "stencil", "-steps", "20", "-size", "2000"}

// goesOn is what a rank of it says that was restored, at its middle or, where the
// signal was faster, before.
const goesOn = "restored=true"

// template submits a job with a template of slurm/ and the program under test.
func (b *bed) template(t *testing.T, mpi int, name string, sbatch, program []string, ranks int, env ...string) *job {
	t.Helper()
	j := b.newJob(t, mpi, "template-"+name, program, ranks)
	args := append([]string{b.bin + "/testprog"}, j.args(program)...)
	text := b.read(t, "../../slurm/"+name+".sh")
	vars := append([]string{"HOLDFAST=" + b.bin + "/holdfast", "MPI_PLUGIN=" + mpis[mpi].plugin, "HOLDFAST_GLOBAL=" +
		j.there + "/ckpt",
		"HOLDFAST_INTERVAL=1s"}, append(env, mpis[mpi].env...)...)
	j.sbatch(t, text, sbatch, vars, args)
	return j
}

// line returns the program under test with its result file.
func (b *bed) line(program []string, result string) []string {
	return append(append([]string{b.bin + "/testprog"}, program...), "-result", result)
}

// hold submits a job of a held program, under holdfast run with the flags run or,
// if they are nil, under srun alone and a script that requeues it. An epoch is
// taken only when something asks for it.
func (b *bed) hold(t *testing.T, mpi int, name string, ranks int, sbatch, run []string, env ...string) *job {
	t.Helper()
	j := b.newJob(t, mpi, name, held, ranks)
	line := strings.Join(b.srunLine(mpi, ranks, nil, j.args(held)...), " ")
	head, rest := "#!/bin/bash\n", []string{}
	for _, flag := range sbatch {
		if strings.HasPrefix(flag, "--signal") { // as users do, and holdfast run can read it there
			head += "#SBATCH " + flag + "\n"
		} else {
			rest = append(rest, flag)
		}
	}
	for _, v := range append([]string{patient, "HOLDFAST_GLOBAL=" + j.there + "/ckpt"}, env...) {
		head += "export " + v + "\n"
	}
	if run != nil {
		// A launcher that hangs must not take as long as the test waits.
		run = append([]string{"--start-timeout=3m", "--end-timeout=1m"}, run...)
		head += "exec " + b.bin + "/holdfast run " + strings.Join(run, " ") + " -- " + line + "\n"
	} else {
		head += line + " || (($? == 3)) && scontrol requeue $SLURM_JOB_ID\n"
	}
	j.sbatch(t, head, append([]string{"--requeue"}, rest...), nil, nil)
	return j
}

// request asks for one checkpoint: a signal comes to each rank, and may make more.
func (j *job) request(t *testing.T) {
	t.Helper()
	host := strings.TrimSpace(j.Run(t, "squeue", "-h", "-j", j.id, "-o", "%B"))
	j.Verb(t, "run-on", host, j.bin+"/holdfast", "request", j.there+"/ckpt")
}

// proceed lets a held program go on.
func (j *job) proceed(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(j.here+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// resumed waits until a held program has been restored, lets it go on and checks
// its result.
func (j *job) resumed(t *testing.T, ranks int) {
	t.Helper()
	j.says(t, goesOn, ranks)
	j.proceed(t)
	poll(t, "the result of "+j.here, nil, j.log, func() bool {
		b, err := os.ReadFile(j.here + "/result")
		return err == nil && len(b) > 0 // it is made empty, then written
	})
	if got := read(t, j.here+"/result", j.log()); got != j.want {
		t.Errorf("got %s, the undisturbed run %s\n%s", got, j.want, j.log())
	}
	t.Log("\n" + j.decisions())
}

// TestSignals: each way to be told to stop ends with a committed epoch at global,
// the job continues under its number, and its result is that of an undisturbed run.
// A signal that does not mean stop is a checkpoint and no more.
func TestSignals(t *testing.T) {
	t.Parallel()
	b := newBed(t, 11, "CLUSTER_KILL_WAIT=10", "CLUSTER_GRACE=60")
	requeue := []string{"--requeue"}
	// Copying 16 KB of each node to global takes 16 s here; after TERM there are 10.
	slow := b.hold(t, 0, "slow", 2, []string{"-w", "n9,n10", "-N2", "-t", "10"}, requeue, "HOLDFAST_LOCAL="+
		cluster.Local,
		"HOLDFAST_REDUNDANCY=partner:1", "HOLDFAST_FLUSH_RATE=1k")
	cancelled := b.hold(t, 1, "cancelled", 2, []string{"-w", "n11", "-N1", "--exclusive", "-t", "10"}, requeue)
	scancel := func(flags ...string) func(*testing.T, *job) {
		return func(t *testing.T, j *job) { b.Run(t, append(append([]string{"scancel"}, flags...), j.id)...) }
	}
	cases := []struct {
		name string
		mpi  int
		run  []string // flags of holdfast run; nil = without it
		env  string
		stop func(*testing.T, *job)
		says string
	}{
		{"step-usr2", 0, requeue, "", scancel("--signal=USR2"), "requeued"},
		{"step-term", 1, requeue, "", scancel("--signal=TERM"), "requeued"},
		{"batch-usr2", 1, requeue, "", scancel("--batch", "--signal=USR2"), "user defined signal 2: final checkpoint"},
		{"batch-term", 0, requeue, "", scancel("--batch", "--signal=TERM"),
			"terminated: final checkpoint, 10s are left"},
		{"srun-usr2", 0, nil, "", scancel("--signal=USR2"), ""},
		{"srun-usr1", 1, nil, "HOLDFAST_SIGNALS_STOP=USR1,TERM", scancel("--signal=USR1"), ""},
		{"requeue", 0, requeue, "", func(t *testing.T, j *job) {
			b.Run(t, "scancel", "--signal=USR1", j.id)
			j.says(t, "epoch=1 level=global", 1)
			b.Run(t, "scancel", "--batch", "--signal=USR1", j.id)
			j.says(t, "passed on to the ranks", 1)
			j.says(t, "epoch=2 level=global", 1)
			b.Run(t, "scontrol", "requeue", j.id)
		}, "Slurm requeues the job by itself"},
		// Copying to global takes 13 s here, more than there is after TERM.
		{"preempted", 1, requeue, "HOLDFAST_LOCAL=" + cluster.Local + " HOLDFAST_FLUSH_RATE=2500",
			func(t *testing.T, j *job) {
				j.says(t, "epoch=1 level=global", 1)
				node := strings.TrimSpace(b.Run(t, "squeue", "-h", "-j", j.id, "-o", "%N"))
				b.Run(t, "sbatch", "-p", "urgent", "-w", node, "--exclusive", "-o", "/dev/null", "--wrap", "true")
				j.says(t, "epoch=2 level=global", 1)
			}, "terminated, the job is being preempted: final checkpoint, "},
	}
	var jobs []*job
	for _, c := range cases {
		jobs = append(jobs, b.hold(t, c.mpi, c.name, 2, []string{"-N1", "--exclusive", "-t", "10"}, c.run,
			strings.Fields(c.env)...))
	}
	for _, j := range []*job{slow, jobs[len(jobs)-1]} { // what copying takes has to be measured
		j.says(t, "computing on 2 ranks", 1)
		j.request(t)
	}
	for i, c := range cases {
		jobs[i].says(t, "restored=false", 2)
		if c.run != nil {
			jobs[i].says(t, "computing on 2 ranks", 1)
		}
		c.stop(t, jobs[i])
	}
	t.Run("no time for global", func(t *testing.T) {
		slow.says(t, "epoch=1 level=global", 1)
		b.Run(t, "scancel", "--batch", "--signal=TERM", slow.id)
		slow.says(t, "requeued", 1)
		slow.resumed(t, 2)
		slow.held(t, "epoch 2 is at local, partner only: at the measured rate, copying it to global takes ",
			"stopped after the final checkpoint, epoch 2 at local, partner", "restored epoch 2 from local")
	})
	t.Run("cancelled", func(t *testing.T) {
		cancelled.says(t, "computing on 2 ranks", 1)
		b.Run(t, "scancel", cancelled.id)
		cancelled.says(t, "so it is not requeued", 1)
		cancelled.held(t, "stopped after the final checkpoint, epoch 1 at global")
	})
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			jobs[i].resumed(t, 2)
			if c.run != nil {
				jobs[i].held(t, c.says, "stopped after the final checkpoint", "at global")
			}
		})
	}
}

var told = regexp.MustCompile(`rank 0 was sent TERM|terminated: final checkpoint, 10s are left`)

// TestTemplates runs each job script of slurm/ as a user would. Meanwhile jobs
// on other nodes come to their time limit, announced in all ways and in none.
func TestTemplates(t *testing.T) {
	t.Parallel()
	b := newBed(t, 11, "CLUSTER_KILL_WAIT=10")
	limit := func(minutes string, flags ...string) []string { return append(flags, "--exclusive", "-t", minutes) }
	// Slurm looks every 30 s: of two minutes, with T of 45 s, its signal comes between
	// 45 s and 75 s after the start. There has to be a step to get it, on a slow machine
	// too, and holdfast run must not be first where it is to get it.
	toSteps := b.hold(t, 1, "limit-steps", 2, limit("2", "-w", "n5", "--signal=USR1@45"), nil,
		"HOLDFAST_SIGNALS_STOP=USR1,TERM")
	toStepsRun := b.hold(t, 0, "limit-steps-run", 2, limit("2", "-w", "n6", "--signal=USR1@45"), []string{"--requeue"})
	toBatchRun := b.hold(t, 1, "limit-batch", 2, limit("2", "-w", "n9", "--signal=B:USR1@45"),
		[]string{"--max-restarts=1", "--lead=5s"})
	itself := b.hold(t, 1, "limit-itself", 2, limit("1", "-w", "n11"), nil, "HOLDFAST_REQUEUE=1")
	unannounced := b.hold(t, 0, "limit", 2, limit("1", "-w", "n10"), []string{"--max-restarts=1"})
	toBatch := b.template(t, 0, "time-limit", limit("2", "-w", "n7,n8", "-N2", "--signal=B:USR1@45"), held, 2, patient)

	four := []string{"-w", "n[1-4]", "-N4", "-t", "10"}
	t.Run("preemptible", func(t *testing.T) {
		j := b.template(t, 0, "preemptible", four, held, 4, patient)
		j.says(t, "level=global", 2)
		urgent := strings.TrimSpace(b.Run(t, "sbatch", "--parsable", "-p", "urgent", "-w", "n[1-4]", "-N4",
			"--exclusive", "-o", "/dev/null", "--wrap", "sleep 1"))
		j.says(t, goesOn, 4)
		j.proceed(t)
		j.ends(t)
		j.held(t, "the job is being preempted: final checkpoint", "stopped after the final checkpoint",
			"restored epoch")
		if got := b.Run(t, "scontrol", "show", "job", urgent); !strings.Contains(got, "JobState=COMPLETED") {
			t.Errorf("the urgent job did not run:\n%s", got)
		}
	})
	t.Run("node-failure", func(t *testing.T) {
		j := b.template(t, 1, "node-failure", four, held, 3, "LOCAL_DISK="+cluster.Local)
		j.says(t, "level=global", 2)
		b.Verb(t, "kill", "n3")
		j.says(t, "computing again", 1)
		j.proceed(t)
		j.ends(t)
		j.held(t, "node n3 is no longer used", "computing again", "level=partner")
		b.Verb(t, "revive", "n3")
	})
	t.Run("array", func(t *testing.T) {
		j := b.newJob(t, 0, "template-array", short, 2)
		vars := []string{"HOLDFAST=" + b.bin + "/holdfast", "MPI_PLUGIN=pmix", "CHECKPOINTS=" + j.there + "/ckpt"}
		j.sbatch(t, b.read(t, "../../slurm/array.sh"), []string{"--array=1-2", "-N2", "-t", "10"},
			append(vars, mpis[0].env...),
			b.line(short, j.there+"/result-%a"))
		poll(t, "the end of both", nil, j.log, func() bool {
			return strings.Count(j.log(), "the program has ended\n") == 2
		})
		for _, task := range []string{"1", "2"} {
			if got := read(t, j.here+"/result-"+task, j.log()); got != j.want {
				t.Errorf("task %s: got %s, want %s", task, got, j.want)
			}
		}
	})

	t.Run("time-limit", func(t *testing.T) {
		toBatch.resumed(t, 2)
		toBatch.held(t, "time limit is near", "stopped after the final checkpoint", "at global")
	})
	t.Run("to the steps", func(t *testing.T) {
		toSteps.resumed(t, 2)
	})
	t.Run("no holdfast run, unannounced", func(t *testing.T) {
		itself.says(t, "the job is requeued", 1)
		itself.proceed(t)
		itself.resumed(t, 2)
		itself.held(t, "epoch=1 level=global")
	})
	t.Run("to the steps under holdfast run", func(t *testing.T) {
		toStepsRun.resumed(t, 2)
		toStepsRun.held(t, "the time limit is near: final checkpoint", "at global")
	})
	for name, j := range map[string]*job{"to the batch shell": toBatchRun, "unannounced": unannounced} {
		t.Run(name, func(t *testing.T) { // without --requeue the user submits the job again
			j.says(t, "stopped after the final checkpoint, epoch 1 at global", 1)
			if j == toBatchRun {
				j.held(t, "user defined signal 1, the time limit is near: final checkpoint")
				// Slurm sends TERM to the step and to the batch shell, one after the other
			} else if !told.MatchString(j.log()) {
				t.Errorf("the log lacks %q:\n%s", told, j.decisions())
			}
			b.Run(t, "sbatch", "--open-mode=append", "-o", j.there+"/log", "-N1", "-n2", "-t", "10", j.there+"/job.sh")
			j.resumed(t, 2)
		})
	}
}
