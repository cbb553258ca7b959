package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/node/fake"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// serve runs a daemon for a test; end waits for it.
func serve(t *testing.T) (key string, said *testbuf.Buffer, end func()) {
	t.Helper()
	return serveIn(t, t.TempDir())
}

func serveIn(t *testing.T, local string) (key string, said *testbuf.Buffer, end func()) {
	t.Helper()
	return serveWaiting(t, local, 2*time.Second)
}

// serveWaiting is serveIn with a WaitTimeout.
func serveWaiting(t *testing.T, local string, wait time.Duration) (key string, said *testbuf.Buffer, end func()) {
	t.Helper()
	said = &testbuf.Buffer{}
	log := slog.New(slog.NewTextHandler(said, nil))
	key = fmt.Sprintf("test-%d-%s", os.Getpid(), t.Name())
	ready, done := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		done <- Run(ctx, Options{Key: key, Logger: log, Ready: func() { close(ready) },
			Checkpoints: coordinated.Options{Job: "test", Local: local, Logger: log,
				WaitTimeout: wait}})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	end = func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	}
	return key, said, end
}

// TestStarterEnds: a daemon whose starter has ended before any client came waits for none.
func TestStarterEnds(t *testing.T) {
	starter := exec.Command("true")
	if err := starter.Run(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- Run(context.Background(), Options{Key: fmt.Sprintf("test-%d-%s", os.Getpid(), t.Name()),
			Starter: starter.Process.Pid, Wait: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for a client")
	}
}

// fakeClient speaks the protocol as a test wants.
type fakeClient struct {
	t *testing.T
	*net.UnixConn
}

func dial(t *testing.T, key string) fakeClient {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: Address(key), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // it may be closed already
	if err := c.SetDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return fakeClient{t, c}
}

func (c fakeClient) say(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// hear returns the type of the next message; 0 at the end.
func (c fakeClient) hear() wire.Type {
	b := make([]byte, wire.MaxBytes)
	n, err := c.Read(b)
	if err != nil || n < wire.HeaderBytes {
		return 0
	}
	return wire.Type(uint16(b[6]) | uint16(b[7])<<8)
}

func (c fakeClient) hello(rank, size int32) {
	c.t.Helper()
	m := wire.Message{Type: wire.TypeHello, Rank: rank, Size: size, Text: "fake"}
	c.say(fake.Bytes(&m))
}

// TestNonsense hangs up on clients that do not speak the protocol, and serves the next.
func TestNonsense(t *testing.T) {
	key, said, end := serve(t)
	defer end()
	point := wire.Message{Type: wire.TypePoint}
	copied := wire.Message{Type: wire.TypeCopied}
	for name, talk := range map[string]func(fakeClient){
		"text":            func(c fakeClient) { c.say([]byte("GET / HTTP/1.1\r\n\r\n")) },
		"before HELLO":    func(c fakeClient) { c.say(fake.Bytes(&point)) },
		"longest and one": func(c fakeClient) { c.say(make([]byte, wire.MaxBytes+1)) },
		"an answer": func(c fakeClient) {
			c.hello(0, 1)
			for range 2 { // WELCOME, DONE
				c.hear()
			}
			c.say(fake.Bytes(&copied))
		},
		"ARRIVED of nothing": func(c fakeClient) {
			c.hello(0, 1)
			for range 2 {
				c.hear()
			}
			c.say(fake.Bytes(&wire.Message{Type: wire.TypeArrived}))
		},
		"later, unasked": func(c fakeClient) {
			c.hello(0, 1)
			for range 2 {
				c.hear()
			}
			large := wire.Message{Type: wire.TypeProtect, Elem: 11, Count: 10000, Text: "large"}
			save := wire.Message{Type: wire.TypeSave, All: true, Text: "later"}
			c.say(fake.Bytes(&large))
			c.hear()
			c.say(fake.Bytes(&save))
			c.await(wire.TypeCopy)
			c.say(fake.Bytes(&wire.Message{Type: wire.TypeCopied, Flags: wire.CopiedLater}))
		},
		"two requests": func(c fakeClient) {
			c.hello(0, 2) // waits for rank 1
			c.hear()
			c.say(fake.Bytes(&point))
			_, _ = c.Write(fake.Bytes(&point)) // it may be hung up on already
		},
	} {
		before := len(said.String())
		c := dial(t, key)
		talk(c)
		for c.hear() != 0 { // until it is hung up on
		}
		if s := said.String()[before:]; !strings.Contains(s, "malformed") {
			t.Errorf("%s: the daemon does not say why it hung up:\n%s", name, s)
		}
	}
	c := dial(t, key)
	c.hello(0, 1)
	if a, b := c.hear(), c.hear(); a != wire.TypeWelcome || b != wire.TypeDone {
		t.Errorf("after nonsense a client hears %d, %d, want WELCOME and DONE\n%s", a, b, said)
	}
}

// TestNotOpened: why the checkpoints cannot be opened is said once, before any client learns it, and once more in the
// next start. The hint at another MPI's launcher is part of it.
func TestNotOpened(t *testing.T) {
	t.Setenv("PMI_SIZE", "2")
	key, said, end := serveIn(t, t.TempDir()+"/none")
	defer end()
	const line = "cannot open the checkpoints"
	for start := 1; start <= 2; start++ {
		clients := []fakeClient{dial(t, key), dial(t, key)}
		for r, c := range clients {
			c.hello(int32(r), 2)
		}
		for _, c := range clients {
			if w, e := c.hear(), c.hear(); w != wire.TypeWelcome || e != wire.TypeError {
				t.Fatalf("got %d, %d, want WELCOME and ERROR", w, e)
			}
			if s := said.String(); strings.Count(s, line) != start || strings.Contains(s, "another MPI") {
				t.Errorf("start %d: want it said once, before a client hears of it:\n%s", start, s)
			}
		}
		for _, c := range clients {
			_ = c.Close() // the daemon sees it
		}
	}
	c := dial(t, key)
	c.hello(0, 1)
	c.await(wire.TypeError)
	if s := said.String(); !strings.Contains(s, "PMI_SIZE says that 2 were started: is mpirun that of another MPI") {
		t.Errorf("no hint at the launcher:\n%s", s)
	}
}

// TestMissing gives up when not all ranks come, and names them.
func TestMissing(t *testing.T) {
	key, said, end := serveWaiting(t, t.TempDir(), 200*time.Millisecond) // ranks are waited for ten times as long
	defer end()
	a, b := dial(t, key), dial(t, key)
	a.hello(0, 3)
	b.hello(2, 3)
	for _, c := range []fakeClient{a, b} {
		if w, e := c.hear(), c.hear(); w != wire.TypeWelcome || e != wire.TypeError {
			t.Errorf("got %d, %d, want WELCOME and ERROR", w, e)
		}
	}
	if !strings.Contains(said.String(), "rank(s) 1 have not") {
		t.Errorf("the daemon does not name the missing rank:\n%s", said)
	}
}

// TestGoneInOpen has a client leave after each of the exchanges of Open in turn. The daemon ends what it
// had begun, and serves the next.
func TestGoneInOpen(t *testing.T) {
	key, said, end := serve(t)
	defer end()
	exchanged := wire.Message{Type: wire.TypeExchanged}
	for answers, opened := 0, false; !opened; answers++ {
		c := dial(t, key)
		m := wire.Message{Type: wire.TypeHello, Size: 1, Flags: wire.HelloGathers, Text: "fake"}
		c.say(fake.Bytes(&m))
		for n := 0; n <= answers && !opened; {
			switch c.hear() {
			case wire.TypeWelcome:
			case wire.TypeExchange:
				if n++; n <= answers {
					c.say(fake.Bytes(&exchanged))
				}
			case wire.TypeDone:
				opened = true
			default:
				t.Fatalf("after %d exchanges the client is not served\n%s", n, said)
			}
		}
		_ = c.Close() // the daemon sees it
		next := dial(t, key)
		next.hello(0, 1)
		if a, b := next.hear(), next.hear(); a != wire.TypeWelcome || b != wire.TypeDone {
			t.Fatalf("after one that left in exchange %d a client hears %d, %d, want WELCOME and DONE\n%s",
				answers+1, a, b, said)
		}
		_ = next.Close() // as above
		if opened && answers < 4 {
			t.Errorf("Open had only %d exchanges", answers)
		}
	}
}

// TestTaken has one daemon for a job.
func TestTaken(t *testing.T) {
	key, _, end := serve(t)
	defer end()
	if err := Run(context.Background(), Options{Key: key}); !errors.Is(err, ErrTaken) {
		t.Errorf("got %v, want %v", err, ErrTaken)
	}
}

// TestFinalizeOrLoss: an hf_finalize that is answered when its client has been given up closes nothing, and leaves the
// memory; one that ends because the job is over is a loss before rankLost has run.
func TestFinalizeOrLoss(t *testing.T) {
	var s session
	s.phase.Store(phaseAborted)
	if err := s.finalize(); !errors.Is(err, errDisconnected) || s.phase.Load() == phaseFinalized {
		t.Errorf("got %v, phase %d, want that the program has gone", err, s.phase.Load())
	}
	if lost := fmt.Errorf("close: %w", &coordinated.LostError{Rank: 1}); !s.isLoss(lost) || s.isLoss(errDisconnected) {
		t.Error("a *LostError alone is a loss")
	}
}
