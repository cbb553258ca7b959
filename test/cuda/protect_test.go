package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/test/launch"
)

// protecting builds libholdfast and a program of it, and returns a way to start it with a directory of checkpoints.
func protecting(t *testing.T) func(dir string) (way, string) {
	t.Helper()
	dir := t.TempDir()
	if err := launch.Build(dir); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "protect")
	if err := run([]string{"cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-I../../lib/cuda/src",
		"-I../../lib", "testdata/protect.c", filepath.Join(built.dir, fake, "libcuda.so.1"), "-L" + dir, "-lholdfast",
		"-Wl,-rpath," + dir, "-o", program}); err != nil {
		t.Fatal(err)
	}
	return func(checkpoints string) (way, string) {
		return preloaded(library()).with("HOLDFAST_CUDA_ARENA=on", "HOLDFAST_BIN="+filepath.Join(dir, "holdfast"),
			"HOLDFAST_GLOBAL="+checkpoints,
			fmt.Sprintf("HOLDFAST_NODE_KEY=cuda-%d-%d", os.Getpid(), time.Now().UnixNano())), program
	}
}

const protectSteps = 6

// killed runs the program up to its checkpoint at a step.
func killed(t *testing.T, w way, program string, at int, mode string) ran {
	t.Helper()
	r, err := w.try(t, program, fmt.Sprint(protectSteps), fmt.Sprint(at), mode)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%s, killed at step %d: %v\n%s%s", mode, at, err, r.out, r.said)
	}
	return r
}

// sums returns what the program prints at its end, without the step that it began at.
func sums(out string) string {
	_, sums, _ := strings.Cut(out, "\n")
	return sums
}

// TestProtect: all device memory of a program is in its checkpoint by one call. It is killed after each step, and
// computes the same when it is started again.
func TestProtect(t *testing.T) {
	start := protecting(t)
	w, program := start(t.TempDir())
	want := w.run(t, program, fmt.Sprint(protectSteps), "0", "all")
	for at := 1; at <= protectSteps; at++ {
		w, program := start(t.TempDir())
		killed(t, w, program, at, "all")
		got := w.run(t, program, fmt.Sprint(protectSteps), "0", "all")
		if !strings.HasPrefix(got.out, fmt.Sprintf("begins at step %d\n", at)) || sums(got.out) != sums(want.out) {
			t.Errorf("killed at step %d: got\n%s\nwant\n%s\n%s", at, got.out, want.out, got.said)
		}
	}
	for _, mode := range []string{"outlived", "asleep"} {
		w, program := start(t.TempDir())
		killed(t, w, program, 3, mode)
		if got := w.run(t, program, fmt.Sprint(protectSteps), "0", mode); sums(got.out) != sums(want.out) {
			t.Errorf("%s: got\n%s\nwant\n%s\n%s", mode, got.out, want.out, got.said)
		}
	}
	w, program = start(t.TempDir()) // a variable of a module that could not be unloaded
	w = w.with("FAKE_FAILS=unload")
	killed(t, w, program, 3, "unload")
	if got := w.run(t, program, fmt.Sprint(protectSteps), "0", "unload"); sums(got.out) != sums(want.out) {
		t.Errorf("unload: got\n%s\nwant\n%s\n%s", got.out, want.out, got.said)
	}
	// The test sees what is not protected.
	w, program = start(t.TempDir())
	killed(t, w, program, 3, "without")
	if got, _ := w.try(t, program, fmt.Sprint(protectSteps), "0", "without"); sums(got.out) == sums(want.out) {
		t.Errorf("without hf_protect_cuda the program computes the same:\n%s", got.out)
	}
}

// TestProtectPast: a program whose CUDA calls the library does not see gets an error, and none if the library audits
// the dynamic linker.
func TestProtectPast(t *testing.T) {
	w, program := protecting(t)(t.TempDir())
	past := filepath.Join(t.TempDir(), "past")
	if err := run([]string{"cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I../../lib", "testdata/past.c",
		"-L" + filepath.Dir(program), "-lholdfast", "-Wl,-rpath," + filepath.Dir(program), "-o", past}); err != nil {
		t.Fatal(err)
	}
	w = w.with("DRIVER=" + filepath.Join(built.dir, fake, "libcuda.so.1"))
	if r := w.run(t, past); !strings.Contains(r.out, "past libholdfast-cuda") {
		t.Errorf("preloaded: %s%s", r.out, r.said)
	}
	if r := w.with("LD_PRELOAD=", "LD_AUDIT="+library()).run(t, past); r.out != "protected\n" {
		t.Errorf("as an auditor: %s%s", r.out, r.said)
	}
}

// TestProtectOtherMemory: a restarted program whose device memory is not what the checkpoint has gets an error that
// names the memory, and nothing is restored.
func TestProtectOtherMemory(t *testing.T) {
	start := protecting(t)
	for mode, want := range map[string]string{
		"swapped": `" in this program: 65536 bytes at 0x[0-9a-f]+ by cuMemAlloc, allocation 2, ` +
			`asked for by .*/protect\+0x`,
		"smaller": `has 24000 elements, the program 12000\n(.*\n)*"cuda.[0-9a-f]+" in this program: 12000 bytes at`,
		"moved": `restore "cuda.[0-9a-f]+" .*: the checkpoint has nothing of that name(.*\n)*"cuda.[0-9a-f]+" in ` +
			`this program: 4096 bytes at 0x[0-9a-f]+ by cuMemAllocAsync`,
		"shaped": `restore "cuda.array\d+.16x4x1.20.1.0.0" .*: the program does not protect it`,
		"late":   `restore "cuda.[0-9a-f]+" .*: the program does not protect it`,
	} {
		w, program := start(t.TempDir())
		killed(t, w, program, 3, mode)
		r, err := w.with("AGAIN=1").try(t, program, fmt.Sprint(protectSteps), "0", mode)
		if err == nil || !strings.HasPrefix(r.out, "hf_restore: ") || !regexp.MustCompile(want).MatchString(r.out) {
			t.Errorf("%s: %v\n%s%s", mode, err, r.out, r.said)
		}
	}
}

// TestProtectRefuses: what no checkpoint can hold is refused at once, by call, address, size and who asked. Without the
// arena that is all memory, as the driver chooses other addresses each time.
func TestProtectRefuses(t *testing.T) {
	start := protecting(t)
	for mode, want := range map[string]string{"managed": "cuMemAllocManaged",
		"heap": "cuCtxSetLimit for the heap of kernels", "twice": "two variables have one name",
		"graph": "4096 bytes", "node": "by a graph", "node2": "by a graph",
		"all": "set HOLDFAST_CUDA_ARENA=on"} {
		w, program := start(t.TempDir())
		if mode == "all" {
			w = w.with("HOLDFAST_CUDA_ARENA=off")
		}
		r, err := w.try(t, program, fmt.Sprint(protectSteps), "0", mode)
		if err == nil || !strings.Contains(r.out, want) || !strings.Contains(r.out, "protect+0x") {
			t.Errorf("%s: %v\n%s%s", mode, err, r.out, r.said)
		}
	}
}

// TestProtectTransport: memory of a library that moves messages is no part of a checkpoint, unless it holds the
// program's data. Then hf_protect_cuda refuses it: a restart would lack it.
func TestProtectTransport(t *testing.T) {
	start, dir := protecting(t), t.TempDir()
	for _, c := range []struct {
		file    string
		lent    bool
		refused bool
	}{
		{"libnccl.so.2", false, false}, {"libnccl.so.2", true, true}, {"libmpi.so.40", false, false},
		{"libnvshmem_host.so.3", false, true},
	} {
		library := filepath.Join(dir, c.file)
		if err := run([]string{"cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC",
			"-I../../lib/cuda/src", "testdata/transport.c", "-o", library}); err != nil {
			t.Fatal(err)
		}
		w, program := start(t.TempDir())
		w = w.with("TRANSPORT=" + library)
		if c.lent {
			w = w.with("LENT=1")
		}
		r, err := w.try(t, program, fmt.Sprint(protectSteps), "0", "lent")
		refused := err != nil && strings.Contains(r.out, "cannot hold: 4096 bytes") &&
			strings.Contains(r.out, library+"+0x")
		if refused != c.refused || (err != nil) != c.refused {
			t.Errorf("%+v: %v\n%s%s", c, err, r.out, r.said)
		}
	}
}

// TestPauseBesideCheckpoints: a program that takes checkpoints by the clock is paused, and moved to another GPU and
// back, at random moments, also while one is taken or is due, and killed behind its last one. Started again it computes
// what it computes undisturbed.
func TestPauseBesideCheckpoints(t *testing.T) {
	start := protecting(t)
	const steps, last = "2000", 1800
	w, program := start(t.TempDir())
	w = w.with("FAKE_DEVICES=2")
	want := w.run(t, program, steps, "0", "all")
	dir := t.TempDir()
	w, program = start(dir)
	w = w.with("FAKE_DEVICES=2")
	r := w.with("HOLDFAST_CUDA_PAUSE=on", "HOLDFAST_INTERVAL=20ms", "FAKE_USAGE="+filepath.Join(dir, "usage")).
		start(t, program, steps, fmt.Sprint(last), "all")
	for pauses := range 8 {
		time.Sleep(time.Duration(rand.IntN(25)) * time.Millisecond)
		if pauses%2 == 1 {
			if err := moved(t, fmt.Sprint(pauses/2%2), r); err != nil {
				t.Fatalf("move %d: %v\n%s", pauses, err, r.said.String())
			}
			continue
		}
		if err := paused(t, r); err != nil {
			t.Fatalf("pause %d: %v\n%s", pauses, err, r.said.String())
		}
		if n := r.used(t, 0) + r.used(t, 1); n != 0 {
			t.Errorf("pause %d: %d bytes of the GPUs are in use", pauses, n)
		}
		time.Sleep(30 * time.Millisecond) // a checkpoint is due
		if err := resumed(t, r); err != nil {
			t.Fatalf("resume %d: %v\n%s", pauses, err, r.said.String())
		}
	}
	r.mayEnd(t)
	if err := r.cmd.Wait(); err == nil || r.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v\n%s%s", err, r.out.String(), r.said.String())
	}
	got := w.run(t, program, steps, "0", "all")
	if !strings.HasPrefix(got.out, fmt.Sprintf("begins at step %d\n", last)) || sums(got.out) != sums(want.out) {
		t.Errorf("got\n%s\nwant\n%s\n%s\n%s", got.out, want.out, got.said, r.said.String())
	}
}
