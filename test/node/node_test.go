package node

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

var (
	kills    = flag.Int("kills", 5, "how many times TestKilledAnywhere kills a rank")
	killSeed = flag.Uint64("kill-seed", 1, "seed of the moments")

	replies      = flag.Int("replies", 10000, "how many connections TestSanitized has with a daemon that says anything")
	instructions = flag.Int("instructions", 4, "before how many of them TestKilledAtInstruction kills a rank")
)

// uncut returns the result of walk without a checkpoint.
func uncut(t *testing.T, program string) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "want")
	launchJob(t, program, environ(t, t.TempDir()), long, name, "0").mustEnd()
	return result(t, name)
}

// TestSignalKillRestart sends USR1 to a rank, kills all once the checkpoint is durable, and
// restarts them.
func TestSignalKillRestart(t *testing.T) {
	walk := compile(t, "gcc", "testdata/walk.c")
	want := uncut(t, walk)
	dir := t.TempDir()
	env, name := environ(t, filepath.Join(dir, "ckpt")), filepath.Join(dir, "got")
	j := launchJob(t, walk, env, long, name, "50")
	j.await("begins at step 0")
	if err := j.ranks[1].Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	j.await("committed")
	j.kill()
	j.wait()
	again := launchJob(t, walk, env, long, name, "0")
	again.mustEnd()
	if strings.Contains(again.out.String(), "begins at step 0") {
		t.Fatalf("the restart began at the beginning:\n%s", again.out)
	}
	if !bytes.Equal(result(t, name), want) {
		t.Error("the restarted program computed something else")
	}
}

// TestKilledAnywhere kills one rank at random moments, some of them within a checkpoint. The
// daemon ends by itself, whatever it leaves restarts, and the last start ends with the right bytes.
func TestKilledAnywhere(t *testing.T) {
	steps := fmt.Sprint(1500 * *kills) // more than the starts that are killed get to
	walk := compile(t, "gcc", "testdata/walk.c")
	dir := t.TempDir()
	launchJob(t, walk, environ(t, t.TempDir()), steps, filepath.Join(dir, "want"), "0").mustEnd()
	rng := rand.New(rand.NewPCG(*killSeed, 0))
	t.Logf("seed %d", *killSeed)
	env, name := environ(t, filepath.Join(dir, "ckpt")), filepath.Join(dir, "got")
	env = append(env, "HOLDFAST_INTERVAL=1ms", "HOLDFAST_LOCAL="+t.TempDir())
	last := 0 // step of the newest start
	for i := range *kills {
		j := launchJob(t, walk, env, steps, name, "2")
		j.await("begins at step")
		if i%2 == 0 { // of an epoch that two starts in a row got no further than there would be no third
			j.await("committed")
		}
		time.Sleep(time.Duration(rng.IntN(300_000)) * time.Microsecond) // the moment itself
		if err := j.ranks[rng.IntN(ranks)].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		codes, said := j.wait(), j.out.String()
		if !slices.Contains(codes, -1) && slices.Max(codes) > 0 {
			t.Fatalf("kill %d: exit codes %v\n%s", i, codes, said)
		}
		_, rest, _ := strings.Cut(said, "begins at step ")
		at := 0 // which may be that of the first epoch
		if _, err := fmt.Sscan(rest, &at); err != nil {
			t.Fatal(err)
		}
		if i > 0 && (at < last || !strings.Contains(said, "holdfast: restored")) {
			t.Fatalf("kill %d: begins at step %d, the start before it at %d: the epoch before the kill is lost:\n%s",
				i, at, last, said)
		}
		last = at
		if strings.Contains(said, "panic") || strings.Contains(said, "fatal error") {
			t.Fatalf("kill %d: the daemon crashed:\n%s", i, said)
		}
	}
	launchJob(t, walk, append(env, "HOLDFAST_INTERVAL=1h"), steps, name, "0").mustEnd()
	if !bytes.Equal(result(t, name), result(t, filepath.Join(dir, "want"))) {
		t.Error("the restarted program computed something else")
	}
}

// TestKilledAtInstruction kills one rank before a random instruction of those that it executes in hf_restore, in
// hf_checkpoint, or in hf_wait until the epoch is at global: restore, put, flush. The daemon ends by itself, the
// epoch before is there, and the last start ends with the right bytes. Of a system call that waits, such as that
// in hf_wait, the rank is killed before or after it.
func TestKilledAtInstruction(t *testing.T) {
	const total = "3000"
	walk, stepkill := compile(t, "gcc", "testdata/walk.c"), compile(t, "gcc", "testdata/stepkill.c")
	dir := t.TempDir()
	few := "CELLS=2000" // to be copied in few instructions
	env, name := environ(t, filepath.Join(dir, "ckpt")), filepath.Join(dir, "got")
	env = append(env, "HOLDFAST_LOCAL="+t.TempDir(), few)
	launchJob(t, walk, append(environ(t, t.TempDir()), few), total, filepath.Join(dir, "want"), "0").mustEnd()

	script := filepath.Join(dir, "last.sh") // the last rank runs under stepkill
	text := fmt.Sprintf("#!/bin/sh\n[ $PMI_RANK = %d ] || exec %[2]s \"$@\"\nTRAP=1 exec %[3]s $STEPS %[2]s \"$@\"\n",
		ranks-1, walk, stepkill)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	last := 0 // step of the newest start
	start := func(phase string, before int) (said string) {
		j := launchJob(t, script, append(env, fmt.Sprint("STEPS=", before)), total, name, "0", phase, "2")
		j.wait()
		said = j.out.String()
		if strings.Contains(said, "panic") || strings.Contains(said, "fatal error") {
			t.Fatalf("%s, before instruction %d: the daemon crashed:\n%s", phase, before, said)
		}
		_, rest, ok := strings.Cut(said, "begins at step ")
		if at := 0; ok { // else it was killed in hf_restore
			// After two crashes that follow its restore, an epoch is skipped.
			_, err := fmt.Sscan(rest, &at)
			if err != nil || at < last && (at == 0 || !strings.Contains(said, "skipped after at least 2 crashes")) {
				t.Fatalf("%s, before instruction %d: begins at step %d, the start before it at %d:\n%s",
					phase, before, at, last, said)
			}
			last = at
		}
		return said
	}
	phases, length := []string{"trap-checkpoint", "trap-wait", "trap-restore"}, map[string]int{}
	for _, phase := range phases {
		_, rest, _ := strings.Cut(start(phase, 1<<30), "stepkill: ")
		var n int
		if _, err := fmt.Sscan(rest, &n); err != nil || n == 0 {
			t.Fatalf("stepkill does not say how many instructions %s has: %q", phase, rest)
		}
		length[phase] = n
	}
	t.Logf("seed %d, instructions %v", *killSeed, length)
	if last == 0 {
		t.Fatal("no start has left an epoch")
	}
	rng := rand.New(rand.NewPCG(*killSeed, 1))
	for range *instructions {
		phase := phases[rng.IntN(len(phases))]
		start(phase, rng.IntN(length[phase]))
	}
	launchJob(t, walk, env, total, name, "0").mustEnd()
	if !bytes.Equal(result(t, name), result(t, filepath.Join(dir, "want"))) {
		t.Error("the restarted program computed something else")
	}
}

// TestCheckpointStop takes a checkpoint where the program asks for it, and stops it by a
// final one.
func TestCheckpointStop(t *testing.T) {
	walk := compile(t, "gcc", "testdata/walk.c")
	want := uncut(t, walk)
	dir := t.TempDir()
	env, name := environ(t, filepath.Join(dir, "ckpt")), filepath.Join(dir, "got")
	env = append(env, "HOLDFAST_LOCAL="+t.TempDir())
	j := launchJob(t, walk, env, long, name, "0", "checkpoint-at", "11")
	j.mustEnd()
	if n := strings.Count(j.out.String(), "is durable"); n != ranks {
		t.Fatalf("%d ranks had a durable checkpoint, want %d:\n%s", n, ranks, j.out)
	}
	if !bytes.Equal(result(t, name), want) {
		t.Error("a checkpoint changed the result")
	}
	j = launchJob(t, walk, env, long, name, "20", "stop-at", "20")
	j.await("begins at step 11")
	if codes := j.wait(); !slices.Equal(codes, []int{75, 75, 75}) {
		t.Fatalf("exit codes %v, want 75\n%s", codes, j.out)
	}
	j = launchJob(t, walk, env, long, name, "0")
	j.mustEnd()
	if s := j.out.String(); strings.Contains(s, "begins at step 11") || strings.Contains(s, "begins at step 0") {
		t.Errorf("the restart did not begin at the final checkpoint:\n%s", s)
	}
	if !bytes.Equal(result(t, name), want) {
		t.Error("the restarted program computed something else")
	}
}

// TestNamed takes checkpoints with names and versions, and restarts from them in the same
// process and in the next, whose ranks are killed in between.
func TestNamed(t *testing.T) {
	named := compile(t, "gcc", "testdata/named.c")
	dir := t.TempDir()
	env := append(environ(t, filepath.Join(dir, "ckpt")), "HOLDFAST_LOCAL="+t.TempDir())
	j := launchJob(t, named, env, "write", dir)
	for range ranks {
		j.await("has written")
	}
	j.kill()
	j.wait()
	if s := j.out.String(); strings.Contains(s, "named: ") || !strings.Contains(s, "what it writes there is lost") {
		t.Fatal(s)
	}
	j = launchJob(t, named, env, "read", dir)
	j.mustEnd()
	out, err := exec.Command(built.holdfast, "verify", filepath.Join(dir, "ckpt/name.main")).CombinedOutput()
	if err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
}

// TestPrograms are those that do what a library must bear: a handler of their own, children,
// an end without hf_finalize.
func TestPrograms(t *testing.T) {
	walk := compile(t, "gcc", "testdata/walk.c")
	t.Run("own handler", func(t *testing.T) {
		slow, on := slowly(t)
		env := append(environ(t, t.TempDir()), slow)
		j := launchJob(t, walk, env, long, filepath.Join(t.TempDir(), "got"), "20", "own-handler")
		j.await("begins at step 0")
		if err := j.ranks[2].Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		on()
		j.mustEnd()
		if s := j.out.String(); !strings.Contains(s, "handled 1") || strings.Contains(s, "committed") {
			t.Errorf("the program's own handler did not get its signal:\n%s", s)
		}
	})
	t.Run("handler in a library", func(t *testing.T) {
		for name, want := range map[string]string{"python3.11": "got 1", "vendor": "got 0"} {
			dir := t.TempDir()
			must(t, "gcc", "-shared", "-fPIC", "-DLIBRARY", "testdata/handler.c", "-I../../lib", "-o",
				filepath.Join(dir, "lib"+name+".so"))
			program := compile(t, "gcc", "testdata/handler.c", "-L"+dir, "-l"+name, "-Wl,-rpath,"+dir,
				"-L"+built.lib, "-lholdfast", "-Wl,-rpath,"+built.lib)
			j := launchOne(t, environ(t, t.TempDir()), []string{program})
			j.mustEnd()
			if s := j.out.String(); !strings.Contains(s, want) {
				t.Errorf("no %q of lib%s:\n%s", want, name, s)
			}
		}
	})
	t.Run("fork", func(t *testing.T) {
		launchJob(t, walk, environ(t, t.TempDir()), "10", filepath.Join(t.TempDir(), "got"), "0", "fork").mustEnd()
	})
	t.Run("traps SIGFPE", func(t *testing.T) {
		env := append(environ(t, t.TempDir()), "HOLDFAST_LOCAL="+t.TempDir())
		launchJob(t, walk, env, "30", filepath.Join(t.TempDir(), "got"), "0", "trap-fpe", "5").mustEnd()
	})
	t.Run("address space", func(t *testing.T) {
		// Too little for the daemon, which the program starts: the library says so, and no other process anything.
		for _, kib := range []int{60000, 1000000} {
			script := filepath.Join(t.TempDir(), "limited.sh")
			text := fmt.Sprintf("#!/bin/sh\nulimit -v %d\nexec %s \"$@\"\n", kib, walk)
			if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
			j := launchJob(t, script, environ(t, t.TempDir()), "10", filepath.Join(t.TempDir(), "got"), "0")
			codes, said := j.wait(), strings.TrimSpace(j.out.String())
			if !slices.Equal(codes, []int{3, 3, 3}) || strings.Count(said, "ulimit -v") != ranks ||
				strings.Count(said, "\n") != ranks-1 {
				t.Errorf("%d KiB: codes %v, want 3 and a line of each rank that names the limit:\n%s", kib, codes, said)
			}
		}
	})
	t.Run("dlclose", func(t *testing.T) {
		loads := compile(t, "gcc", "testdata/loads.c", "-ldl")
		env := append(environ(t, t.TempDir()), "HOLDFAST_LOCAL="+t.TempDir())
		j := launchJob(t, loads, env, filepath.Join(built.lib, "libholdfast.so"))
		j.mustEnd()
		if n := strings.Count(j.out.String(), "computes on"); n != ranks {
			t.Errorf("%d ranks went on after dlclose, want %d:\n%s", n, ranks, j.out)
		}
	})
	t.Run("no finalize", func(t *testing.T) {
		j := launchJob(t, walk, environ(t, t.TempDir()), "10", filepath.Join(t.TempDir(), "got"), "0", "no-finalize")
		j.wait()
		if s := j.out.String(); !strings.Contains(s, "without hf_finalize") {
			t.Errorf("nobody says that the ranks did not finalize:\n%s", s)
		}
	})
	t.Run("no daemon", func(t *testing.T) {
		env := append(environ(t, t.TempDir()), "HOLDFAST_BIN=/nonexistent/holdfast")
		j := launchJob(t, walk, env, "10", filepath.Join(t.TempDir(), "got"), "0")
		codes := j.wait()
		if !slices.Equal(codes, []int{3, 3, 3}) || !strings.Contains(j.out.String(), "HOLDFAST_BIN") {
			t.Errorf("codes %v, want 3 and a remedy:\n%s", codes, j.out)
		}
	})
	t.Run("no directory", func(t *testing.T) {
		env := append(environ(t, t.TempDir()), "HOLDFAST_GLOBAL=")
		j := launchJob(t, walk, env, "10", filepath.Join(t.TempDir(), "got"), "0")
		codes := j.wait()
		if !slices.Equal(codes, []int{3, 3, 3}) || !strings.Contains(j.out.String(), "HOLDFAST_LOCAL") {
			t.Errorf("codes %v, want 3 and a remedy:\n%s", codes, j.out)
		}
	})
}

// TestSanitized runs the library with sanitizers and under valgrind.
func TestSanitized(t *testing.T) {
	sources, err := filepath.Glob("../../lib/[sc]*/*.c") // src, common
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	dir := t.TempDir()
	sanitized := []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread"}
	library := filepath.Join(dir, "library.o") // once for the programs below
	must(t, "gcc", slices.Concat([]string{"-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I../../lib", "-r",
		"-o", library}, sanitized, sources)...)
	sanitized = append(sanitized, library)
	run := func(t *testing.T, program, form string) {
		env := append(environ(t, filepath.Join(dir, form)), "HOLDFAST_LOCAL="+t.TempDir())
		j := launchJob(t, program, env, "20", filepath.Join(dir, "got"), "0",
			"checkpoint-at", "7")
		j.mustEnd()
		if s := j.out.String(); strings.Contains(s, "Sanitizer") || strings.Contains(s, "runtime error") {
			t.Errorf("%s", s)
		}
	}
	t.Run("address, undefined", func(t *testing.T) {
		run(t, compile(t, "gcc", "testdata/walk.c", sanitized...), "asan")
	})
	t.Run("shadow", func(t *testing.T) {
		shadow := compile(t, "gcc", "testdata/shadow.c", append(sanitized, "-Wno-strict-prototypes")...)
		for _, mode := range []string{"late", "second", "again"} {
			t.Run(mode, func(t *testing.T) {
				env := append(fakeGPU(t, "cuda"), "ASAN_OPTIONS=detect_leaks=0") // of the driver
				twice(t, env, []string{shadow, "cuda", "300000", mode}, "shadow: killed", "shadow: the same")
			})
		}
	})
	t.Run("replies", func(t *testing.T) {
		program := compile(t, "gcc", "testdata/replies.c", append(sanitized, "-I../../lib/src")...)
		t.Log(must(t, program, fmt.Sprint(*replies), fmt.Sprint(*killSeed), t.TempDir()))
	})
	t.Run("valgrind", func(t *testing.T) {
		valgrind, err := exec.LookPath("valgrind")
		if err != nil {
			t.Skip("valgrind is not installed (make setup installs it)")
		}
		walk := compile(t, "gcc", "testdata/walk.c")
		script := filepath.Join(dir, "walk.sh")
		text := fmt.Sprintf("#!/bin/sh\n[ $PMI_RANK = 0 ] || exec %[2]s \"$@\"\n"+
			"exec %[1]s -q --error-exitcode=9 --leak-check=full %[2]s \"$@\"\n", valgrind, walk)
		if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		run(t, script, "valgrind")
	})
}

// TestSymbols makes sure that the library needs nothing but libc, and exports what its header has.
func TestSymbols(t *testing.T) {
	lib := filepath.Join(built.lib, "libholdfast.so")
	output := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	for _, line := range strings.Split(strings.TrimSpace(output("ldd", lib)), "\n") {
		known := func(name string) bool { return strings.Contains(line, name) }
		if !slices.ContainsFunc([]string{"libc.so", "vdso", "ld-linux"}, known) {
			t.Errorf("the library needs %s", strings.TrimSpace(line))
		}
	}
	for _, word := range []string{" MPI_", " PMPI_", " cu", " hip", " cl"} {
		for _, line := range strings.Split(output("nm", "-D", lib), "\n") {
			if strings.Contains(line, word) && !strings.Contains(line, " clo") {
				t.Errorf("the library has %s", line)
			}
		}
	}
	header, err := os.ReadFile("../../lib/holdfast.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(output("nm", "-D", "--defined-only", lib)), "\n") {
		name, _, _ := strings.Cut(line[strings.LastIndexByte(line, ' ')+1:], "@")
		if name != "HOLDFAST_0" && !strings.Contains(string(header), name+"(") {
			t.Errorf("the library exports %s, which is not in its header", name)
		}
	}
}

// TestOtherMPI is the promise of the whole: a program in C under one MPI is checkpointed by a
// signal, killed, and restarted under the other, with another number of ranks, with the same bytes.
func TestOtherMPI(t *testing.T) {
	all := mpirun.Launchers()
	heat := make([]string, len(all))
	for i, l := range all {
		if err := l.Available(); err != nil {
			t.Skip(err)
		}
		heat[i] = compile(t, l.Compiler(), "../../examples/heat-c/heat.c", "-Wno-unused-function",
			filepath.Join(built.lib, "libholdfast.a"))
	}
	dir := t.TempDir()
	start := func(t *testing.T, i, ranks int, env []string, args ...string) *job {
		t.Helper()
		return launchUnder(t, all[i], ranks, env, append([]string{heat[i]}, args...)...)
	}
	want := filepath.Join(dir, "want")
	start(t, 0, 1, environ(t, filepath.Join(dir, "uncut")), "48", "80", want).mustEnd()
	for i := range all {
		t.Run(all[i].Name+" first", func(t *testing.T) {
			env, got := environ(t, filepath.Join(dir, all[i].Name)), filepath.Join(dir, all[i].Name+".got")
			j := start(t, i, 4-i, env, "48", "80", got, "500")
			j.await("heat: begins at step 0")
			pids := ranksOf(t, heat[i])
			if err := syscall.Kill(pids[len(pids)-1], syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			j.await("committed")
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL) // the launcher ends the others
			}
			j.wait()
			again := start(t, 1-i, 2+2*i, env, "48", "80", got)
			again.mustEnd()
			if strings.Contains(again.out.String(), "begins at step 0") {
				t.Fatalf("the restart began at the beginning:\n%s", again.out)
			}
			a, err := os.ReadFile(want)
			b, berr := os.ReadFile(got)
			if err != nil || berr != nil || !bytes.Equal(a, b) {
				t.Errorf("the restarted program computed something else (%v)", errors.Join(err, berr))
			}
		})
	}
}

// TestLogLevel: HOLDFAST_LOG=warn leaves the program's own lines and why it cannot begin, and no line of a job that is
// well.
func TestLogLevel(t *testing.T) {
	global := compile(t, "gcc", "testdata/global.c", "-L"+built.lib, "-lholdfast", "-Wl,-rpath,"+built.lib, "-ldl")
	dir := filepath.Join(t.TempDir(), "global")
	env := append(environ(t, dir), "HOLDFAST_LOG=warn")
	for range 2 { // a first start, and a restart
		j := launchRanks(t, 2, global, env, "100", "stop-at", "2")
		j.mustEnd()
		if s := j.out.String(); strings.Contains(s, "INFO") {
			t.Errorf("the log has lines that are no warning:\n%s", s)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	j := launchRanks(t, 2, global, env, "100")
	j.wait()
	if s := j.out.String(); strings.Count(s, "ERROR holdfast node: cannot open the checkpoints") != 1 {
		t.Errorf("the log does not say once why the program cannot begin:\n%s", s)
	}
}
