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
	"time"

	"github.com/holdfast-hpc/holdfast/internal/pause"
)

// odd is a program that does something odd while it is paused.
type odd struct {
	*running
	in    io.Writer
	lines *bufio.Scanner
}

// startOdd starts a program of odd.c, and returns when it can be paused.
func startOdd(t *testing.T, w way, what string) odd {
	t.Helper()
	r := w.command(t, "odd", what)
	r.cmd.Stdout = nil
	in, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.begin(t)
	return odd{r, in, bufio.NewScanner(out)}
}

// says expects the next line.
func (o odd) says(t *testing.T, want string) {
	t.Helper()
	if o.lines.Scan(); o.lines.Text() != want {
		t.Fatalf("got %q, want %q", o.lines.Text(), want)
	}
}

// goesOn gives the program a line to read.
func (o odd) goesOn() { fmt.Fprintln(o.in) }

// over has the program end, which must be without an error.
func (o odd) over(t *testing.T) {
	t.Helper()
	o.says(t, "ready")
	o.goesOn()
	if err := o.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, o.said.String())
	}
}

// briefly has a session end when it takes too long.
func briefly(t *testing.T, r *running) session {
	t.Helper()
	s := converse(t, r)
	if err := s.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return s
}

var stops = []string{"quiet 60000", "quiet", "save", "saved", "stop", "stopped"}

// TestCancelled: a thread is cancelled while it waits at the gate, or in the driver. The program goes on, and can be
// paused again.
func TestCancelled(t *testing.T) {
	for _, what := range []string{"held", "inside"} {
		t.Run(what, func(t *testing.T) {
			o := startOdd(t, pausable(filepath.Join(t.TempDir(), "usage")), what)
			if what == "held" {
				s := briefly(t, o.running)
				s.says(t, stops...)
				o.goesOn()
				o.says(t, "cancelled at the gate")
				s.says(t, "resume", "running")
				_ = s.Close()
			} else {
				o.goesOn()
				o.says(t, "cancelled in the driver")
			}
			o.says(t, "it was cancelled")
			s := briefly(t, o.running)
			s.says(t, append(stops, "resume", "running")...)
			_ = s.Close()
			o.over(t)
		})
	}
}

// TestCapturesGone: a program whose captures have ended with their stream, and with its context, can be paused.
func TestCapturesGone(t *testing.T) {
	o := startOdd(t, pausable(filepath.Join(t.TempDir(), "usage")), "captures")
	o.says(t, "ready")
	s := briefly(t, o.running)
	s.says(t, append(stops, "resume", "running")...)
	_ = s.Close()
	o.goesOn()
	if err := o.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, o.said.String())
	}
}

// TestGreen: a pause waits for the work of a green context that has no memory, and when green contexts are gone their
// memory is the primary context's.
func TestGreen(t *testing.T) {
	o := startOdd(t, pausable(filepath.Join(t.TempDir(), "usage")), "green")
	o.says(t, "it is busy")
	s := briefly(t, o.running)
	fmt.Fprintln(s, "quiet 200")
	s.lines.Scan()
	if got := s.lines.Text(); !regexp.MustCompile(
		`^busy stream 0x[0-9a-f]+ is busy; the last call of it is cuLaunchKernel$`).MatchString(got) {
		t.Errorf("got %q", got)
	}
	_ = s.Close()
	o.goesOn()
	for _, line := range []string{"it is idle", "they are gone"} {
		o.says(t, line)
		s := briefly(t, o.running)
		s.says(t, append(stops, "resume", "running")...)
		_ = s.Close()
		o.goesOn()
	}
	o.says(t, "it is 9")
	if err := o.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, o.said.String())
	}
}

// TestDestroys: a program goes on after a pause was tried in vain, and destroys a context that the attempt has not come
// to.
func TestDestroys(t *testing.T) {
	o := startOdd(t, pausable(filepath.Join(t.TempDir(), "usage")), "destroys")
	o.says(t, "it is busy")
	s := briefly(t, o.running)
	fmt.Fprintln(s, "quiet 200")
	if s.lines.Scan(); !strings.HasPrefix(s.lines.Text(), "busy stream ") {
		t.Errorf("got %q", s.lines.Text())
	}
	_ = s.Close()
	o.goesOn()
	o.says(t, "it is idle")
	s = briefly(t, o.running)
	s.says(t, append(stops, "resume", "running")...)
	_ = s.Close()
	o.goesOn()
	o.over(t)
}

// TestGone: a program that has no context at this moment, but mappings that are empty, can be paused.
func TestGone(t *testing.T) {
	o := startOdd(t, pausable(filepath.Join(t.TempDir(), "usage")), "gone")
	o.says(t, "it has no context")
	s := briefly(t, o.running)
	s.says(t, append(stops, "resume", "running")...)
	_ = s.Close()
	o.goesOn()
	o.over(t)
}

// TestSpoils: a free that waits for the device does not spoil a capture that another thread begins meanwhile.
func TestSpoils(t *testing.T) {
	startOdd(t, pausable(filepath.Join(t.TempDir(), "usage")), "spoils").over(t)
}

// TestAsked: a program that runs may destroy a context at any moment, so whoever asks for its state pushes none.
func TestAsked(t *testing.T) {
	o := startOdd(t, pausable(filepath.Join(t.TempDir(), "usage")).with("DRIVER="+filepath.Join(built.dir, fake,
		"libcuda.so.1")), "asked")
	o.says(t, "it counts")
	s := briefly(t, o.running)
	s.says(t, "state", "state")
	_ = s.Close()
	o.goesOn()
	o.says(t, "pushes: 0")
	o.over(t)
}

// TestCloses: a program that has closed all descriptors gets the connections to what it has made in their place.
func TestCloses(t *testing.T) {
	o := startOdd(t, pausable(filepath.Join(t.TempDir(), "usage")), "closes")
	o.goesOn()
	o.says(t, "it listens")
	s := briefly(t, o.running)
	s.says(t, "state", "state")
	_ = s.Close()
	for _, err := pause.Find([]int{o.pid()}); err == nil; _, err = pause.Find([]int{o.pid()}) {
		time.Sleep(time.Millisecond)
	}
	o.goesOn()
	o.over(t)
	ran{"", o.said.String()}.has(t, "it cannot be paused any more: it has closed descriptor ")
}

// TestClosesInAPause: a program that closes all descriptors while a command speaks to it goes on, keeps what it makes
// in their place, and is not said to have ended.
func TestClosesInAPause(t *testing.T) {
	o := startOdd(t, pausable(filepath.Join(t.TempDir(), "usage")), "closes")
	g, err := pause.Open(t.Context(), []int{o.pid()})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	o.goesOn()
	o.says(t, "it listens")
	if err := g.Pause(t.Context(), patience); err == nil || !strings.HasSuffix(err.Error(),
		"(odd) has closed the connection, and goes on") {
		t.Errorf("got %v", err)
	}
	o.goesOn()
	o.over(t)
}

// TestLeaves: a program whose first thread has ended is paused, and is not said to have ended.
func TestLeaves(t *testing.T) {
	holdfast, err := tool()
	if err != nil {
		t.Fatal(err)
	}
	o := startOdd(t, pausable(filepath.Join(t.TempDir(), "usage")), "leaves")
	for {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/exe", o.pid())); err != nil {
			break
		}
	}
	for _, verb := range []string{"pause", "resume"} {
		if out, err := exec.Command(holdfast, verb, strconv.Itoa(o.pid())).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", verb, err, out)
		}
	}
	o.over(t)
}

// TestForking: who asks for the state of a program that forks all the time waits for a few forks, not for hundreds.
func TestForking(t *testing.T) {
	o := startOdd(t, pausable(filepath.Join(t.TempDir(), "usage")), "forking")
	o.says(t, "it forks")
	const times = 50
	s := briefly(t, o.running)
	for range times {
		s.says(t, "state", "state")
	}
	_ = s.Close()
	o.goesOn()
	o.lines.Scan()
	forks, err := strconv.Atoi(o.lines.Text())
	if t.Logf("%d forks", forks); err != nil || forks > 2*times {
		t.Errorf("%d forks while the program was asked %d times, %v", forks, times, err)
	}
	o.over(t)
}

// TestCaptureEnds: a thread that ends a capture while the program is paused waits, even if it has begun none.
func TestCaptureEnds(t *testing.T) {
	o := startOdd(t, pausable(filepath.Join(t.TempDir(), "usage")), "ends")
	s := briefly(t, o.running)
	s.says(t, stops...)
	o.goesOn()
	o.says(t, "it ends")
	for in := ""; !strings.Contains(in, ") S "); { // it sleeps at the gate
		if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", o.pid())); err != nil {
			t.Fatalf("it has ended: %v", err)
		}
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", o.pid())) // else it has ended
		in = string(b)
	}
	s.says(t, "resume", "running")
	_ = s.Close()
	o.says(t, "error 401")
	o.over(t)
}

// TestConstructor: a thread whose library allocates while it is opened, and another thread, both go on.
func TestConstructor(t *testing.T) {
	opened := filepath.Join(t.TempDir(), "libconstructor.so")
	if err := run([]string{"cc", "-shared", "-fPIC", "testdata/constructor.c", "-o", opened}); err != nil {
		t.Fatal(err)
	}
	r, err := preloaded(library()).try(t, "odd", "opens", opened)
	if err != nil || r.out != "opened\n" {
		t.Errorf("%v, %q\n%s", err, r.out, r.said)
	}
}

// TestForkAtTheHolder: a child that is forked while the holder starts has no connection to it, which would keep that
// alive after the program's end.
func TestForkAtTheHolder(t *testing.T) {
	o := startOdd(t, twoGPUs(t), "forks")
	err := together(t, func(g *pause.Group) error { return g.Move(t.Context(), patience, gpus(t, "1")) }, o.running)
	if err != nil {
		t.Fatal(err)
	}
	o.says(t, "sockets of the child: 0")
	o.over(t)
}

// TestImageOfNewThread: a thread that a paused program starts while its image is taken is among those whose numbers a
// restore needs: it waits for them, and names one that is taken.
func TestImageOfNewThread(t *testing.T) {
	holdfast, err := tool()
	if err != nil {
		t.Fatal(err)
	}
	p := twoGPUs(t).startImaged(t, "odd", "grows")
	tasks := filepath.Join(p.dir, "tasks")
	real := p.criu.Path
	p.criu.Path = filepath.Join(p.dir, "criu")
	script := fmt.Sprintf("#!/bin/sh\n[ $1 != dump ] || { ls /proc/%[1]d/task >%[2]s; kill -USR1 %[1]d; "+
		"until ls /proc/%[1]d/task | grep -vxFf %[2]s >%[2]s.new; do sleep 0.01; done; }\nexec %[3]s \"$@\"\n",
		p.pid(), tasks, real)
	if err := os.WriteFile(p.criu.Path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.take(t, true); err != nil {
		t.Fatal(err)
	}
	p.gone(t)
	b, err := os.ReadFile(tasks + ".new")
	number := strings.TrimSpace(string(b))
	if err != nil || number == "" {
		t.Fatal(number, err)
	}
	r := alone().command(t, "odd", "takes", number)
	r.cmd.Stdout = nil
	in, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	taker := odd{r, in, bufio.NewScanner(out)}
	taker.says(t, "ready")
	if err := p.restore(holdfast); err == nil || !strings.Contains(err.Error(),
		"its program has the process ID "+number+", which another process has now (odd)") {
		t.Errorf("got %v", err)
	}
	taker.goesOn()
	if err := r.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := p.restore(holdfast); err != nil {
		t.Error(err)
	}
	p.kill(t)
}
