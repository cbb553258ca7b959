package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/test/cluster"
)

// undisturbed are the results of undisturbed runs, by program.
var undisturbed = struct {
	sync.Mutex
	results map[string]string // guarded by the mutex, also while one is made
}{results: map[string]string{}}

// want returns the result of an undisturbed run.
func (b *bed) want(t *testing.T, mpi, n int, program []string) string {
	t.Helper()
	key := fmt.Sprint(n, program)
	undisturbed.Lock()
	defer undisturbed.Unlock()
	if undisturbed.results[key] == "" {
		there, here := b.dir(t, fmt.Sprint("want-", len(undisturbed.results)))
		args := append(append([]string{}, program...), "-result", there+"/result")
		k := b.start(t, []string{patient, "HOLDFAST_GLOBAL=" + there}, b.srunLine(mpi, n, nil, args...)...)
		if code := k.wait(); code != 0 {
			t.Fatalf("undisturbed run: exit %d\n%s", code, k.output())
		}
		undisturbed.results[key] = read(t, here+"/result", k.output())
	}
	return undisturbed.results[key]
}

// job is a batch job that holdfast run supervises.
type job struct {
	*bed
	id          string
	there, here string
	local       string // on every node
	want        string
	mpi         int
	struck      int // the number of the run in which nodes died last
}

// newJob makes the directories of a job.
func (b *bed) newJob(t *testing.T, mpi int, name string, program []string, ranks int) *job {
	t.Helper()
	j := &job{bed: b, mpi: mpi, want: b.want(t, mpi, ranks, program)}
	j.there, j.here = b.dir(t, name+"-"+mpis[mpi].name)
	if err := os.MkdirAll(j.here+"/ckpt", 0o755); err != nil {
		t.Fatal(err)
	}
	j.local = cluster.Local + "/" + filepath.Base(j.here)
	j.makeLocal(t)
	return j
}

// args returns the arguments of the program under test.
func (j *job) args(program []string) []string {
	args := append(append([]string{}, program...), "-result", j.there+"/result")
	if slices.Equal(program, held) {
		args = append(args, "-hold", j.there+"/go")
	}
	return args
}

// startTimeout bounds the hangs in MPI_Init that README.md of the test bed tells of.
const startTimeout = "40s"

// submit starts a job: sbatch flags, then holdfast run's, then srun's and the
// program's.
func (b *bed) submit(t *testing.T, mpi int, name string, sbatch, run, srun, program []string, ranks int,
	env ...string) *job {
	t.Helper()
	j := b.newJob(t, mpi, name, program, ranks)
	line := append(append([]string{b.bin + "/holdfast", "run", "--start-timeout", startTimeout}, run...), "--")
	line = append(line, b.srunLine(mpi, ranks, srun, j.args(program)...)...)
	vars := append([]string{"HOLDFAST_GLOBAL=" + j.there + "/ckpt", "HOLDFAST_LOCAL=" + j.local,
		"HOLDFAST_REDUNDANCY=partner:1", "HOLDFAST_INTERVAL=1s"}, env...)
	j.sbatch(t, "#!/bin/bash\nexec "+strings.Join(line, " ")+"\n", sbatch, vars, nil)
	return j
}

// sbatch submits a script with more variables in its environment.
func (j *job) sbatch(t *testing.T, script string, flags, vars, args []string) {
	t.Helper()
	if err := os.WriteFile(j.here+"/job.sh", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	line := append([]string{"env"}, vars...)
	line = append(append(line, "sbatch", "--parsable", "--open-mode=append", "-o", j.there+"/log"), flags...)
	j.id = strings.TrimSpace(j.Run(t, append(append(line, j.there+"/job.sh"), args...)...))
	t.Cleanup(func() { _ = j.TryCommand("scancel", j.id) })
}

// read returns a file of this module.
func (b *bed) read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// held checks that the log of a job holds texts.
func (j *job) held(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(j.log(), text) {
			t.Errorf("the log lacks %q:\n%s", text, j.decisions())
		}
	}
}

// makeLocal makes the local directory on all nodes.
func (j *job) makeLocal(t *testing.T) {
	t.Helper()
	nodes, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(j.NodeLocal("n1"))), "n*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if err := os.MkdirAll(filepath.Join(j.NodeLocal(filepath.Base(n)), filepath.Base(j.here)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func (j *job) log() string {
	b, _ := os.ReadFile(j.here + "/log") // none yet
	return string(b)
}

// says waits until the job's log holds a text so often.
func (j *job) says(t *testing.T, text string, times int) {
	t.Helper()
	poll(t, text, nil, j.log, func() bool { return strings.Count(j.log(), text) >= times })
}

// ends waits until the job is over and compares its result.
func (j *job) ends(t *testing.T) {
	t.Helper()
	j.says(t, "holdfast run: ", 1)
	poll(t, "the end of the job", nil, j.log, func() bool {
		return strings.Contains(j.log(), "the program has ended\n") || strings.Contains(j.log(), "giving up")
	})
	if got := read(t, j.here+"/result", j.log()); got != j.want {
		t.Errorf("got %s, the undisturbed run %s\n%s", got, j.want, j.log())
	}
}

// decisions returns the lines of holdfast run.
func (j *job) decisions() string {
	var lines []string
	for line := range strings.Lines(j.log()) {
		if strings.HasPrefix(line, "holdfast run: ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// TestDeaths lets nodes die in every way, each in another phase of a checkpoint,
// with copies and with parity, under both MPIs. The programs continue with a spare
// node.
func TestDeaths(t *testing.T) {
	t.Parallel()
	b := newBed(t, 7)
	for i, tr := range []trial{
		{Kind: "power", Ranks: []int{2}, Aim: "redundancy", Redundancy: "parity:2+1", Spares: 1},
		{Kind: "cut", Ranks: []int{1}, Aim: "vote", Redundancy: "partner:1", Spares: 1, Heal: true},
		{Kind: "crash", Ranks: []int{2}, Aim: "flush", Redundancy: "partner:1", Spares: 1},
		{Kind: "freeze", Ranks: []int{3}, Aim: "write", Redundancy: "parity:3+1", Spares: 1, Local: true},
		{Kind: "procs", Ranks: []int{2}, Aim: "agree", Redundancy: "partner:1", Spares: 1},
		{Kind: "power", Ranks: []int{1, 2}, Aim: "flush", Redundancy: "parity:2+2", Spares: 1, Skip: 1},
		{Kind: "freeze", Ranks: []int{1, 2}, Aim: "flush", Redundancy: "partner:2", Spares: 2, Skip: 1},
	} {
		tr.MPI = i % len(mpis)
		t.Run(tr.name(), func(t *testing.T) { b.try(t, &tr, fmt.Sprint("death-", i)) })
	}
}
