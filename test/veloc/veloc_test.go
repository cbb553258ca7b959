package veloc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/test/launch"
	"github.com/holdfast-hpc/holdfast/test/yield"
)

// built are what the tests run, made once.
var built struct{ dir, holdfast, lib string }

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holdfast-veloc")
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

// compile builds a program for an MPI as a user does, or for none.
func compile(t *testing.T, mpi, source string) string {
	t.Helper()
	cc := []string{"gcc"}
	if strings.HasSuffix(source, ".cpp") {
		cc = []string{"mpicxx." + mpi, "-std=c++17"}
	} else if mpi != "" {
		cc = []string{"mpicc." + mpi}
	}
	out := filepath.Join(built.dir, mpi+"-"+strings.TrimSuffix(source, filepath.Ext(source)))
	if _, err := os.Stat(out); err == nil {
		return out
	}
	args := append(cc, "-O1", "-Wall", "-I../../lib/veloc/include", "-I../../lib/veloc", "testdata/"+source, "-o", out,
		"-L"+built.lib, "-lveloc-client", "-Wl,-rpath,"+built.lib)
	if text, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, text)
	}
	return out
}

// place is where a program's checkpoints go, and its configuration.
type place struct{ scratch, persistent, config string }

func newPlace(t *testing.T, lines ...string) place {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { awaitDaemons(t) })
	p := place{filepath.Join(dir, "scratch"), filepath.Join(dir, "persistent"), filepath.Join(dir, "veloc.cfg")}
	all := append([]string{"# made by a test", "scratch = " + p.scratch, "persistent = " + p.persistent}, lines...)
	if err := os.WriteFile(p.config, []byte(strings.Join(all, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

const (
	ranks = 3
	limit = 10 * time.Minute
)

// run runs a program on ranks of an MPI, or by itself, and waits until no process holds its output.
func run(t *testing.T, mpi string, n int, command ...string) (out string, code int) {
	t.Helper()
	for _, l := range mpirun.Launchers() {
		if l.Name == mpi {
			if err := l.Available(); err != nil {
				t.Skip(err)
			}
			command = l.Yielding().Command(nil, mpirun.Part{Ranks: n, Command: command})
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Env = mpirun.Environ("HOLDFAST_BIN=" + built.holdfast)
	if mpi != "" {
		c.Env = append(c.Env, yield.Env()...)
	}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = limit // for the daemon, which is there longer
	text, err := c.CombinedOutput()
	if ctx.Err() != nil || errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("%v: does not end (%v)\n%s", command, err, text)
	}
	return string(text), c.ProcessState.ExitCode()
}

// awaitDaemons returns when no node daemon of these tests is there. One that writes what it has may stay longer than
// the launcher, which holds its output where it passes that of the ranks on.
func awaitDaemons(t *testing.T) {
	t.Helper()
	isDaemon := func(exe string) bool {
		file, err := os.Readlink(exe)
		return err == nil && file == built.holdfast
	}
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		all, err := filepath.Glob("/proc/[0-9]*/exe")
		if err != nil || len(all) == 0 {
			t.Fatalf("no processes are seen: %v", err)
		}
		if !slices.ContainsFunc(all, isDaemon) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a node daemon has not ended within %v", limit)
		}
	}
}

// mustRun runs a program that ends well.
func mustRun(t *testing.T, mpi string, n int, command ...string) string {
	t.Helper()
	out, code := run(t, mpi, n, command...)
	if code != 0 {
		t.Fatalf("%v: exit code %d\n%s", command, code, out)
	}
	return out
}

func mustSay(t *testing.T, out, words string) {
	t.Helper()
	if !strings.Contains(out, words) {
		t.Fatalf("nobody says %q:\n%s", words, out)
	}
}

// heat returns the command of a run of heat, and a function that reads its result.
func heat(t *testing.T, mpi string, p place, form string, option ...string) (command []string, result func() []byte) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "result")
	command = append([]string{compile(t, mpi, "heat.c"), p.config, form, "100", name}, option...)
	return command, func() (all []byte) {
		for r := range ranks {
			b, err := os.ReadFile(fmt.Sprint(name, ".", r))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
		return all
	}
}

// uncut returns what heat computes without being stopped.
func uncut(t *testing.T) []byte {
	t.Helper()
	whole.Do(func() { whole.result = runUncut(t) })
	return whole.result
}

var whole struct {
	sync.Once
	result []byte
}

func runUncut(t *testing.T) []byte {
	t.Helper()
	command, result := heat(t, "openmpi", newPlace(t, "mode = async"), "mem")
	mustSay(t, mustRun(t, "openmpi", ranks, command...), "heat: begins at step 0")
	return result()
}

// TestHeat ends a program in the middle, takes the scratch directory away in half of the cases, and restarts
// it under the other MPI.
func TestHeat(t *testing.T) {
	want := uncut(t)
	cases := []struct {
		form, mode, first, second, end, last string
		lose                                 bool
	}{
		{"mem", "async", "openmpi", "mpich", "abort-at", "drain", true},
		{"mem", "sync", "mpich", "openmpi", "kill-at", "", false},
		{"begin", "async", "mpich", "mpich", "abort-at", "leave", false},
		{"file", "async", "openmpi", "mpich", "abort-at", "", true},
		{"file", "sync", "mpich", "openmpi", "kill-at", "leave", false},
	}
	for _, c := range cases {
		t.Run(c.form+" "+c.mode+" "+c.end, func(t *testing.T) {
			p := newPlace(t, "mode = "+c.mode, "max_versions = 3")
			command, _ := heat(t, c.first, p, c.form, c.end, "55")
			out, code := run(t, c.first, ranks, command...)
			if code == 0 {
				t.Fatalf("the program was not ended:\n%s", out)
			}
			lost := regexp.MustCompile(`holdfast node: .* is lost \(noticed by`).FindAllString(out, -1)
			if len(lost) > 1 || strings.Contains(out, "malformed") {
				t.Errorf("%d lines tell of the loss, want one, and of nothing malformed:\n%s", len(lost), out)
			}
			if c.lose {
				awaitDaemons(t)
				if err := os.RemoveAll(p.scratch); err != nil {
					t.Fatal(err)
				}
			}
			command, result := heat(t, c.second, p, c.form, c.last)
			out = mustRun(t, c.second, ranks, command...)
			if !regexp.MustCompile(`heat: begins at step (40|50)\b`).MatchString(out) ||
				c.mode == "sync" && !strings.Contains(out, "step 50") {
				t.Errorf("it began elsewhere:\n%s", out)
			}
			if strings.Contains(out, "ERROR") {
				t.Errorf("an error is said of a run without one:\n%s", out)
			}
			if strings.Contains(out, "by the clock: the first") {
				t.Errorf("checkpoints by the clock are promised to a program without points:\n%s", out)
			}
			if !bytes.Equal(result(), want) {
				t.Error("the restarted program computed something else")
			}
		})
	}
}

// TestWithoutCheckpoints: where checkpoints are off, whatever the configuration has, a program computes the same.
func TestWithoutCheckpoints(t *testing.T) {
	want := uncut(t)
	t.Setenv("HOLDFAST_LOCAL", "off")
	t.Setenv("HOLDFAST_GLOBAL", "off")
	for _, form := range []string{"mem", "file"} {
		p := newPlace(t)
		command, result := heat(t, "mpich", p, form)
		for range 2 { // the second finds nothing
			out := mustRun(t, "mpich", ranks, command...)
			mustSay(t, out, "heat: begins at step 0")
			if strings.Count(out, "running without checkpoints: HOLDFAST_LOCAL=off, HOLDFAST_GLOBAL=off\n") != 1 {
				t.Errorf("it is not said once:\n%s", out)
			}
		}
		if !bytes.Equal(result(), want) {
			t.Errorf("%s: the program computed something else", form)
		}
		if left, err := filepath.Glob(filepath.Join(p.persistent, "name.*")); err != nil || len(left) > 0 {
			t.Errorf("%s: there are checkpoints: %v (%v)", form, left, err)
		}
	}
}

// TestNodes has ranks on nodes of their own, and checkpoints in their scratch directories alone, one of which is lost.
func TestNodes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("host names need root")
	}
	wrap, err := filepath.Abs("testdata/node.sh")
	if err != nil {
		t.Fatal(err)
	}
	want := uncut(t)
	start := func(mpi string, p place, option ...string) (out string, code int, result func() []byte) {
		command, result := heat(t, mpi, p, "mem", option...)
		out, code = run(t, mpi, ranks, append([]string{wrap, filepath.Dir(p.config)}, command...)...)
		return out, code, result
	}
	p := newPlace(t, "mode = sync", "persistent_interval = -1")
	out, code, _ := start("openmpi", p, "kill-at", "55")
	if code == 0 {
		t.Fatalf("the program was not ended:\n%s", out)
	}
	mustSay(t, out, "veloc: 3 nodes: each checkpoint gets redundancy parity")
	awaitDaemons(t)
	if err := os.RemoveAll(filepath.Join(filepath.Dir(p.config), "scratch-1")); err != nil {
		t.Fatal(err)
	}
	out, code, result := start("mpich", p)
	if code != 0 || !strings.Contains(out, "heat: begins at step 50") || !bytes.Equal(result(), want) {
		t.Fatalf("exit code %d, or it computed something else:\n%s", code, out)
	}
	p = newPlace(t, "mode = sync", "ec_interval = -1")
	out, _, _ = start("mpich", p, "kill-at", "15")
	parity, err := filepath.Glob(filepath.Join(filepath.Dir(p.config), "scratch-*", "name.heat", "parity"))
	if strings.Contains(out, "redundancy") || len(parity) > 0 || err != nil {
		t.Errorf("ec_interval -1 leaves %v (%v):\n%s", parity, err, out)
	}
}

// flip changes a byte in the middle of every shard of the newest epoch below each directory.
func flip(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		epochs, err := filepath.Glob(dir + "/name.heat/epoch-*")
		if err != nil || len(epochs) == 0 {
			t.Fatalf("no epoch below %s (%v)", dir, err)
		}
		shards, err := filepath.Glob(epochs[len(epochs)-1] + "/*.shard*")
		if err != nil || len(shards) == 0 {
			t.Fatalf("no shard in %s (%v)", epochs[len(epochs)-1], err)
		}
		for _, name := range shards {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 0x40
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDamage flips bytes of the newest checkpoint. One that is whole elsewhere comes from there. Else the restart
// fails, with nothing handed out, and the test for one finds the version before.
func TestDamage(t *testing.T) {
	begin := func(t *testing.T) place {
		p := newPlace(t, "mode = sync")
		command, _ := heat(t, "mpich", p, "mem", "abort-at", "55")
		if out, code := run(t, "mpich", ranks, command...); code == 0 {
			t.Fatalf("the program was not ended:\n%s", out)
		}
		return p
	}
	t.Run("scratch", func(t *testing.T) {
		p := begin(t)
		flip(t, p.scratch)
		command, result := heat(t, "mpich", p, "mem")
		out := mustRun(t, "mpich", ranks, command...)
		mustSay(t, out, "heat: begins at step 50")
		if !bytes.Equal(result(), uncut(t)) {
			t.Error("the restarted program computed something else")
		}
	})
	t.Run("everywhere", func(t *testing.T) {
		p := begin(t)
		flip(t, p.scratch, p.persistent)
		command, _ := heat(t, "openmpi", p, "mem", "restart-at", "50") // which keeps what is said before an abort
		out, code := run(t, "openmpi", ranks, command...)
		if code == 0 || strings.Contains(out, "heat: begins") {
			t.Fatalf("exit code %d: it went on from a damaged checkpoint:\n%s", code, out)
		}
		mustSay(t, out, "veloc: rank 0: restart_begin:")
		mustSay(t, out, "hash of the original bytes does not match")
		mustSay(t, out, "heat: restart test says 40")
		command, result := heat(t, "mpich", p, "mem")
		awaitDaemons(t)
		for verb, want := range map[string]string{"ls": `heat 5 .* committed `, "verify": `heat 5 .* damaged `} {
			// verify fails, with reason.
			out, _ := exec.Command(built.holdfast, verb, p.scratch, p.persistent).CombinedOutput()
			if !regexp.MustCompile(want).Match(out) {
				t.Errorf("holdfast %s has no %q:\n%s", verb, want, out)
			}
		}
		mustSay(t, mustRun(t, "mpich", ranks, command...), "heat: begins at step 40")
		if !bytes.Equal(result(), uncut(t)) {
			t.Error("the program that went back computed something else")
		}
	})
}

// TestCalls makes calls in the orders that programs use, right and wrong.
func TestCalls(t *testing.T) {
	for i, mpi := range []string{"openmpi", "mpich"} {
		t.Run(mpi, func(t *testing.T) {
			p := newPlace(t, "mode = "+[]string{"async", "sync"}[i])
			mustSay(t, mustRun(t, mpi, 2+i, compile(t, mpi, "calls.c"), p.config), "calls: all as they should be")
		})
	}
	t.Run("by itself", func(t *testing.T) {
		p := newPlace(t, "mode = async", "persistent_interval = -1", "ec_interval = -1")
		mustSay(t, mustRun(t, "", 1, compile(t, "mpich", "calls.c"), p.config), "calls: all as they should be")
		if names, err := os.ReadDir(p.persistent); err != nil || len(names) > 0 {
			t.Errorf("persistent has %v, %v; want nothing", names, err)
		}
	})
}

// TestClient uses the C++ class, and restores under the other MPI what it has saved.
func TestClient(t *testing.T) {
	p := newPlace(t, "mode = async")
	mustSay(t, mustRun(t, "openmpi", ranks, compile(t, "openmpi", "client.cpp"), p.config, "write"), "as it should be")
	mustSay(t, mustRun(t, "mpich", ranks, compile(t, "mpich", "client.cpp"), p.config, "read"), "as it should be")
}

// TestHalves has two communicators with checkpoints of the same name.
func TestHalves(t *testing.T) {
	p := newPlace(t, "mode = sync")
	mustRun(t, "mpich", 4, compile(t, "mpich", "halves.c"), p.config, "write")
	mustRun(t, "openmpi", 4, compile(t, "openmpi", "halves.c"), p.config, "read")
}

// TestSingle runs processes without MPI that share directories.
func TestSingle(t *testing.T) {
	p := newPlace(t, "mode = async")
	program := compile(t, "", "single.c")
	for i, want := range []string{"version 0, sum 5", "version 1, sum 10", "version 2, sum 15"} {
		mustSay(t, mustRun(t, "", 1, program, p.config, "3", "5", "1"), want)
		if i == 1 {
			mustSay(t, mustRun(t, "", 1, program, p.config, "4", "1", "1"), "single 4: version 0, sum 1")
		}
	}
}

// TestDevice saves memory of a driver for tests, which faults when the host touches it.
func TestDevice(t *testing.T) {
	dir, p := t.TempDir(), newPlace(t, "mode = async")
	out, err := exec.Command("gcc", "-shared", "-fPIC", "../node/testdata/fakegpu.c", "-o",
		filepath.Join(dir, "libcuda.so.1")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program := compile(t, "", "device.c")
	for _, want := range []string{"device: saved", "device: the same"} {
		mustSay(t, mustRun(t, "", 1, "env", "LD_LIBRARY_PATH="+dir, program, p.config, "1000000"), want)
	}
}

// TestCUDA does the same on a real device, where make test-gpu says that there is one.
func TestCUDA(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_GPU") == "" {
		t.Skip("it needs a CUDA device (make test-gpu)")
	}
	p, program := newPlace(t, "mode = async"), compile(t, "", "device.c")
	for _, want := range []string{"device: saved", "device: the same"} {
		mustSay(t, mustRun(t, "", 1, program, p.config, "100000000"), want)
	}
}

// TestVersions: max_versions bounds what each name keeps, beside the first checkpoint of a run, and scratch_versions
// how many of these are in scratch.
func TestVersions(t *testing.T) {
	for _, c := range []struct{ most, scratch, want int }{{0, 1, 6}, {3, 0, 3}, {1, 3, 2}} {
		p := newPlace(t, "mode = sync", fmt.Sprint("max_versions = ", c.most),
			fmt.Sprint("scratch_versions = ", c.scratch))
		mustRun(t, "", 1, compile(t, "", "single.c"), p.config, "1", "1", "6")
		count := func(dir string, want, more int) {
			found, err := filepath.Glob(dir + "/single-1/name.sum/epoch-*/manifest")
			if err != nil || len(found) < want || len(found) > want+more {
				t.Errorf("%+v: %d epochs in %s, want %d (%v)", c, len(found), dir, want, err)
			}
		}
		count(p.persistent, c.want, 1)
		if c.scratch > 0 {
			count(p.scratch, c.scratch, 0)
		}
	}
}

// TestConfig checks configurations by veloc-backend.
func TestConfig(t *testing.T) {
	dir := t.TempDir()
	good := "scratch=" + dir + "/s\nmode=async\n"
	cases := []struct {
		name, text, env, want string
		code                  int
	}{
		{"good", good + "persistent = " + dir + "/a/b ; made\n# x\n; y\n\nMax_Versions: 3\n", "", "", 0},
		{"misspelt", good + "max_version = 3\n", "", "cfg:3: max_version is no key; did you mean max_versions?", 2},
		{"unknown", good + "colour = red\n", "", "colour has no effect: there is no such key", 0},
		{"no number", good + "ec_interval = often\n", "", `ec_interval: "often" is no whole number`, 2},
		{"negative", good + "max_versions = -1\n", "", "max_versions is negative", 2},
		{"no mode", "scratch=" + dir + "\n", "", "has no mode: it is sync", 0},
		{"comments", good + "persistent = " + dir + "/c # shared\nmax_versions = 2 # newest\n", "", "", 0},
		{"other mode", "scratch=" + dir + "\nmode=fast\n", "", "mode is fast; set it to sync or async", 2},
		{"no scratch", "mode=sync\n", "", "has no scratch", 2},
		{"scratch is a file", "mode=sync\nscratch=" + dir + "/veloc.cfg\n", "", "is no directory", 2},
		{"section", "[veloc]\n" + good, "", "the keys are in no section", 2},
		{"no value", good + "chksum\n", "", `"chksum" has no value`, 2},
		{"no boolean", good + "chksum = maybe\n", "", `"maybe" is neither true nor false`, 2},
		{"daos", good + "daos_pool = x\n", "", "does not store in DAOS", 2},
		{"no effect", good + "axl_type = AXL_XFER_SYNC\nchksum = true\n", "", "axl_type has no effect", 0},
		{"other booleans", good + "chksum = on\nthreaded = 1\n", "", "threaded has no effect", 0},
		{"variable", "mode=sync\n", "VELOC_SCRATCH=" + dir + "/v", "", 0},
		{"variable comes first", good, "VELOC_MODE=slow", "mode is slow", 2},
		{"misspelt variable", good, "VELOC_SCRATC=x", "VELOC_SCRATC: scratc is no key; did you mean scratch?", 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(dir, "veloc.cfg")
			if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(filepath.Join(built.lib, "veloc-backend"), file, "--disable-ec")
			cmd.Env = append(os.Environ(), "VELOC_BIN=/opt/veloc/bin", c.env)
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.want) ||
				c.want == "" && len(out) > 0 {
				t.Errorf("exit code %d, %q (%v); want %d, %q", code, out, err, c.code, c.want)
			}
		})
	}
}

// TestInstalled builds programs with CMake and with what was installed, and runs the example in two parts. The command
// is found beside the library.
func TestInstalled(t *testing.T) {
	for _, tool := range []string{"cmake", "mpicxx.mpich"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v (make setup installs it)", err)
		}
	}
	dest, build := t.TempDir(), t.TempDir()
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	prefix := filepath.Join(dest, "opt", "holdfast")
	for _, line := range [][]string{
		{"make", "-s", "-C", "../..", "install", "BIN=" + filepath.Dir(built.holdfast), "LIB=" + built.lib,
			"PREFIX=/opt/holdfast", "DESTDIR=" + dest},
		{"cmake", "-S", "testdata/cmake", "-B", build, "-DEXAMPLES=" + examples, "-DCMAKE_PREFIX_PATH=" + prefix,
			"-DMPI_C_COMPILER=mpicc.mpich", "-DMPI_CXX_COMPILER=mpicxx.mpich"},
		{"cmake", "--build", build},
	} {
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", line, err, out)
		}
	}
	p := newPlace(t, "mode = async")
	for _, want := range []string{"heat: begins at step 0\n", "heat: begins at step 200\n"} {
		c := exec.Command(filepath.Join(build, "heat"), p.config, "250")
		c.Env = append(mpirun.Environ("HOLDFAST_BIN="), "PATH=/usr/bin:/bin")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		mustSay(t, string(out), want)
		mustSay(t, string(out), "heat: ends at step 250, heat 99")
	}
}

// TestRanks starts another number of ranks than the checkpoints have: it gets an error, and no rank hangs. MPICH's
// launcher may drop what ranks write before they abort.
func TestRanks(t *testing.T) {
	p := newPlace(t, "mode = sync")
	command, _ := heat(t, "openmpi", p, "mem")
	mustRun(t, "openmpi", ranks, command...)
	out, code := run(t, "openmpi", ranks-1, command...)
	if code == 0 || strings.Contains(out, "heat: begins") || !strings.Contains(out, "veloc: rank") {
		t.Errorf("exit code %d, want an error that says why:\n%s", code, out)
	}
}

// TestExported has programs without the header: the library finds their MPI in the process.
func TestExported(t *testing.T) {
	for _, mpi := range []string{"openmpi", "mpich"} {
		p := newPlace(t, "mode = sync")
		program := compile(t, mpi, "exported.c")
		mustSay(t, mustRun(t, mpi, ranks, program, p.config), "MPI_COMM_NULL")
		mustSay(t, mustRun(t, mpi, ranks, program, p.config), "restarted from version 1")
		if fortran, err := exec.LookPath("mpif90." + mpi); err == nil {
			out := filepath.Join(t.TempDir(), "exported")
			if text, err := exec.Command(fortran, "testdata/exported.f90", "-o", out, "-L"+built.lib, "-lveloc-client",
				"-Wl,-rpath,"+built.lib).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			mustRun(t, mpi, ranks, out, p.config)
		}
	}
}

// TestPorting: the calls that docs/PORTING.md names are those of the headers.
func TestPorting(t *testing.T) {
	var texts []string
	for _, name := range []string{"docs/PORTING.md", "lib/holdfast.h", "lib/holdfast_mpi.h",
		"lib/veloc/include/veloc.h"} {
		b, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	headers := strings.Join(texts[1:], "")
	named := regexp.MustCompile(`\b(hf_[a-z_]+|VELOC_[A-Z][a-z_]+)\b`).FindAllString(texts[0], -1)
	if len(named) < 40 {
		t.Errorf("PORTING.md names %d calls", len(named))
	}
	for _, call := range named {
		if !strings.Contains(headers, call+"(") {
			t.Errorf("PORTING.md names %s, which no header has", call)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^int (VELOC_\w+)\(`).FindAllStringSubmatch(texts[3], -1) {
		short := strings.TrimPrefix(m[1], "VELOC_") // or, in a list, what is after the last '_'
		last := short[strings.LastIndexByte(short, '_')+1:]
		if !strings.Contains(texts[0], short) && !strings.Contains(texts[0], last) {
			t.Errorf("PORTING.md does not say what becomes of %s", m[1])
		}
	}
}

// TestSymbols makes sure that the library has no MPI in it, and exports what its headers have.
func TestSymbols(t *testing.T) {
	out, err := exec.Command("nm", "-D", "-C", filepath.Join(built.lib, "libveloc-client.so")).CombinedOutput()
	if err != nil {
		t.Fatalf("nm: %v\n%s", err, out)
	}
	header, err := os.ReadFile("../../lib/veloc/include/veloc.h")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		name := strings.TrimSpace(line[min(len(line), 19):])
		name, _, _ = strings.Cut(name, "@")
		switch kind := line[17]; {
		case regexp.MustCompile(`^P?MPI_`).MatchString(name):
			t.Errorf("the library has %s", name)
		case kind == 'T' && !strings.HasPrefix(name, "veloc::") && !strings.Contains(string(header), name+"("):
			t.Errorf("the library exports %s, which is not in its header", name)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^int (VELOC_\w+)\(`).FindAllStringSubmatch(string(header), -1) {
		if !strings.Contains(string(out), "T "+m[1]+"@") {
			t.Errorf("the library has no %s", m[1])
		}
	}
}
