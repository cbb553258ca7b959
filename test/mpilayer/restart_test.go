package mpilayer

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/test/launch"
	"github.com/holdfast-hpc/holdfast/test/yield"
)

var (
	programs = flag.Int("programs", 12, "how many programs TestRandomPrograms restarts")
	beside   = flag.Int("beside", 4, "how many of them one job has")
	cuts     = flag.Int("cuts", 1, "how often each job is cut")
	atOnce   = flag.Int("at-once", 1, "how many jobs run at once")
	seed     = flag.Uint64("seed", 24, "seed of the first one")
	allBugs  = flag.Bool("bugs", false, "plant all bugs of TestRandomProgramsFindBugs")
)

// root has what users install, once one of the tests has asked for it.
var root string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "mpilayer")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	root = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.RemoveAll(dir + buggyEnd)
	os.Exit(code)
}

var built = sync.OnceValue(func() error { return launch.Build(root) })

// installed builds what users install, and returns where. No test changes what is there.
func installed(t *testing.T) string {
	t.Helper()
	if err := built(); err != nil {
		t.Fatal(err)
	}
	return root
}

// compile builds a program in C or C++ with the libraries in dir, for each MPI.
func compile(t *testing.T, dir, source string, flags ...string) map[string]string {
	t.Helper()
	standard, language := "-std=gnu11", "mpicc"
	if filepath.Ext(source) == ".cpp" {
		standard, language = "-std=c++17", "mpicxx"
	}
	out := map[string]string{}
	for _, l := range mpirun.Launchers() {
		if err := l.Available(); err != nil {
			t.Skip(err)
		}
		out[l.Name] = filepath.Join(t.TempDir(), l.Name)
		compiler := strings.Replace(l.Compiler(), "mpicc", language, 1)
		// MPICH leaves standard output without a buffer, and puts, which printf of a line becomes, writes it in two.
		line := append(flags[:len(flags):len(flags)], standard, "-pthread", "-O1", "-Wall", "-Wextra", "-Werror",
			"-fno-builtin-printf", "-Wno-error=cast-function-type", "-I../../lib", "-o", out[l.Name], source, "-L"+dir,
			"-Wl,--no-as-needed", "-lholdfast-mpi", "-lholdfast", "-Wl,-rpath,"+dir)
		text, err := exec.Command(compiler, line...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	return out
}

// compileFortran is compile for Fortran, whose modules are compiled with the program; nil: there is no compiler.
func compileFortran(t *testing.T, dir string, sources ...string) map[string]string {
	t.Helper()
	if _, err := exec.LookPath("gfortran"); err != nil {
		return nil
	}
	out := map[string]string{}
	for _, l := range mpirun.Launchers() {
		modules := t.TempDir()
		out[l.Name] = filepath.Join(modules, l.Name)
		line := slices.Concat([]string{"-O1", "-fwrapv", "-J" + modules, "-o", out[l.Name], "../../lib/holdfast.F90",
			"../../lib/holdfast_mpi.F90"}, sources, []string{"-L" + dir, "-Wl,--no-as-needed", "-lholdfast-mpi",
			"-lholdfast", "-Wl,-rpath," + dir})
		text, err := exec.Command(strings.Replace(l.Compiler(), "mpicc", "mpif90", 1), line...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	return out
}

// start runs a program with checkpoints in a directory.
func start(t *testing.T, l mpirun.Launcher, dir, checkpoints string, ranks int, command ...string) (string, error) {
	t.Helper()
	j := l.Job(ranks, 2*time.Minute, command...)
	j.Env = append(yield.Env(), "HOLDFAST_BIN="+filepath.Join(dir, "holdfast"), "HOLDFAST_GLOBAL="+checkpoints,
		"HOLDFAST_JOB=layer", fmt.Sprintf("HOLDFAST_NODE_KEY=layer-%d-%d", os.Getpid(), time.Now().UnixNano()))
	return j.CombinedOutput(t.Context())
}

// TestRestartUnderOtherMPI: messages of a vector type that are in flight at the points of a program reach wildcard
// receives of the same program under the other MPI.
func TestRestartUnderOtherMPI(t *testing.T) {
	const ranks, steps, few, fewer = 3, 3000, 2000, 1000
	dir := installed(t)
	both := mpirun.Launchers()
	for _, language := range []struct {
		name    string
		program map[string]string
		steps   int
		want    []string
	}{
		{"C", compile(t, dir, "testdata/ring.c"), steps, ringSums(ranks, steps, func(n uint64) any { return n })},
		{"Fortran", compileFortran(t, dir, "testdata/ring.f90"), steps, ringSums(ranks, steps, func(n uint64) any {
			return int64(n)
		})},
		{"threads", compile(t, dir, "testdata/threads.c"), fewer, threadSums(ranks, fewer)},
		{"waiting threads", compile(t, dir, "testdata/waiting.c"), few / 4, waitingSums(ranks, few/4)},
		{"synchronous sends", compile(t, dir, "testdata/synchronous.c"), few / 200, synchronousSums(ranks, few/200)},
		{"protected requests", compile(t, dir, "testdata/posted.c"), few, postedSums(ranks, few)},
		{"protected requests in C++", compile(t, dir, "testdata/posted.cpp"), few, leftSums(ranks, few)},
		{"protected requests in Fortran", compileFortran(t, dir, "testdata/posted.f90"), few,
			ringSums(ranks, few, func(n uint64) any { return int64(n) })},
	} {
		for i, l := range both {
			t.Run(language.name+" "+l.Name, func(t *testing.T) {
				if language.program == nil {
					t.Skip("gfortran is not installed (make setup)")
				}
				checkpoints := t.TempDir()
				out, err := start(t, l, dir, checkpoints, ranks, language.program[l.Name],
					fmt.Sprint(language.steps))
				if err == nil || strings.Contains(out, "sum") || !strings.Contains(out, "holdfast: committed") {
					t.Fatalf("the first start was not stopped: %v\n%s", err, out)
				}
				other := both[1-i]
				out, err = start(t, other, dir, checkpoints, ranks, language.program[other.Name],
					fmt.Sprint(language.steps))
				if err != nil || strings.Contains(out, "begins at step 0\n") {
					t.Fatalf("the restart: %v\n%s", err, out)
				}
				if got := sums(out); !slices.Equal(got, language.want) {
					t.Errorf("got %v, want %v\n%s", got, language.want, out)
				}
			})
		}
	}
}

// TestRequestOfPython restarts a program of mpi4py whose receive is protected.
func TestRequestOfPython(t *testing.T) {
	const ranks, steps = 2, "1000"
	python := "/usr/bin/python3" // mpi4py is Debian's, for Open MPI
	if err := exec.Command(python, "-c", "import numpy, mpi4py").Run(); err != nil {
		t.Skip("no Python with NumPy and mpi4py is installed (make setup installs it)")
	}
	dir, checkpoints := installed(t), t.TempDir()
	layer := filepath.Join(dir, "libholdfast-mpi.so")
	modules, err := filepath.Abs("../../python")
	if err != nil {
		t.Fatal(err)
	}
	run := func() (string, error) {
		return start(t, mpirun.OpenMPI, dir, checkpoints, ranks, "env", preload(layer), "LD_LIBRARY_PATH="+dir,
			"HOLDFAST_LIBRARY="+filepath.Join(dir, "libholdfast.so"), "PYTHONPATH="+modules, python,
			"testdata/posted.py", steps)
	}
	out, err := run()
	if err == nil || strings.Contains(out, "sum") || !strings.Contains(out, "holdfast: committed") {
		t.Fatalf("the first start was not stopped: %v\n%s", err, out)
	}
	out, err = run()
	if err != nil || strings.Contains(out, "begins at step 0\n") {
		t.Fatalf("the restart: %v\n%s", err, out)
	}
	if got, want := sums(out), leftSums(ranks, 1000); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v\n%s", got, want, out)
	}
}

// TestRequestRefused: a checkpoint names the request that it cannot keep, and the program goes on.
func TestRequestRefused(t *testing.T) {
	dir := installed(t)
	program := compile(t, dir, "testdata/posted.c")
	for _, l := range mpirun.Launchers() {
		for how, want := range map[string]string{
			"outside": `"from left" (MPI_Irecv on world.1) receives into memory that is in no protected array`,
			"order":   `"from left" and a receive posted before it by MPI_Irecv on world.1 can get the same`,
		} {
			out, err := start(t, l, dir, t.TempDir(), 2, program[l.Name], "1", how)
			if err != nil || strings.Count(out, ": -7: ") != 2 || !strings.Contains(out, want) {
				t.Errorf("%s, %s: %v, want %s in\n%s", l.Name, how, err, want, out)
			}
		}
	}
}

// TestRequestsOverAtOnce: a checkpoint keeps requests that the library has given the same handle.
func TestRequestsOverAtOnce(t *testing.T) {
	dir := installed(t)
	program := compile(t, dir, "testdata/atonce.c")
	for _, l := range mpirun.Launchers() {
		out, err := start(t, l, dir, t.TempDir(), 2, program[l.Name])
		if err != nil || strings.Count(out, "right\n") != 2 {
			t.Errorf("%s: %v\n%s", l.Name, err, out)
		}
	}
}

// sums returns the lines of a program with results of the ranks, in order.
func sums(out string) (lines []string) {
	for line := range strings.Lines(out) {
		if strings.Contains(line, " sum ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	slices.Sort(lines)
	return lines
}

// ringSums returns what ring.c and ring.f90 compute.
func ringSums(ranks, steps int, as func(uint64) any) (lines []string) {
	for r := range ranks {
		left, sum := (r+ranks-1)%ranks, uint64(0)
		for step := range steps {
			for i := range 60 {
				v := -1
				if i%5 < 2 {
					v = left + i + step
				}
				sum = sum*31 + uint64(v+1)
			}
		}
		lines = append(lines, fmt.Sprintf("rank %d sum %d", r, as(sum)))
	}
	return lines
}

// postedSums returns what posted.c computes.
func postedSums(ranks, steps int) (lines []string) {
	const toRight, toLeft = 2, 3
	for r := range ranks {
		left, right, sum := (r+ranks-1)%ranks, (r+1)%ranks, uint64(0)
		for step := range steps {
			for i := range 60 {
				v := -1
				if i%5 < 2 {
					v = left*1000 + toRight*100 + i + step%50
				}
				sum = sum*31 + uint64(v+right*1000+toLeft*100+i+step%50+1)
			}
		}
		lines = append(lines, fmt.Sprintf("rank %d sum %d", r, sum))
	}
	return lines
}

// leftSums returns what posted.cpp and posted.py compute.
func leftSums(ranks, steps int) (lines []string) {
	for r := range ranks {
		left, sum := (r+ranks-1)%ranks, uint64(0)
		for step := range steps {
			sum = sum*31 + uint64(left+step)
		}
		lines = append(lines, fmt.Sprintf("rank %d sum %d", r, sum))
	}
	return lines
}

// synchronousSums returns what synchronous.c computes.
func synchronousSums(ranks, steps int) (lines []string) {
	for r := range ranks {
		left, sum := (r+ranks-1)%ranks, uint64(0)
		for step := range steps {
			for i := range 6 {
				sum = sum*31 + uint64(left*10000+step*10+i)
			}
		}
		lines = append(lines, fmt.Sprintf("rank %d sum %d", r, sum))
	}
	return lines
}

// threadSums returns what threads.c computes.
func threadSums(ranks, steps int) (lines []string) {
	for r := range ranks {
		left, sum := (r+ranks-1)%ranks, uint64(0)
		for step := range steps {
			for i := step % 5; i >= 0; i-- {
				sum = sum*31 + uint64(left*100000+step*10+i)
			}
		}
		lines = append(lines, fmt.Sprintf("rank %d sum %d %d", r, sum, sum))
	}
	return lines
}

// waitingSums returns what waiting.c computes.
func waitingSums(ranks, steps int) (lines []string) {
	const threads, service = 4, 7
	value := func(of, t, step int) uint64 { return uint64(of*100000 + t*10000 + step%9973) }
	for r := range ranks {
		line, served := fmt.Sprintf("rank %d sum", r), uint64(0)
		for t := range threads {
			sum := uint64(0)
			for step := range steps {
				sum = sum*31 + value((r+ranks-1)%ranks, t, step)
			}
			line += fmt.Sprint(" ", sum)
		}
		for step := range steps {
			served += value((r+1)%ranks, service, step)
		}
		lines = append(lines, fmt.Sprintf("%s served %d", line, served))
	}
	return lines
}

// TestRandomPrograms cuts programs that follow from a seed before random operations of random ranks, kills them, and
// restarts them under the other MPI. They check each message, record of a file and cell of a window. One job in three
// has its requests protected, and one in three is in Fortran.
func TestRandomPrograms(t *testing.T) {
	n := *programs
	if testing.Short() {
		n = min(n, 4)
	}
	dir := installed(t)
	r := newRandom(t, dir, *beside)
	fortran := compileFortran(t, dir, "-shared", "-fPIC", "testdata/random_beside.f90", "testdata/random.f90")
	var all sync.WaitGroup
	var next, cut, restarts atomic.Int64
	jobs := (n + *beside - 1) / *beside
	for range *atOnce {
		all.Go(func() {
			for k := next.Add(1) - 1; k < int64(jobs) && !t.Failed(); k = next.Add(1) - 1 {
				mine, name := r, "C"
				mine.protect = k%3 == 1
				if k%3 == 2 && fortran != nil {
					mine.program, name = fortran, "Fortran"
				}
				first := *seed + uint64(k)*uint64(*beside)
				restarted, err := mine.job(t, first, *cuts)
				if err != nil {
					t.Errorf("seeds from %d in %s, protected %t: %v", first, name, mine.protect, err)
				}
				restarts.Add(int64(restarted))
				cut.Add(int64(min(restarted, 1)))
			}
		})
	}
	all.Wait()
	t.Logf("%d programs, %d of them cut, %d restarts of %d jobs", jobs**beside, int(cut.Load())**beside,
		restarts.Load(), jobs)
	if cut.Load() < int64(jobs/2) {
		t.Errorf("of %d jobs only %d were cut", jobs, cut.Load())
	}
}

// A random is what jobs of random programs are started with: the driver, and the library that it runs several times.
type random struct {
	dir             string
	driver, program map[string]string
	beside          int
	protect         bool // their requests
}

func newRandom(t *testing.T, dir string, beside int) random {
	t.Helper()
	return random{dir: dir, driver: compile(t, dir, "testdata/side_by_side.c"),
		program: compile(t, dir, "testdata/random.c", "-shared", "-fPIC"), beside: beside}
}

// job runs programs with seeds from one on side by side, and returns how often it was restarted.
func (r random) job(t *testing.T, seed uint64, cuts int) (restarts int, err error) {
	t.Helper()
	const steps = 30
	rng := rand.New(rand.NewPCG(seed, 0))
	both, checkpoints, files := mpirun.Launchers(), t.TempDir(), t.TempDir()
	defer os.RemoveAll(checkpoints)
	defer os.RemoveAll(files)
	ranks, first := 2+rng.IntN(3), rng.IntN(2)
	parts := make([]int, cuts) // thousandths of the operations
	for i := range parts {
		parts[i] = rng.IntN(1000)
	}
	slices.Sort(parts)
	env := []string{"env"}
	if rng.IntN(2) == 0 { // what is put stays with its rank until a flush
		env = append(env, "OMPI_MCA_osc=pt2pt")
	}
	if r.protect {
		env = append(env, "PROTECT=1")
	}
	var said strings.Builder
	for i := range cuts + 1 {
		l, line := both[(first+i)%2], slices.Clone(env)
		if i < cuts {
			line = append(line, fmt.Sprintf("CUT=%d:%d", rng.IntN(ranks), parts[i]))
		}
		out, err := start(t, l, r.dir, checkpoints, ranks, append(line, r.driver[l.Name], r.program[l.Name],
			fmt.Sprint(seed), fmt.Sprint(r.beside), fmt.Sprint(steps), files)...)
		fmt.Fprintf(&said, "%d ranks, %s, %v: %v\n%s", ranks, l.Title, line, err, out)
		if wrong.MatchString(out) || i > 0 && strings.Contains(out, "this is a first start") {
			break // a rank kills itself when the checkpoint is durable
		}
		if err == nil && strings.Count(out, ": right,") == ranks {
			return i, nil
		}
		if !killed(err) {
			break
		}
	}
	return 0, fmt.Errorf("no right end:\n%s", said.String())
}

// wrong is what a program says that has found a mistake, or what a checkpoint says that has failed by an epoch of a
// window which was not open: those of locks, and of fences, whose newest operation is another; or by messages that are
// not counted. Some bugs have programs hang.
var wrong = regexp.MustCompile(`: operation |not sent through libholdfast-mpi|no end after |` +
	`pending at the checkpoint: .*MPI_(Put|Rput|Rget|Raccumulate) on`)

// killed reports whether a launcher ended as its ranks did, by SIGKILL.
func killed(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && (exit.ExitCode() == int(syscall.SIGKILL) ||
		exit.ExitCode() == 128+int(syscall.SIGKILL))
}

// TestMessageBehindReceived: a receive that had got its message at a checkpoint gets the same again under the other
// MPI, though a later one of its tag has been drained. A layer that saves both in the wrong order is found.
func TestMessageBehindReceived(t *testing.T) {
	dir := installed(t)
	program := compile(t, dir, "testdata/behind.c")
	const right = "got 1, then 2\n"
	for i, l := range mpirun.Launchers() {
		out, err := killedAndRestarted(t, dir, filepath.Join(dir, "libholdfast-mpi.so"), i, program, nil, 2)
		if err != nil || !strings.Contains(out, right) {
			t.Errorf("from %s: %v\n%s", l.Name, err, out)
		}
	}
	out, err := killedAndRestarted(t, dir, filepath.Join(withBugs(t), "libholdfast-mpi.so"), 0, program,
		[]string{"BUG=behind"}, 2)
	if err != nil || strings.Contains(out, right) {
		t.Errorf("the planted bug is not found: %v\n%s", err, out)
	}
}

// TestRandomProgramsFindBugs plants bugs in the layer: each is found by few programs, mostly. The day says which one is
// planted; with -bugs all are.
func TestRandomProgramsFindBugs(t *testing.T) {
	broken := withBugs(t)
	r := newRandom(t, broken, 4)
	bugs := []struct {
		name    string
		protect bool
	}{
		{"mail", false},    // messages in the wrong order
		{"flush", false},   // what was put under MPI_Win_lock_all is not in its window
		{"again", false},   // that lock is not known in a restarted program
		{"array", true},    // a request writes elsewhere in its array
		{"stride", true},   // one of elements is one of bytes
		{"fence", false},   // a checkpoint between two fences
		{"lock", false},    // or while a window is locked
		{"file", false},    // an operation on one is taken for complete; programs may hang by it
		{"within", false},  // what MPI calls for is taken for MPI's own; programs hang by it
		{"some", false},    // MPI_Waitsome puts a status in the place of another
		{"replace", false}, // MPI_Sendrecv_replace sends half, where it receives a drained message
	}
	const daily = 5 // of them; the others are found later
	for i, bug := range bugs {
		if !*allBugs && i != time.Now().YearDay()%daily {
			continue
		}
		t.Run(bug.name, func(t *testing.T) {
			t.Setenv("BUG", bug.name)
			r.protect = bug.protect
			for k := range uint64(100) { // how many it takes is up to the scheduler
				_, err := r.job(t, 4*k, 2)
				if err != nil && !wrong.MatchString(err.Error()) {
					t.Fatal(err)
				}
				if err != nil {
					t.Logf("found by job %d", k)
					return
				}
			}
			t.Error("no program has found it")
		})
	}
}
