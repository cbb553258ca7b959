package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
)

// clients returns the programs on a server.
func (l *lab) clients(s *server) []gpud.ClientStatus {
	l.Helper()
	a, err := gpud.DialStatus(l.Context(), s.addr, l.key())
	if err != nil {
		l.Fatal(err)
	}
	defer a.Close()
	st, err := a.Status(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	return st.Clients
}

// TestMovedAtRandomMoments moves each application between two servers while it
// computes: its result is that of a run that stayed.
func TestMovedAtRandomMoments(t *testing.T) {
	l := newLab(t)
	servers := []*server{l.serve("a"), l.serve("b")}
	t.Logf("seed %d", *moveSeed)
	r := rand.New(rand.NewPCG(*moveSeed, 9))
	for _, name := range applications {
		t.Run(name, func(t *testing.T) {
			l := &lab{t, l.dir}
			load := float64(*moves) / 2 // long enough for most of the moves
			begin := time.Now()
			want := l.wait(l.app(name, load, "pocl", nil))
			took := time.Since(begin)
			moved := 0
			for moved < *moves { // a short run may end before all its moves
				a := l.app(name, load, l.device(servers...), nil)
				at := 0
				l.until("it has a device", a, func() bool { return l.number(servers[0], a) != 0 })
				for range *moves - moved {
					time.Sleep(time.Duration(r.Int64N(int64(took)/int64(*moves) + 1))) // the moment
					if !l.move(a, servers[at], servers[1-at], r.IntN(2) == 0) {
						break
					}
					moved++
					at = 1 - at
				}
				if !bytes.Equal(l.wait(a), want) {
					t.Fatalf("the result is another one after %d moves\n%s", moved, a.log)
				}
			}
		})
	}
}

// number returns an application's at a server, 0 when it has no device there. Those
// that have ended may still be listed.
func (l *lab) number(s *server, a *app) uint64 {
	l.Helper()
	for _, c := range l.clients(s) {
		if c.PID == a.cmd.Process.Pid {
			return c.ID
		}
	}
	return 0
}

// move moves an application from a server to another one; false when it has ended
// meanwhile.
func (l *lab) move(app *app, from, to *server, named bool) bool {
	l.Helper()
	number := l.number(from, app)
	if number == 0 {
		return false
	}
	a, err := gpud.DialAdmin(l.Context(), from.addr, gpud.MoveKeyFile(l.key()))
	if err != nil {
		l.Fatal(err)
	}
	defer a.Close()
	where := "remote=" + to.addr
	if named {
		where += ",pocl"
	}
	m, err := a.Move(l.Context(), number, where)
	if err != nil {
		for _, ended := range []string{"disconnected", "no client has number", gpustate.ErrClosed.Error()} {
			if strings.Contains(err.Error(), ended) {
				return false
			}
		}
		l.Fatal(err)
	}
	var steps gpustate.Migration
	if err := json.Unmarshal(m.Steps, &steps); err != nil || steps.Total <= 0 {
		l.Errorf("steps %s: %v", m.Steps, err)
	}
	return true
}

var bodies []byte // the result of stayed; the tests run one after the other

// stayed returns the result of nbody of load 2 that stayed where it was.
func (l *lab) stayed() []byte {
	l.Helper()
	if bodies == nil {
		bodies = l.wait(l.app("nbody", 2, "pocl", nil))
	}
	return bodies
}

// TestServerKilled: a server that is killed is named by its clients at once, and
// the job continues from its last checkpoint on another one.
func TestServerKilled(t *testing.T) {
	l := newLab(t)
	want := l.stayed()
	one, two := l.serve("one"), l.serve("two")
	directory := filepath.Join(l.dir, "global")
	if err := os.Mkdir(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	more := []string{"-global", directory, "-job", "killed"}
	a := l.app("nbody", 2, l.device(one, two), []string{"HOLDFAST_INTERVAL=50ms", "HOLDFAST_APPS_HOLD=1"}, more...)
	l.until("a checkpoint", a, func() bool { return strings.Contains(a.log.String(), "committed rank=0 epoch=2 ") })
	workers := l.workers(one)
	if len(workers) != 1 {
		t.Errorf("the server has the workers %v, want one", workers)
	}
	if err := one.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-a.end:
		if err == nil {
			t.Error("the application ended well without its device")
		}
	case <-time.After(hard):
		t.Fatalf("the application does not notice\n%s", a.log)
	}
	if text := a.log.String(); !strings.Contains(text, "GPU server "+one.addr+" is lost") {
		t.Errorf("the error does not name the server:\n%s", text)
	}
	for _, pid := range workers {
		for deadline := time.Now().Add(hard); ; time.Sleep(10 * time.Millisecond) {
			if b, err := os.ReadFile("/proc/" + pid + "/cmdline"); err != nil || len(b) == 0 {
				break // a zombie of init's at most
			}
			if time.Now().After(deadline) {
				t.Fatalf("worker %s outlives its server", pid)
			}
		}
	}
	again := l.app("nbody", 2, l.device(one, two), nil, more...)
	if !bytes.Equal(l.wait(again), want) {
		t.Error("the result after the restart is another one")
	}
	if !strings.Contains(again.log.String(), "restored") {
		t.Errorf("it started over:\n%s", again.log)
	}
}

// TestServerLeaves: TERM moves the programs to a peer before the server leaves,
// USR1 moves them and the server stays.
func TestServerLeaves(t *testing.T) {
	l := newLab(t)
	want := l.stayed()
	last := l.serve("last")
	second := l.serve("second", "--peer", last.addr)
	first := l.serve("first", "--peer", second.addr)
	a := l.app("nbody", 2, l.device(first), nil)
	l.until("it computes", a, func() bool {
		list := l.clients(first)
		return len(list) == 1 && list[0].Commands > 3
	})
	if err := first.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	l.until("it has moved", a, func() bool { return len(l.clients(second)) == 1 && len(l.clients(first)) == 0 })
	if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := l.left(second); code != 0 {
		t.Errorf("exit code %d after TERM, want 0", code)
	}
	if !bytes.Equal(l.wait(a), want) {
		t.Error("the result is another one")
	}
	if _, err := os.Stat(strings.TrimPrefix(second.addr, "unix:")); err == nil {
		t.Error("the socket of the server that left is still there")
	}
	refused := l.app("nbody", 1, l.device(first), nil)
	if err := <-refused.end; err == nil || !strings.Contains(refused.log.String(), "takes no new clients") {
		t.Errorf("after USR1: got %v, want a refusal\n%s", err, refused.log)
	}
}

// workers returns the processes of a server's workers.
func (l *lab) workers(s *server) (pids []string) {
	l.Helper()
	dir := fmt.Sprintf("/proc/%d/task", s.cmd.Process.Pid)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		l.Fatal(err)
	}
	for _, t := range tasks {
		b, _ := os.ReadFile(filepath.Join(dir, t.Name(), "children"))
		pids = append(pids, strings.Fields(string(b))...)
	}
	return pids
}

// TestProgramStopped: a program that is stopped loses its device after --timeout,
// and gets an error when it goes on; a program beside it goes on meanwhile.
func TestProgramStopped(t *testing.T) {
	l := newLab(t)
	want := l.stayed()
	s := l.serve("s", "--timeout", "6s")
	a, b := l.app("nbody", 2, l.device(s), nil), l.app("nbody", 2, l.device(s), nil)
	l.until("both compute", a, func() bool {
		list := l.clients(s)
		return len(list) == 2 && list[0].Commands > 3 && list[1].Commands > 3
	})
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(l.wait(b), want) {
		t.Error("the result of the program beside it is another one")
	}
	for deadline := time.Now().Add(hard); len(l.clients(s))+len(l.workers(s)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the stopped program still has its device")
		}
	}
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-a.end; err == nil || !strings.Contains(a.log.String(), "silent for 6s") {
		t.Errorf("got %v, want what was wrong\n%s", err, a.log)
	}
}
