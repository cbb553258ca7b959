package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/test/launch"
	"github.com/holdfast-hpc/holdfast/test/yield"
)

// launchers are those of the MPIs under test.
var launchers = mpirun.Launchers()

// testprog is the path of the program under test, built once.
var testprog string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holdfast-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	testprog = filepath.Join(dir, "testprog")
	if out, err := exec.Command("go", "build", "-o", testprog, "./testprog").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build testprog: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// forEachMPI runs a test under every MPI that is installed.
func forEachMPI(t *testing.T, f func(t *testing.T, mpi int)) {
	for i, l := range launchers {
		t.Run(l.Name, func(t *testing.T) {
			if err := l.Available(); err != nil {
				t.Skip(err)
			}
			f(t, i)
		})
	}
}

// job is one start of the program.
type job struct {
	mpi      int
	ranks    int
	args     []string
	env      []string
	launcher []string              // more flags for mpirun
	local    func(rank int) string // directory of each rank; nil = one for all, from env

	cmd    *exec.Cmd
	pids   string
	out    launch.Output
	waited chan struct{}
	err    error
	cancel context.CancelFunc
}

// hard is the time after which a job is killed: a lost rank hangs, it does not
// fail.
const hard = 10 * time.Minute

// patient keeps ranks that busy-wait on few cores from taking each other for lost.
const patient = "HOLDFAST_CONTROL_PEER_TIMEOUT=30s"

// start launches the job in a process group of its own.
func (j *job) start(t *testing.T) {
	t.Helper()
	j.pids = t.TempDir()
	line := j.command()
	ctx, cancel := context.WithTimeout(t.Context(), hard)
	j.cancel = cancel
	j.cmd = exec.CommandContext(ctx, line[0], line[1:]...)
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	j.cmd.Cancel = func() error { return syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL) }
	j.cmd.WaitDelay = 5 * time.Second
	j.cmd.Env = append(mpirun.Environ(append(yield.Env(), "HOLDFAST_JOB=e2e", patient)...), j.env...)
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j.waited = make(chan struct{})
	go func() {
		j.err = j.cmd.Wait()
		cancel()
		close(j.waited)
	}()
	t.Cleanup(func() { j.kill(); <-j.waited })
}

// command returns the launcher's command line. Ranks with directories of their
// own are one program each.
func (j *job) command() []string {
	prog := append([]string{testprog, "-pids", j.pids}, j.args...)
	parts := []mpirun.Part{{Ranks: j.ranks, Command: prog}}
	if j.local != nil {
		parts = nil
		for r := range j.ranks {
			own := append([]string{"env", "HOLDFAST_LOCAL=" + j.local(r)}, prog...)
			parts = append(parts, mpirun.Part{Ranks: 1, Command: own})
		}
	}
	return launchers[j.mpi].Command(j.launcher, parts...)
}

func (j *job) output() string { return j.out.String() }

// wait returns the exit code.
func (j *job) wait() int {
	<-j.waited
	var exit *exec.ExitError
	if errors.As(j.err, &exit) {
		return exit.ExitCode()
	}
	if j.err != nil {
		return -1
	}
	return 0
}

func (j *job) running() bool {
	select {
	case <-j.waited:
		return false
	default:
		return true
	}
}

// kill ends everything the job has started.
func (j *job) kill() {
	if !j.running() {
		return
	}
	for r := range j.ranks { // ranks are in the launcher's group or in their own
		if pid := j.pid(r); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone already is as good
		}
	}
	j.cancel()
}

// pid returns the process number of a rank, 0 until it is known.
func (j *job) pid(rank int) int {
	b, err := os.ReadFile(filepath.Join(j.pids, strconv.Itoa(rank)))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(string(b))
	if err != nil {
		return 0
	}
	return n
}

// ready waits until all ranks have restored and are about to compute.
func (j *job) ready(t *testing.T) bool {
	t.Helper()
	return j.until(t, func() bool {
		for r := range j.ranks {
			if j.pid(r) == 0 {
				return false
			}
		}
		return true
	})
}

// until polls a condition of another process; it reports false when the job
// has ended first.
func (j *job) until(t *testing.T, cond func() bool) bool {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-j.waited:
			return cond()
		case <-tick.C:
		}
	}
	return true
}

func (j *job) signal(rank int, s syscall.Signal) {
	if pid := j.pid(rank); pid > 0 {
		_ = syscall.Kill(pid, s) // a rank that has just ended needs no signal
	}
}

var committed = regexp.MustCompile(`holdfast: committed".* epoch=(\d+) level=(\w+)`)

// committed lists the epochs that the log calls committed at a level.
func (j *job) committed(level string) []int {
	var out []int
	for _, m := range committed.FindAllStringSubmatch(j.output(), -1) {
		if m[2] == level {
			n, _ := strconv.Atoi(m[1]) // digits by the pattern
			out = append(out, n)
		}
	}
	return out
}

// dirs are the directories of one job.
type dirs struct{ local, global, result string }

func newDirs(t *testing.T) dirs {
	t.Helper()
	base := t.TempDir()
	d := dirs{filepath.Join(base, "local"), filepath.Join(base, "global"), filepath.Join(base, "result")}
	for _, p := range []string{d.local, d.global} {
		if err := os.Mkdir(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d dirs) env(more ...string) []string {
	return append([]string{"HOLDFAST_LOCAL=" + d.local, "HOLDFAST_GLOBAL=" + d.global, "HOLDFAST_KEEP=1000"}, more...)
}

func (d dirs) read(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(d.result)
	if err != nil {
		t.Fatalf("no result: %v", err)
	}
	return strings.TrimSpace(string(b))
}

var (
	uncutMu sync.Mutex
	uncut   = map[string]string{}
)

// uncutResult runs a program once without disturbing it.
func uncutResult(t *testing.T, mpi, ranks int, args []string) string {
	t.Helper()
	key := fmt.Sprint(ranks, args)
	uncutMu.Lock()
	defer uncutMu.Unlock()
	if r := uncut[key]; r != "" {
		return r // the same under every MPI, which the tests show
	}
	d := newDirs(t)
	j := &job{mpi: mpi, ranks: ranks, args: append(args, "-pace", "0", "-result", d.result), env: d.env()}
	j.start(t)
	if code := j.wait(); code != 0 {
		t.Fatalf("undisturbed run: exit %d\n%s", code, j.output())
	}
	uncut[key] = d.read(t)
	return uncut[key]
}
