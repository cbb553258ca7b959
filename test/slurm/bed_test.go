package slurm

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/test/cluster"
	"github.com/holdfast-hpc/holdfast/test/yield"
)

// mpis are the pairs of MPI library and srun plugin that work. With the fence that
// Slurm's plugin would take itself one of twenty starts of Open MPI hangs on a busy
// machine (test/cluster/README.md); holdfast run sees to that by itself.
var mpis = []struct {
	name, plugin string
	env          []string // of the ranks
}{
	{"openmpi", "pmix", append(yields[:2:2], "SLURM_PMIX_DIRECT_CONN=false")},
	{"mpich", "pmi2", yields[1:]},
}

// yields let the ranks of Open MPI and MPICH give way to each other.
var yields = []string{yield.OpenMPI, yield.Preload(cluster.Shared + "/bin/" + yieldFile)}

// yieldFile is the library that both need, beside the programs.
const yieldFile = "yield.so"

// patient is for jobs in which no node dies: ranks that busy-wait on few cores
// starve each other for seconds.
const patient = "HOLDFAST_CONTROL_PEER_TIMEOUT=20s"

// hasty is for all others: deaths by silence and dead nodes are noticed soon.
const hasty = "HOLDFAST_CONTROL_PEER_TIMEOUT=1.5s"

// hard is the time after which a job counts as hung.
const hard = 10 * time.Minute

// TestMain lets so many tests run at a time, each with a cluster of its own: they wait for
// Slurm most of the time.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil { // -parallel goes first
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// bed is a cluster with the programs installed.
type bed struct {
	*cluster.Cluster
	bin string // directory of the programs as the nodes see it
}

const module = "github.com/holdfast-hpc/holdfast/"

func newBed(t *testing.T, nodes int, env ...string) *bed {
	t.Helper()
	c := cluster.Up(t, nodes, append([]string{hasty}, env...)...)
	b := &bed{c, c.Install(t, module+"test/e2e/testprog", module+"cmd/holdfast")}
	if err := yield.Build(filepath.Join(c.PFS(), "bin", yieldFile)); err != nil {
		t.Fatal(err)
	}
	return b
}

// dir makes a directory in the shared one; it returns its paths on the nodes
// and here.
func (b *bed) dir(t *testing.T, name string) (there, here string) {
	t.Helper()
	here = filepath.Join(b.PFS(), name)
	if err := os.MkdirAll(here, 0o755); err != nil {
		t.Fatal(err)
	}
	return cluster.Shared + "/" + name, here
}

// task is a command on the head that runs in the background.
type task struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // read after done

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

// start runs a command on the head with more variables in its environment.
func (b *bed) start(t *testing.T, env []string, args ...string) *task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hard)
	k := &task{cmd: b.Command(ctx, append(append([]string{"env"}, env...), args...)...), done: make(chan struct{})}
	k.cmd.Stdout, k.cmd.Stderr = k, k
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		k.err = k.cmd.Wait()
		cancel()
		close(k.done)
	}()
	t.Cleanup(func() { cancel(); <-k.done })
	return k
}

// Write collects the output.
func (k *task) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.out.Write(p)
}

func (k *task) output() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.out.String()
}

// wait returns the exit code.
func (k *task) wait() int {
	<-k.done
	var exit *exec.ExitError
	if errors.As(k.err, &exit) {
		return exit.ExitCode()
	}
	if k.err != nil {
		return -1
	}
	return 0
}

// until waits for a condition; the test ends if the task does so first.
func (k *task) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	poll(t, what, k.done, k.output, holds)
}

// says waits until the output matches.
func (k *task) says(t *testing.T, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	k.until(t, pattern, func() bool { return re.MatchString(k.output()) })
}

// poll looks at a condition of other processes until it holds.
func poll(t *testing.T, what string, done <-chan struct{}, output func() string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(hard)
	defer end.Stop()
	for !holds() {
		select {
		case <-done:
			if !holds() {
				t.Fatalf("ended before: %s\n%s", what, output())
			}
			return
		case <-end.C:
			t.Fatalf("waited %v for: %s\n%s", hard, what, output())
		case <-tick.C:
		}
	}
}

// read returns a result file.
func read(t *testing.T, file, output string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("no result: %v\n%s", err, output)
	}
	return strings.TrimSpace(string(b))
}

var committed = regexp.MustCompile(`holdfast: committed"?.* epoch=(\d+) level=(\w+)`)

// newest returns the highest epoch that the log calls committed at a level.
func newest(output, level string) int {
	last := 0
	for _, m := range committed.FindAllStringSubmatch(output, -1) {
		if m[2] == level {
			n, _ := strconv.Atoi(m[1]) // digits by the pattern
			last = max(last, n)
		}
	}
	return last
}

// srunLine returns the command line that starts n ranks of the program under test. The
// preload that the test bed has for MPICH is not used: Holdfast programs have to
// end without it.
func (b *bed) srunLine(mpi, n int, flags []string, program ...string) []string {
	return append(append(b.srun(mpi, n, flags), b.bin+"/testprog"), program...)
}

// srun returns the part of it before the program.
func (b *bed) srun(mpi, n int, flags []string) []string {
	m := mpis[mpi]
	args := []string{"srun", "--mpi=" + m.plugin, "-n", fmt.Sprint(n), "--export=" +
		strings.Join(append([]string{"ALL"}, m.env...), ",")}
	return append(args, flags...)
}
