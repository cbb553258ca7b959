package cuda

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/pause"
	"github.com/holdfast-hpc/holdfast/test/launch"
	"github.com/holdfast-hpc/holdfast/test/schema"
)

// TestInterrupted: a command that is interrupted while it waits for a program names that, and the program goes on.
func TestInterrupted(t *testing.T) {
	holdfast, err := tool()
	if err != nil {
		t.Fatal(err)
	}
	spin := pausable(filepath.Join(t.TempDir(), "usage")).start(t, linked, "spin")
	spin.launches(t, 3) // the first one waits for the host
	var out, said bytes.Buffer
	c := exec.Command(holdfast, "pause", "--json", strconv.Itoa(spin.pid()))
	c.Stdout, c.Stderr = &out, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for state := ""; state != "busy" && state != "paused"; {
		list, err := pause.Look(t.Context(), []int{spin.pid()})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		state = list[0].State
	}
	_ = c.Process.Signal(os.Interrupt)
	_ = c.Wait()
	if c.ProcessState.ExitCode() != 1 || !strings.HasSuffix(said.String(), "interrupted\n") ||
		!strings.Contains(out.String(), `"state":"running"`) {
		t.Errorf("%v: %s%s", c.ProcessState, out.String(), said.String())
	}
	if err := schema.Check("pause", out.String()); err != nil {
		t.Error(err)
	}
	spin.ends(t, alone().run(t, linked, "spin"))
}

// TestNothingDone: a command that could not begin says nothing of the programs.
func TestNothingDone(t *testing.T) {
	holdfast, err := tool()
	if err != nil {
		t.Fatal(err)
	}
	r := pausable(filepath.Join(t.TempDir(), "usage")).start(t, linked, longProgram...)
	const why = "--device is for OpenCL programs; for CUDA programs use holdfast migrate"
	for _, c := range []struct{ flag, out string }{{"--json=false", ""}, {"--json", `{"error":"` + why + "\"}\n"}} {
		resume := exec.Command(holdfast, "resume", "--device=cpu", c.flag, strconv.Itoa(r.pid()))
		out, err := resume.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || string(out) != c.out ||
			string(exit.Stderr) != "holdfast: "+why+"\n" {
			t.Errorf("%s: %v, %s", c.flag, err, out)
		}
	}
	r.ends(t, alone().run(t, linked, longProgram...))
}

// TestRunCUDA: a program that holdfast run has started is paused and resumed by the process ID of that command and by
// the directory that it names, ended while it is paused, and moved as docs/START.md says.
func TestRunCUDA(t *testing.T) {
	dir, usage := t.TempDir(), filepath.Join(t.TempDir(), "usage")
	if err := launch.Build(dir); err != nil {
		t.Fatal(err)
	}
	holdfast := filepath.Join(dir, "holdfast")
	if err := os.RemoveAll(filepath.Join(dir, "libholdfast-cuda.so")); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(built.dir, linked)
	run := exec.CommandContext(t.Context(), holdfast,
		append([]string{"run", "--cuda", "--", program}, longProgram...)...)
	end := filepath.Join(dir, "end")
	run.Env = append(os.Environ(), alone().with("FAKE_USAGE="+usage, "UNTIL="+end)...)
	if out, err := run.CombinedOutput(); err == nil || !strings.Contains(string(out), "--cuda: libholdfast-cuda.so is "+
		"not installed") {
		t.Errorf("without the library: %v\n%s", err, out)
	}
	if err := os.Symlink(library(), filepath.Join(dir, "libholdfast-cuda.so")); err != nil {
		t.Fatal(err)
	}
	start := func(args ...string) *running {
		r := &running{cmd: exec.CommandContext(t.Context(), holdfast, args...), usage: usage, end: end}
		r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr, r.cmd.Dir = run.Env, &r.out, &r.said, dir
		if err := r.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for found := false; !found && r.cmd.ProcessState == nil; time.Sleep(10 * time.Millisecond) {
			_, err := pause.Find([]int{r.pid()})
			found = err == nil
		}
		return r
	}
	r := start(run.Args[1:]...)
	named := filepath.Join(dir, "holdfast-run")
	for n, verb := range []string{"pause", "resume", "pause", "resume"} {
		out, err := exec.Command(holdfast, verb, []string{fmt.Sprint(r.pid()), named}[n/2]).CombinedOutput()
		state := map[string]string{"pause": "paused", "resume": "running"}[verb]
		if err != nil || !regexp.MustCompile(`\(linked\)( on \S+)? is `+state+": ").Match(out) {
			t.Errorf("%s: %v\n%s", verb, err, out)
		}
		if n := r.used(t, 0); (n == 0) != (verb == "pause") {
			t.Errorf("after %s %d bytes of the GPU are in use", verb, n)
		}
		shows(t, r, holdfast, state)
	}
	stopped(t, r, holdfast, named)
	r.ends(t, alone().run(t, linked, longProgram...))
	t.Run("TERM", func(t *testing.T) { // a program that is paused takes its GPU again, to do what it does at the end
		r := start("run", "--cuda", "--", program, "count", "100000")
		if out, err := exec.Command(holdfast, "pause", named).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		err := r.cmd.Wait()
		if err != nil || !regexp.MustCompile(`terminated at [0-9.]+\n$`).MatchString(r.out.String()) {
			t.Errorf("%v, got %q, %s", err, r.out.String(), r.said.String())
		}
	})
	t.Run("START.md", func(t *testing.T) { pageRuns(t, holdfast) })
}

// stopped has holdfast pause name a program that is stopped, by the number of what has started it and by its directory.
func stopped(t *testing.T, r *running, holdfast, dir string) {
	t.Helper()
	found, err := pause.Find([]int{r.pid()})
	if err == nil {
		err = syscall.Kill(found[0], syscall.SIGSTOP)
	}
	if err != nil {
		t.Fatal(err)
	}
	for p, err := child.Look(found[0]); err == nil && !p.Stopped; p, err = child.Look(found[0]) {
		time.Sleep(time.Millisecond)
	}
	for _, which := range []string{strconv.Itoa(r.pid()), dir} {
		if out, err := exec.Command(holdfast, "pause", which).CombinedOutput(); err == nil ||
			!strings.Contains(string(out), "(linked): it is stopped, as by Ctrl-Z") {
			t.Errorf("%s: %v\n%s", which, err, out)
		}
	}
	if err := syscall.Kill(found[0], syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// TestStranger: another user's connection is closed; holdfast status has the reason.
func TestStranger(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	r := pausable(filepath.Join(t.TempDir(), "usage")).start(t, linked, longProgram...)
	said := make(chan string)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its user
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			said <- e.Error()
			return
		}
		c, err := net.Dial("unix", "@holdfast-cuda-"+child.Name(r.pid()))
		if err != nil {
			said <- err.Error()
			return
		}
		defer c.Close()
		b, _ := io.ReadAll(c)
		said <- string(b)
	}()
	if got := <-said; got != "" {
		t.Errorf("it answers %q", got)
	}
	open, err := os.MkdirTemp("", "holdfast-cuda-") // that other users can come to
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(open)
	holdfast, err := tool()
	if err := errors.Join(err, os.Chmod(open, 0o755), os.Link(holdfast, filepath.Join(open, "holdfast"))); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(filepath.Join(open, "holdfast"), "status", strconv.Itoa(r.pid()))
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := c.CombinedOutput(); !strings.Contains(string(out), "only its user (0) and root may") {
		t.Errorf("status: %v\n%s", err, out)
	}
	r.ends(t, alone().run(t, linked, longProgram...))
}

// shows checks what holdfast status says of a program, by the number of what has started it and without any.
func shows(t *testing.T, r *running, holdfast, state string) {
	t.Helper()
	want := map[string]string{"paused": `linked +CUDA +paused +\d+\.\d s +\d\.\d MiB in host memory +GPU-fafafafa-`,
		"running": `linked +CUDA +running +- +\d\.\d MiB of device memory +GPU-fafafafa-`}[state]
	for _, args := range [][]string{{"status"}, {"status", fmt.Sprint(r.pid())},
		{"status", filepath.Join(r.cmd.Dir, "holdfast-run")}} {
		c := exec.Command(holdfast, args...)
		c.Env = append(os.Environ(), "HOLDFAST_GLOBAL=", "HOLDFAST_LOCAL=")
		if out, err := c.CombinedOutput(); err != nil || !regexp.MustCompile(want).Match(out) {
			t.Errorf("%v: %v, got\n%s\nwant %s", args, err, out, want)
		}
	}
	var said struct{ Programs []pause.Program }
	out, err := exec.Command(holdfast, "status", "--json", fmt.Sprint(r.pid())).Output()
	err = errors.Join(err, json.Unmarshal(out, &said), schema.Check("status", string(out)))
	if err != nil || len(said.Programs) != 1 || said.Programs[0].State != state ||
		(said.Programs[0].Seconds > 0) != (state == "paused") ||
		said.Programs[0].Bytes == 0 {
		t.Errorf("%v, got %s", err, out)
	}
}

// TestPauseInGroup: a program in a control group that has too little memory left for the copy is not paused, as the
// kernel would end it.
func TestPauseInGroup(t *testing.T) {
	parent, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(parent); err != nil {
		parent, limit = "/sys/fs/cgroup", "memory.max"
	}
	group := filepath.Join(parent, fmt.Sprint("holdfast-test-", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	r := pausable(filepath.Join(t.TempDir(), "usage")).counts(t)
	for name, n := range map[string]int{limit: int(r.used(t, 0) / 2), "cgroup.procs": r.pid()} {
		if err := os.WriteFile(filepath.Join(group, name), []byte(strconv.Itoa(n)), 0); err != nil {
			r.ends(t, alone().run(t, linked, "count"))
			t.Skip(err) // not the group of this process, say
		}
	}
	if err := paused(t, r); err == nil || !strings.Contains(err.Error(), group+" has ") {
		t.Errorf("got %v", err)
	}
	if r.used(t, 0) == 0 {
		t.Error("the GPU was given up")
	}
	r.ends(t, alone().run(t, linked, "count"))
}
