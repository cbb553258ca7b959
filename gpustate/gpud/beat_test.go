package gpud

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// TestStopped: clients of a server that is stopped get an error after the time that
// they chose, through either kind of connection, in calls that wait; other clients
// do not.
func TestStopped(t *testing.T) {
	p := serve(t, Options{Listen: []string{"unix:" + filepath.Join(t.TempDir(), "s"), "127.0.0.1:0"},
		grace: 200 * time.Millisecond})
	good := open(t, p.sel)
	var stopped []*counter
	for _, addr := range p.Addrs() {
		sel := p.sel
		sel.Remote, sel.Silence = addr, wire.MinSilence
		stopped = append(stopped, open(t, sel))
	}
	for _, cl := range p.list() {
		if cl.ID > 1 {
			ok(t, syscall.Kill(cl.backend.PID(), syscall.SIGSTOP))
		}
	}
	errs := make([]chan error, len(stopped))
	for i, c := range stopped {
		errs[i] = make(chan error, 1)
		go func() {
			for {
				err := c.step()
				if err == nil {
					err = c.q.Finish()
				}
				if err != nil {
					errs[i] <- err
					return
				}
			}
		}()
	}
	for i, addr := range p.Addrs() {
		q := *p
		q.addr = addr
		lost(t, <-errs[i], &q, "silent for 3s")
		_ = stopped[i].d.Close()
	}
	ok(t, good.step())
	ok(t, good.check())
	ok(t, good.d.Close())
	p.quiet(t) // what was stopped does not stay
	noWorkersLeft(t)
}

// TestFrozen: a client that says nothing is dropped after Options.Timeout, and not
// without it; one that waits for a long command is not.
func TestFrozen(t *testing.T) {
	release := closeGate()
	defer release()
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}, Timeout: wire.MinSilence})
	patient := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	busy := open(t, p.sel)
	prog := must(busy.d.Program("g", gpustate.Sources{OpenCL: "count gated"}, ""))(t)
	gated := must(prog.Kernel("gated"))(t)
	ok(t, gated.SetArgs(busy.b))
	must(busy.q.Launch(gated, []int{1}, nil))(t)
	c, d := raw(t, p), raw(t, patient)
	say(t, c, &wire.Open{Index: 0})
	say(t, d, &wire.Open{Index: 0})
	ok(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	var heard strings.Builder
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		heard.Write(b[:n])
		if err != nil {
			break
		}
	}
	if !strings.Contains(heard.String(), "was silent for 3s") {
		t.Errorf("the client was told %q", heard.String())
	}
	for p.clients() > 1 {
		time.Sleep(time.Millisecond)
	}
	if n := patient.clients(); n != 1 {
		t.Errorf("%d clients without a limit, want the one that is silent", n)
	}
	release()
	ok(t, busy.q.Finish())
	ok(t, busy.check())
	ok(t, busy.d.Close())
	ok(t, d.Close())
	p.quiet(t)
	patient.quiet(t)
}
