package job

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/config"
)

// supervised returns a supervisor and what its callers know it by.
func supervised(t *testing.T) (*Supervisor, string) {
	t.Helper()
	s, err := Supervise("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	s.SetStart(3)
	return s, s.Var(false, false)[len(config.SupervisorVar)+1:]
}

// attending runs a guard; what it returns comes on the channel.
func attending(t *testing.T, supervisor string, silence time.Duration) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		over, err := ServeGuard(t.Context(), supervisor, "n2", silence)
		if over != (err == nil) {
			err = errors.New("over and an error")
		}
		done <- err
	}()
	return done
}

// TestGuard: a guard receives the orderly end of its supervisor, and notices when it falls
// silent although its machine still takes connections, or is gone.
func TestGuard(t *testing.T) {
	s, value := supervised(t)
	done := attending(t, value, time.Minute)
	g, err := s.AcceptCaller(t.Context(), CallerGuard)
	if err != nil || g.Node != "n2" {
		t.Fatalf("got %+v, %v", g, err)
	}
	for range 3 {
		if err := errors.Join(g.Say(Beat{}), g.Hear(&Beat{}, time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(g.Say(Beat{Over: true}), g.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("a supervisor that ended in order: got %v", err)
	}

	done = attending(t, value, 50*time.Millisecond)
	if g, err = s.AcceptCaller(t.Context(), CallerGuard); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent supervisor: got %v", err)
	}
	if err := g.Hear(&Beat{}, time.Minute); err == nil {
		t.Error("a guard that has hung up answers")
	}

	done = attending(t, value, time.Minute)
	if g, err = s.AcceptCaller(t.Context(), CallerGuard); err != nil {
		t.Fatal(err)
	}
	_ = g.Close()
	if err := <-done; err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a supervisor that is gone: got %v", err)
	}
}

// TestAskSupervisor: a process that answers is alive; a machine that takes connections
// and says nothing, as one with a frozen process, is not.
func TestAskSupervisor(t *testing.T) {
	s, value := supervised(t)
	if err := askSupervisor(t.Context(), value, time.Minute); err != nil {
		t.Errorf("a supervisor: got %v", err)
	}
	frozen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close()
	_, rest, _ := strings.Cut(value, " ")
	if err := askSupervisor(t.Context(), frozen.Addr().String()+" "+rest, 100*time.Millisecond); err == nil {
		t.Error("a machine that only takes connections: got no error")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := askSupervisor(t.Context(), value, time.Minute); err == nil {
		t.Error("a supervisor that is gone: got no error")
	}
}

// TestStarted: the end of a process that has announced itself is noticed, and those of
// earlier starts are not listened to.
func TestStarted(t *testing.T) {
	s, value := supervised(t)
	p, err := Announce(t.Context(), value, "n4", "7")
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.AcceptCaller(t.Context(), CallerStarted)
	if err != nil || st.Node != "n4" || st.Step != "7" {
		t.Fatalf("got %+v, %v", st, err)
	}
	gone := make(chan struct{})
	go func() { st.AwaitEnd(); close(gone) }()
	select {
	case <-gone:
		t.Error("a process that lives is gone")
	case <-time.After(20 * time.Millisecond):
	}
	_ = p.Close()
	<-gone
	_ = st.Close()

	s.SetStart(4)
	if p, err = Announce(t.Context(), value, "n4", "7"); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Read(make([]byte, 1)); err == nil {
		t.Error("a process of an earlier start is listened to")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.AcceptCaller(ctx, CallerStarted); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
