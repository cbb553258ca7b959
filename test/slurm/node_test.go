package slurm

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/test/cluster"
)

var fromPartner = regexp.MustCompile(`restored" .* level=.*partner \(rank [0-9,]*1`)

// TestLostDirectory: four nodes keep partner copies and nothing else. One of
// them dies and comes back empty; the job continues from the partner's copy.
func TestLostDirectory(t *testing.T) {
	t.Parallel()
	b := newBed(t, 4)
	for mpi, m := range mpis {
		t.Run(m.name, func(t *testing.T) {
			there, here := b.dir(t, m.name)
			flags := []string{"-N4", "--ntasks-per-node=1"}
			args := []string{"-shape", "stencil", "-steps", "200", "-size", "50000"}
			env := []string{"HOLDFAST_JOB=lost", "HOLDFAST_LOCAL=" + cluster.Local, "HOLDFAST_REDUNDANCY=partner:1",
				patient}
			run := func(result string, env []string, more ...string) *task {
				return b.start(t, env, b.srunLine(mpi, 4, flags, append(append(args, "-result", there+"/"+result),
					more...)...)...)
			}
			k := run("want", append(env, "HOLDFAST_FRESH=1"))
			if code := k.wait(); code != 0 {
				t.Fatalf("undisturbed run: exit %d\n%s", code, k.output())
			}
			want := read(t, here+"/want", k.output())

			k = run("got", append(env, "HOLDFAST_FRESH=1"), "-hold", there+"/go")
			k.says(t, "rank 3 restored=false")
			b.Run(t, "scancel", "--signal=USR1", strings.TrimSpace(b.Run(t, "squeue", "-h", "-t", "R", "-o", "%i")))
			k.until(t, "a copy at the partner", func() bool { return newest(k.output(), "partner") > 0 })
			b.Verb(t, "kill", "n2")
			b.Verb(t, "revive", "--fresh", "n2")
			if k.wait() == 0 {
				t.Fatalf("the job ended well although a node died\n%s", k.output())
			}
			if err := os.WriteFile(here+"/go", nil, 0o644); err != nil {
				t.Fatal(err)
			}
			k = run("got", env)
			if code := k.wait(); code != 0 {
				t.Fatalf("restart: exit %d\n%s", code, k.output())
			}
			if out := k.output(); !fromPartner.MatchString(out) || strings.Contains(out, "restored=false") {
				t.Errorf("rank 1 was not restored from its partner:\n%s", out)
			}
			if got := read(t, here+"/got", k.output()); got != want {
				t.Errorf("got %s, the undisturbed run %s", got, want)
			}
		})
	}
}

// TestBatchHostDies: the node that runs the batch script and holdfast run dies.
// Slurm would leave a job with --no-kill as it is; the ranks put it back into the
// queue, and it continues from its checkpoint on other nodes.
func TestBatchHostDies(t *testing.T) {
	t.Parallel()
	b := newBed(t, 4)
	j := b.submit(t, 1, "host", []string{"-N3", "--no-kill", "--requeue", "-t", "10"}, []string{"--requeue"}, nil, held,
		3)
	j.says(t, "level=global", 2)
	b.Verb(t, "kill", "n1")
	j.says(t, goesOn, 3)
	j.proceed(t)
	j.ends(t)
	j.held(t, "restored epoch")
}

// TestLauncherDies: srun is killed and the ranks live on without it. They are ended
// before the program is started again.
func TestLauncherDies(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	j := b.submit(t, 0, "launcher", []string{"-N3", "--no-kill", "-t", "10"}, nil, nil, held, 3, patient)
	j.says(t, "level=global", 2)
	b.Verb(t, "run-on", "n1", "pkill", "-9", "-x", "srun")
	j.says(t, "computing again", 1)
	j.proceed(t)
	j.ends(t)
	j.held(t, "computing again")
	if strings.Count(j.log(), "start 2: ")+strings.Count(j.log(), "start 3: ") != 1 {
		t.Errorf("more starts than one:\n%s", j.decisions())
	}
}
