package cuda

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/pause"
)

// pausable returns the library in front, for programs that are paused; usage is the file in which the fake driver says
// how much of each GPU's memory is in use.
func pausable(usage string) way {
	return preloaded(library()).with("HOLDFAST_CUDA_PAUSE=on", "FAKE_USAGE="+usage)
}

// running is a program that was started and is to be paused.
type running struct {
	cmd       *exec.Cmd
	out, said bytes.Buffer
	usage     string
	end       string // file without which it does not end
}

// inBuilt returns the path of a program.
func inBuilt(program string) string {
	if filepath.IsAbs(program) {
		return program
	}
	return filepath.Join(built.dir, program)
}

// command returns a program that begin starts.
func (w way) command(t *testing.T, program string, args ...string) *running {
	t.Helper()
	r := &running{cmd: exec.CommandContext(t.Context(), inBuilt(program), args...),
		end: filepath.Join(t.TempDir(), "end")}
	r.cmd.Env = append(os.Environ(), w.with("UNTIL="+r.end)...)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.said
	for _, v := range w {
		if path, ok := strings.CutPrefix(v, "FAKE_USAGE="); ok {
			r.usage = path
		}
	}
	return r
}

// begin starts it, and returns when it can be paused: once it has a context.
func (r *running) begin(t *testing.T) {
	t.Helper()
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		if found, err := pause.Find([]int{r.pid()}); err == nil && len(found) == 1 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (w way) start(t *testing.T, program string, args ...string) *running {
	t.Helper()
	r := w.command(t, program, args...)
	r.begin(t)
	return r
}

// pid returns the program's process.
func (r *running) pid() int { return r.cmd.Process.Pid }

// used returns how many bytes of a GPU are in use.
func (r *running) used(t *testing.T, gpu int) uint64 {
	t.Helper()
	b, err := os.ReadFile(r.usage)
	if err != nil || len(b) < 8*gpu+8 {
		t.Fatal(len(b), err)
	}
	return binary.LittleEndian.Uint64(b[8*gpu:])
}

// launches waits until the program has launched n kernels.
func (r *running) launches(t *testing.T, n uint64) {
	t.Helper()
	for r.used(t, 8) < n {
		time.Sleep(time.Millisecond)
	}
}

// mayEnd has the program end, which waits for that in front of its last round.
func (r *running) mayEnd(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(r.end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// ends waits for the program, which must compute what it does without the library.
func (r *running) ends(t *testing.T, want ran) {
	t.Helper()
	r.mayEnd(t)
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s%s", err, r.out.String(), r.said.String())
		return
	}
	ran{r.out.String(), r.said.String()}.same(t, want)
}

// together has the processes of programs do something, as a command would.
func together(t *testing.T, do func(*pause.Group) error, programs ...*running) error {
	t.Helper()
	var pids []int
	for _, p := range programs {
		pids = append(pids, p.pid())
	}
	g, err := pause.Open(t.Context(), pids)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	return do(g)
}

func paused(t *testing.T, programs ...*running) error {
	t.Helper()
	return together(t, func(g *pause.Group) error { return g.Pause(t.Context(), patience) }, programs...)
}

func resumed(t *testing.T, programs ...*running) error {
	t.Helper()
	return together(t, func(g *pause.Group) error { return g.Resume(nil) }, programs...)
}

func moved(t *testing.T, to string, r *running) error {
	t.Helper()
	return together(t, func(g *pause.Group) error { return g.Move(t.Context(), patience, gpus(t, to)) }, r)
}

const patience = time.Minute

// longProgram can be paused at many different moments.
var longProgram = []string{"20", "plain"}

// TestArena: the library's own memory changes nothing in what a program computes, comes to the same addresses each
// time, and is rolled back like any other.
func TestArena(t *testing.T) {
	want := alone().run(t, linked)
	list := filepath.Join(t.TempDir(), "list")
	arena := preloaded(library()).with("HOLDFAST_CUDA_ARENA=on")
	for _, program := range []string{linked, resolved} {
		r := arena.with("HOLDFAST_CUDA_CHECK=200", "HOLDFAST_CUDA_CALLS=3600").run(t, program)
		r.same(t, want)
		r.has(t, "200 of 200 roll backs")
		r.has(t, "not in the ledger: 0;")
	}
	addresses := func() string {
		arena.with("HOLDFAST_CUDA_LIST="+list).run(t, linked, "2", "leave")
		b, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(regexp.MustCompile(`(device|pitched) +0x\w+ +\w+`).FindAllString(string(b), -1), "\n")
	}
	first := addresses()
	if second := addresses(); first != second || strings.Count(first, " 0x5000000") != 3 {
		t.Errorf("got\n%s\nthen\n%s", first, second)
	}
}

// TestPause: a program is paused at any moment, has nothing on the GPU then, and computes the same.
func TestPause(t *testing.T) {
	want := alone().run(t, linked, longProgram...)
	for _, program := range []string{linked, resolved} {
		for _, arena := range []string{"on", "off"} {
			t.Run(program+"/"+arena, func(t *testing.T) {
				r := pausable(filepath.Join(t.TempDir(), "usage")).with("HOLDFAST_CUDA_ARENA="+arena).
					start(t, program, longProgram...)
				pauses := 8
				if testing.Short() {
					pauses = 3
				}
				for range pauses {
					time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
					if err := paused(t, r); err != nil {
						t.Fatal(err)
					}
					if n := r.used(t, 0); n != 0 {
						t.Errorf("%d bytes of the GPU are in use while the program is paused", n)
					}
					if err := resumed(t, r); err != nil {
						t.Fatal(err)
					}
				}
				r.ends(t, want)
			})
		}
	}
}

// A session is one connection to a program, for what no tool does.
type session struct {
	*net.UnixConn
	lines *bufio.Scanner
}

func converse(t *testing.T, r *running) session {
	t.Helper()
	s, err := tryToConverse(t, r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tryToConverse(t *testing.T, r *running) (session, error) {
	t.Helper()
	c, err := net.Dial("unix", "@holdfast-cuda-"+child.Name(r.pid()))
	if err != nil {
		return session{}, err
	}
	t.Cleanup(func() { _ = c.Close() })
	s := session{c.(*net.UnixConn), bufio.NewScanner(c)}
	s.lines.Scan()
	return s, nil
}

// says sends lines and expects the first word of each answer.
func (s session) says(t *testing.T, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintln(s, pairs[i])
		for s.lines.Scan() && strings.HasPrefix(s.lines.Text(), "moved ") {
		}
		if word, _, _ := strings.Cut(s.lines.Text(), " "); word != pairs[i+1] {
			t.Fatalf("%s: got %q, want %s", pairs[i], s.lines.Text(), pairs[i+1])
		}
	}
}

// TestPauseAtTheEnd: a program that comes to its end while it is paused waits, and ends as it would have.
func TestPauseAtTheEnd(t *testing.T) {
	in, end := io.Pipe()
	r := pausable(filepath.Join(t.TempDir(), "usage")).command(t, "ends")
	r.cmd.Stdin = in
	r.begin(t)
	ended := make(chan error, 1)
	go func() { ended <- r.cmd.Wait() }()
	if err := paused(t, r); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(end)
	_ = end.Close()
	select {
	case err := <-ended:
		t.Fatalf("it has ended while it was paused: %v\n%s", err, r.said.String())
	case <-time.After(300 * time.Millisecond):
	}
	// It may end before it has answered.
	if err := resumed(t, r); err != nil && !strings.Contains(err.Error(), "has ended") {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || r.out.String() != "ends: 0\n" {
		t.Errorf("%v\n%s%s", err, r.out.String(), r.said.String())
	}
}

// TestToolGone: a program goes on when the tool leaves in the middle of a pause, and stays paused when that was done.
func TestToolGone(t *testing.T) {
	want := alone().run(t, linked, longProgram...)
	r := pausable(filepath.Join(t.TempDir(), "usage")).start(t, linked, longProgram...)
	steps := []string{"prepare", "prepared", "quiet 60000", "quiet", "save", "saved", "stop", "stopped"}
	for n := 2; n <= len(steps); n += 2 {
		s := converse(t, r)
		s.says(t, steps[:n]...)
		_ = s.Close()
		s = converse(t, r) // waits until the library has noticed
		fmt.Fprintln(s, "state")
		if s.lines.Scan(); !strings.HasPrefix(s.lines.Text(), "state running ") {
			t.Errorf("after %q: %s", steps[n-2], s.lines.Text())
		}
		_ = s.Close()
	}
	for _, wrong := range []string{"save", "stop", "keep", "open", "resume", "nonsense", "quiet"} {
		s := converse(t, r)
		s.says(t, wrong, "error")
		_ = s.Close()
	}
	s := converse(t, r)
	s.says(t, append(steps, "keep\nresume zz=zz", "error")...)
	_ = s.Close()
	s = converse(t, r)
	s.says(t, "resume", "running")
	_ = s.Close()
	r.ends(t, want)
}

// TestOneCannot: when one program of two cannot be paused, both go on, and the error has the reason.
func TestOneCannot(t *testing.T) {
	want, spun := alone().run(t, linked, longProgram...), alone().run(t, linked, "spin")
	managed := alone().run(t, linked, "20")
	usage := func() string { return filepath.Join(t.TempDir(), "usage") }
	good := pausable(usage()).start(t, linked, longProgram...)
	spin := pausable(usage()).start(t, linked, "spin")
	good.launches(t, 1)
	spin.launches(t, 3) // the first one waits for the host
	err := together(t, func(g *pause.Group) error { return g.Pause(t.Context(), 3*time.Second/2) }, good, spin)
	if err == nil || !regexp.MustCompile(`process \d+ \(linked\): it does not come to rest: stream 0x[0-9a-f]+ is `+
		`busy; the last call of it is cuLaunchKernel`).MatchString(err.Error()) {
		t.Errorf("got %v", err)
	}
	refused := pausable(usage()).start(t, linked, "20")
	refused.launches(t, 1)
	if err := paused(t, good, refused); err == nil ||
		!regexp.MustCompile(`it cannot be paused: it uses managed memory at 0x[0-9a-f]+, 4096 bytes, asked for by `+
			`.*/linked\+0x`).MatchString(err.Error()) {
		t.Errorf("got %v", err)
	}
	if good.used(t, 0) == 0 {
		t.Error("the GPU was given up")
	}
	good.ends(t, want)
	spin.ends(t, spun)
	refused.ends(t, managed)
	mps := pausable(usage()).with("FAKE_MPS=1").start(t, linked, longProgram...)
	if err := paused(t, mps); err == nil || !strings.Contains(err.Error(), "MPS") {
		t.Errorf("got %v", err)
	}
	mps.ends(t, want)
}

// TestPauseFails: whatever the driver refuses in the middle of a pause, the program goes on with its memory, and with
// what it refuses in the middle of a resume, the program stays paused and can be resumed later.
func TestPauseFails(t *testing.T) {
	want := alone().run(t, linked, longProgram...)
	for _, fails := range []string{"unmap", "lock", "checkpoint"} {
		r := pausable(filepath.Join(t.TempDir(), "usage")).with("FAKE_FAILS="+fails).start(t, linked, longProgram...)
		r.launches(t, 1)
		if err := paused(t, r); err == nil || r.used(t, 0) == 0 {
			t.Errorf("%s: %v, %d bytes in use", fails, err, r.used(t, 0))
		}
		if err := paused(t, r); err != nil {
			t.Errorf("%s, again: %v", fails, err)
		}
		if err := resumed(t, r); err != nil {
			t.Errorf("%s: %v", fails, err)
		}
		r.ends(t, want)
	}
	// create: the GPU has no room for what the arena had; the second time it has.
	for _, fails := range []string{"restore", "create:2"} {
		r := pausable(filepath.Join(t.TempDir(), "usage")).with("FAKE_FAILS="+fails).start(t, linked, longProgram...)
		r.launches(t, 1)
		if err := paused(t, r); err != nil {
			t.Fatal(err)
		}
		if err := resumed(t, r); err == nil || r.used(t, 0) != 0 {
			t.Errorf("%s: %v, %d bytes in use", fails, err, r.used(t, 0))
		}
		if err := resumed(t, r); err != nil {
			t.Error(err)
		}
		r.ends(t, want)
	}
}

// TestMarks: a program that does nothing but record events and wait for them is paused.
func TestMarks(t *testing.T) {
	r := pausable(filepath.Join(t.TempDir(), "usage")).start(t, linked, "marks")
	s := converse(t, r)
	s.says(t, "quiet 60000", "quiet", "save", "saved")
	time.Sleep(20 * time.Millisecond) // it tries to record some
	s.says(t, "stop", "stopped", "resume", "running")
	_ = s.Close()
	r.ends(t, alone().run(t, linked, "marks"))
}

// TestKilled: a program that is killed while it is paused, or in the middle of it, leaves nothing behind.
func TestKilled(t *testing.T) {
	for _, steps := range [][]string{{"quiet 60000", "quiet"}, {"quiet 60000", "quiet", "save", "saved"},
		{"quiet 60000", "quiet", "save", "saved", "stop", "stopped", "keep\nstate", "state"}} {
		r := pausable(filepath.Join(t.TempDir(), "usage")).start(t, linked, longProgram...)
		s := converse(t, r)
		s.says(t, steps...)
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := r.cmd.Wait(); !errors.As(err, &exit) {
			t.Errorf("got %v", err)
		}
		if _, err := pause.Open(t.Context(), []int{r.pid()}); err == nil {
			t.Error("somebody still listens")
		}
	}
}

// gpus are moves by the last bytes of the UUIDs.
func gpus(t *testing.T, text string) *pause.Moves {
	t.Helper()
	text = regexp.MustCompile(`\d`).ReplaceAllStringFunc(text, func(n string) string {
		return "GPU-fafafafa-fafa-fafa-fafa-fafafafafa0" + n
	})
	m, err := pause.ParseMoves(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMove: programs move between GPUs and change places, and their memory with them.
func TestMove(t *testing.T) {
	want := alone().run(t, linked, longProgram...)
	usage := filepath.Join(t.TempDir(), "usage")
	r := pausable(usage).with("FAKE_DEVICES=2").start(t, linked, longProgram...)
	r.launches(t, 1)
	for _, c := range []struct {
		to   string
		used int
	}{{"1", 1}, {"0", 0}, {"0=1", 1}, {"1=0,0=1", 0}, {"0", 0}, {"5", 5}} {
		if err := moved(t, c.to, r); err != nil {
			t.Fatal(c.to, err)
		}
		for gpu := range 6 {
			if n := r.used(t, gpu); (n != 0) != (gpu == c.used) {
				t.Errorf("after %s: %d bytes of GPU %d are in use", c.to, n, gpu)
			}
		}
	}
	if err := moved(t, "9", r); err == nil || r.used(t, 5) == 0 {
		t.Errorf("there is no GPU 9: %v", err)
	}
	if err := paused(t, r); err != nil {
		t.Fatal(err)
	}
	if err := moved(t, "2", r); err != nil || r.used(t, 2) == 0 {
		t.Errorf("a paused program: %v", err)
	}
	r.ends(t, want)
}

// TestHeld plants a bug: a library that does not hold launches. What the program computes after the copy of a pause is
// lost then.
func TestHeld(t *testing.T) {
	want := alone().run(t, linked, "count")
	for _, name := range []string{"", "cuLaunchKernel"} {
		w := pausable(filepath.Join(t.TempDir(), "usage"))
		if name != "" {
			w[0] = "LD_PRELOAD=" + withRow(t, regexp.MustCompile(`\n`+name+` submit .*\n`), "\n"+name+"\n")
		}
		r, noticed := w.start(t, linked, "count"), false
		for r.used(t, 0) < 2<<20 { // until it launches
			time.Sleep(time.Millisecond)
		}
		for range 6 {
			s, err := tryToConverse(t, r)
			if err != nil {
				t.Log(err, r.said.String())
				break // it has ended
			}
			s.says(t, "quiet 60000", "quiet", "save", "saved")
			time.Sleep(100 * time.Millisecond)
			fmt.Fprintln(s, "stop")
			noticed = !s.lines.Scan() || s.lines.Text() != "stopped"
			_ = s.Close()
			if noticed {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		r.mayEnd(t)
		err := r.cmd.Wait()
		if noticed = noticed || err != nil || r.out.String() != want.out; noticed != (name != "") {
			t.Errorf("without a hold on %q: noticed: %v, %v\n%s", name, noticed, err, r.said.String())
		}
	}
}
