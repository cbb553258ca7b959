package cuda

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What the program of two processes says, with the moments at which both wait.
const shared = `block 0 read: 1
block 0: 5242880 bytes, begins at its address: 1
block 1 read: 1
block 1: 3000 bytes, begins at its address: 1
block 2 read: 1
block 2: 3000 bytes, begins at its address: 1
opened twice, the same address: 1
no handle of opened memory: 1
own handle: 201
opened
closed once more: 1
block 0 written: 1
block 1 written: 1
block 2 written: 1
closed
read again: 1 1
opened again
same place: 1
old handle
handle of what is gone: 1
new block read: 1
new handle
`

// sharing is the program, both processes of which wait for a line.
type sharing struct {
	running
	in    io.WriteCloser
	lines *bufio.Scanner
	said  strings.Builder
}

func (w way) share(t *testing.T) *sharing {
	t.Helper()
	s := &sharing{running: running{cmd: exec.CommandContext(t.Context(), filepath.Join(built.dir, "share"))}}
	s.cmd.Env, s.cmd.Stderr = append(os.Environ(), w...), &s.running.said
	in, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.in, s.lines = in, bufio.NewScanner(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = s.cmd.Wait() })
	return s
}

// until reads up to the moment of a name; "": the end.
func (s *sharing) until(moment string) {
	for s.lines.Scan() {
		fmt.Fprintln(&s.said, s.lines.Text())
		if s.lines.Text() == moment {
			return
		}
	}
}

func (s *sharing) goOn() { fmt.Fprintln(s.in) }

// user returns the second process.
func (s *sharing) user(t *testing.T) *running {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.pid()))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	return &running{cmd: &exec.Cmd{Process: p}}
}

// TestShare: a process opens memory of another one's arena. While it is open neither is paused, and the error says who
// uses what; afterwards both are, and a handle from before the pause opens the memory again. Copies wait for the device
// once they are to, as CUDA-aware MPI libraries ask for before they share memory.
func TestShare(t *testing.T) {
	s := pausable(filepath.Join(t.TempDir(), "usage")).
		with("WAITS=" + filepath.Join(built.dir, fake, "libcuda.so.1")).share(t)
	s.until("opened")
	user := s.user(t)
	for program, want := range map[*running]string{
		&s.running: fmt.Sprintf(`cannot be paused: process %d has opened its memory at 0x5\w+ by `+
			`cuIpcOpenMemHandle`, user.pid()),
		user: `cannot be paused: it uses memory of another process at 0x\w+, \d+ bytes, asked for by .*share\+0x`,
	} {
		if err := paused(t, program); err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, moment := range []string{"closed", "opened again", "old handle"} {
		s.goOn()
		s.until(moment)
		if err := paused(t, &s.running, user); err != nil {
			t.Fatal(moment, err)
		}
		if err := resumed(t, &s.running, user); err != nil {
			t.Fatal(moment, err)
		}
	}
	s.goOn()
	s.until("new handle")
	s.goOn()
	s.until("")
	if err := s.cmd.Wait(); err != nil || s.said.String() != shared {
		t.Errorf("%v\n%s\n%s\nwant\n%s", err, s.said.String(), s.running.said.String(), shared)
	}
}

// TestShareNeeds: without the arena the driver makes the handles, and HOLDFAST_CUDA_IPC=off makes none.
func TestShareNeeds(t *testing.T) {
	for _, c := range []struct {
		w    way
		want string
	}{
		{preloaded(library()).with("HOLDFAST_CUDA_ARENA=off"), "own handle: 0"},
		{preloaded(library()).with("HOLDFAST_CUDA_ARENA=on", "HOLDFAST_CUDA_IPC=off"),
			"cuIpcGetMemHandle(&handles[i], at[i]): 801"},
		{preloaded(without(t, "cuIpcGetMemHandle")).with("HOLDFAST_CUDA_ARENA=on"), "block 0 read: 0"}, // a planted bug
	} {
		s := c.w.share(t)
		s.until("opened")
		if !strings.Contains(s.said.String(), c.want) {
			t.Errorf("%v: got\n%s\nwant %s", c.w, s.said.String(), c.want)
		}
	}
}

// TestShareKilled: memory that a process had opened is free for a pause when that process has been killed.
func TestShareKilled(t *testing.T) {
	s := pausable(filepath.Join(t.TempDir(), "usage")).share(t)
	s.until("opened")
	user := s.user(t)
	process, err := unix.PidfdOpen(user.pid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	if err := user.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Its first thread is a zombie before the others have closed what all have open: a pidfd waits for the last one.
	for err = unix.EINTR; err == unix.EINTR; {
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, -1)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := paused(t, &s.running); err != nil {
		t.Error(err)
	}
}
