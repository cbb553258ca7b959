package node

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/test/launch"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
	"github.com/holdfast-hpc/holdfast/test/yield"
)

// built are what the tests run, made once.
var built struct{ dir, holdfast, lib string }

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "holdfast-node")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built.dir, built.holdfast, built.lib = dir, filepath.Join(dir, "holdfast"), dir
	if err := launch.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// compile builds a program in C with the library.
func compile(t *testing.T, cc, source string, flags ...string) string {
	t.Helper()
	args := append([]string{"-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I../../lib", source}, flags...)
	if len(flags) == 0 {
		args = append(args, "-L"+built.lib, "-lholdfast", "-Wl,-rpath,"+built.lib)
	}
	return made(t, source, append([]string{cc}, append(args, "-lm")...)...)
}

// made runs a compiler's command line, to which it adds where the program of this source is to be, once for all
// tests. Each test gets a name of its own for it.
func made(t *testing.T, source string, line ...string) string {
	t.Helper()
	key := strings.Join(line, " ")
	file, ok := compiled[key]
	if !ok {
		file = filepath.Join(built.dir, fmt.Sprint("program-", len(compiled)))
		must(t, line[0], append(line[1:], "-o", file)...)
		compiled[key] = file
	}
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), filepath.Ext(source)))
	if err := os.Link(file, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// compiled are the programs by their command lines. The tests run one after the other.
var compiled = map[string]string{}

// environ returns the environ of a job: its directory for checkpoints, and its daemon.
func environ(t *testing.T, dir string) []string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return mpirun.Environ("HOLDFAST_BIN="+built.holdfast, "HOLDFAST_GLOBAL="+dir,
		fmt.Sprintf("HOLDFAST_NODE_KEY=test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", ".")),
		"HOLDFAST_CONTROL_PEER_TIMEOUT=30s")
}

// job is one start of the ranks of walk.
type job struct {
	t     *testing.T
	ranks []*exec.Cmd
	out   *testbuf.Buffer
	lines chan string
	done  chan struct{}
}

const ranks = 3

// launchJob starts the ranks, whose standard error the daemon holds too: wait waits for both.
func launchJob(t *testing.T, program string, env []string, args ...string) *job {
	t.Helper()
	return launchRanks(t, ranks, program, env, args...)
}

// launchRanks is launchJob with a number of ranks.
func launchRanks(t *testing.T, n int, program string, env []string, args ...string) *job {
	t.Helper()
	j := &job{t: t, out: &testbuf.Buffer{}, lines: make(chan string, 100), done: make(chan struct{})}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		c := exec.Command(program, args...)
		c.Env = append(slices.Clone(env), fmt.Sprint("PMI_RANK=", i), fmt.Sprint("PMI_SIZE=", n))
		c.Stdout, c.Stderr = w, w
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		j.ranks = append(j.ranks, c)
	}
	_ = w.Close() // the ranks have it
	go j.follow(r)
	t.Cleanup(func() {
		j.kill()
		j.wait()
	})
	return j
}

// follow reads what the job says until its end.
func (j *job) follow(r *os.File) {
	defer close(j.done)
	in := bufio.NewScanner(r)
	for in.Scan() {
		fmt.Fprintln(j.out, in.Text())
		select {
		case j.lines <- in.Text():
		default: // the lines are full
		}
	}
	_ = r.Close() // at its end
}

const limit = 10 * time.Minute

// walk takes long for that number of steps at some milliseconds, and is short without.
const long = "6000"

// slowly has walk take its milliseconds for each step until on is called: what a test does meanwhile comes before its
// end.
func slowly(t *testing.T) (variable string, on func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "slow")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	on = func() { _ = os.Remove(file) } // it may be done already
	t.Cleanup(on)
	return "SLOW=" + file, on
}

// await waits for a line with some words.
func (j *job) await(words string) {
	j.t.Helper()
	late := time.After(limit)
	for {
		select {
		case line := <-j.lines:
			if strings.Contains(line, words) {
				return
			}
		case <-j.done:
			if !strings.Contains(j.out.String(), words) {
				j.t.Fatalf("the job ended without %q:\n%s", words, j.out)
			}
			return
		case <-late:
			j.t.Fatalf("no %q after %v:\n%s", words, limit, j.out)
		}
	}
}

func (j *job) kill() {
	for _, c := range j.ranks {
		_ = c.Process.Kill() // it may have ended
	}
}

// wait waits for ranks and daemon, and returns the ranks' exit codes.
func (j *job) wait() (codes []int) {
	j.t.Helper()
	for _, c := range j.ranks {
		_ = c.Wait() // the code says it
		codes = append(codes, c.ProcessState.ExitCode())
	}
	select {
	case <-j.done:
	case <-time.After(limit):
		j.t.Fatalf("the daemon is still there %v after its ranks:\n%s", limit, j.out)
	}
	return codes
}

func (j *job) mustEnd() {
	j.t.Helper()
	if codes := j.wait(); slices.Max(codes) != 0 || slices.Min(codes) != 0 {
		j.t.Fatalf("exit codes %v, want 0\n%s", codes, j.out)
	}
}

// result returns what the ranks of walk have written.
func result(t *testing.T, name string) (all []byte) {
	t.Helper()
	for r := range ranks {
		b, err := os.ReadFile(fmt.Sprint(name, ".", r))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// launchUnder starts ranks of a program under an MPI. They give up their core while they wait.
func launchUnder(t *testing.T, l mpirun.Launcher, n int, env []string, command ...string) *job {
	t.Helper()
	return launchOne(t, append(slices.Clone(env), yield.Env()...),
		l.Command(nil, mpirun.Part{Ranks: n, Command: command}))
}

// launchOne starts a launcher.
func launchOne(t *testing.T, env, line []string) *job {
	t.Helper()
	j := &job{t: t, out: &testbuf.Buffer{}, lines: make(chan string, 100), done: make(chan struct{})}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, line[0], line[1:]...)
	c.Env, c.Stdout, c.Stderr = env, w, w
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // the launcher has it
	j.ranks = []*exec.Cmd{c}
	go j.follow(r)
	return j
}

// ranksOf returns the processes of a program of this test.
func ranksOf(t *testing.T, program string) (pids []int) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		var pid int
		if to, err := os.Readlink(l); err == nil && to == program {
			if _, err := fmt.Sscanf(l, "/proc/%d/exe", &pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	if len(pids) == 0 {
		t.Fatalf("no process runs %s", program)
	}
	return pids
}
