package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/trigger"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/program"
)

// one is an agent and what it has told.
type one struct {
	*Agent
	thread watch.Thread
	armed  chan bool
	lost   chan Loss
	late   chan []Late
	term   chan struct{}
}

// start starts the agents of n ranks that send no messages, on two nodes in turn, in a tree
// of two children each.
func start(t *testing.T, net *connecttest.Net, n int, change func(*Options)) []*one {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	var nodes []string
	for r := range n {
		nodes = append(nodes, fmt.Sprint("n", r%2))
	}
	var all []*one
	var background sync.WaitGroup
	for r := range n {
		x := &one{armed: make(chan bool, 8), lost: make(chan Loss, 1), late: make(chan []Late, 1),
			term: make(chan struct{}, 1)}
		x.thread.Now(watch.StateRunning)
		log := slog.New(slog.DiscardHandler)
		opt := Options{Topology: connect.Place(r, nodes, 2), Plane: net.Plane(r), Endpoint: program.NoMessages(r, n),
			Thread: &x.thread, Triggers: trigger.New(trigger.Options{Clock: r == 0, Log: log}), Log: log,
			Go: background.Go, CutTimeout: time.Minute, WaitTimeout: time.Minute,
			Arm: func(on bool) { x.armed <- on }, Phase: func(string) {}, Cut: func(cut.Epoch, Agreement) {},
			GaveUp: func(_ cut.Epoch, late []Late) { x.late <- late }, Terminated: func() { x.term <- struct{}{} },
			Lost: func(l Loss) { x.lost <- l }, Status: func() job.RankStatus { return job.RankStatus{} }}
		if change != nil {
			change(&opt)
		}
		var err error
		if x.Agent, err = New(ctx, opt); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	for _, x := range all {
		x.Start()
	}
	t.Cleanup(func() {
		cancel(ErrClosed)
		background.Wait()
		for _, x := range all {
			x.Stop()
			_ = x.Plane.Close()
		}
	})
	return all
}

// point reaches a Point when one is wanted, and returns the agent's verdict.
func (x *one) point(ctx context.Context) (Verdict, error) {
	for !<-x.armed {
	}
	// In one: an agent that looked in between would see the Point as passed, and send all ranks to the next.
	if err := x.Do(ctx, func() { x.thread.Points.Add(); x.arrive() }); err != nil {
		return Verdict{}, err
	}
	select {
	case v := <-x.Verdicts():
		return v, nil
	case <-ctx.Done():
		return Verdict{}, ctx.Err()
	}
}

func each(all []*one, f func(x *one) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for r, x := range all {
		wg.Go(func() { errs[r] = f(x) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// TestAllgather: every rank has the data of all, in order; one that does not wait gives its
// own.
func TestAllgather(t *testing.T) {
	all := start(t, connecttest.NewNet(5), 5, nil)
	err := each(all, func(x *one) error {
		me := []byte{byte(x.Topology.Rank)}
		if x.Topology.Rank == 3 {
			return x.Contribute(t.Context(), 7, "stage", me)
		}
		blobs, err := x.Allgather(t.Context(), 7, "stage", me)
		for r, b := range blobs {
			if b.Rank != r || len(b.Data) != 1 || int(b.Data[0]) != r {
				err = errors.Join(err, fmt.Errorf("rank %d: got %v", x.Topology.Rank, blobs))
			}
		}
		if len(blobs) != 5 {
			err = errors.Join(err, fmt.Errorf("rank %d: got %d blobs, want 5", x.Topology.Rank, len(blobs)))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestCutAndEnd: a request at one rank brings all to one cut, and Close lets them go when all
// have come.
func TestCutAndEnd(t *testing.T) {
	all := start(t, connecttest.NewNet(3), 3, nil)
	if err := all[2].Request(t.Context(), trigger.Wish{Stop: true, By: "a test"}); err != nil {
		t.Fatal(err)
	}
	err := each(all, func(x *one) error {
		v, err := x.point(t.Context())
		if err != nil {
			return err
		}
		if !v.Cut || v.Epoch != 1 || !v.Stop {
			return fmt.Errorf("rank %d: got %+v, want the cut of a final epoch 1", x.Topology.Rank, v)
		}
		if err := x.Captured(t.Context(), v.Epoch); err != nil {
			return err
		}
		if x.Topology.Rank == 0 {
			if err := x.Freed(t.Context(), v.Epoch, time.Second, nil); err != nil {
				return err
			}
		}
		if err := x.Finish(t.Context()); err != nil {
			return err
		}
		if v := <-x.Verdicts(); !v.Ended {
			return fmt.Errorf("rank %d: got %+v, want the end", x.Topology.Rank, v)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestLate: an epoch that is given up says which rank did not come, and what it did.
func TestLate(t *testing.T) { synctest.Test(t, testLate) } // the others come in time, however busy the machine is

func testLate(t *testing.T) {
	all := start(t, connecttest.NewNet(3), 3, func(o *Options) { o.CutTimeout = 50 * time.Millisecond })
	if err := all[0].Request(t.Context(), trigger.Wish{}); err != nil {
		t.Fatal(err)
	}
	err := each(all, func(x *one) error {
		if x.Topology.Rank != 1 {
			if v, err := x.point(t.Context()); err != nil || v.Cut {
				return fmt.Errorf("rank %d: got %+v, %v", x.Topology.Rank, v, err)
			}
		}
		late := <-x.late
		for r, l := range late {
			if l.Rank != r || (l.State == "") != (r != 1) || r == 1 && !strings.Contains(l.State, "computing") {
				return fmt.Errorf("rank %d: got %+v, want rank 1 computing", x.Topology.Rank, late)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestLost: a rank that dies, or gives up, is heard of everywhere, once.
func TestLost(t *testing.T) {
	net := connecttest.NewNet(4)
	all := start(t, net, 4, nil)
	net.Kill(2)
	for _, x := range all {
		if x.Topology.Rank == 2 {
			continue
		}
		if l := <-x.lost; l.Rank != 2 || !strings.Contains(l.Observed, "killed") {
			t.Errorf("rank %d: got %+v", x.Topology.Rank, l)
		}
	}
	all = start(t, connecttest.NewNet(4), 4, nil)
	all[1].Abort(errors.New("no more"))
	for _, x := range all {
		if x.Topology.Rank == 1 {
			continue
		}
		l := <-x.lost
		why, ok := Abortion(l.Observed)
		if _, stuck := Deadlocked(l.Observed); l.Rank != 1 || !ok || why != "no more" || stuck {
			t.Errorf("rank %d: got %+v", x.Topology.Rank, l)
		}
	}
}

// TestInVain: after so many epochs in a row that came nowhere the job ends, and one that
// came somewhere starts the count again.
func TestInVain(t *testing.T) {
	all := start(t, connecttest.NewNet(2), 2, func(o *Options) { o.MaxFailed = 2 })
	full := errors.New("disk full")
	for _, err := range []error{full, nil, full} {
		if err := all[0].Freed(t.Context(), 0, 0, err); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case l := <-all[0].lost:
		t.Fatalf("after one in a row: got %+v", l)
	default:
	}
	if err := all[0].Freed(t.Context(), 0, 0, full); err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if l := <-x.lost; !strings.Contains(l.Observed, "2 consecutive checkpoints reached no level") ||
			!strings.Contains(l.Observed, "disk full") {
			t.Errorf("got %+v", l)
		}
	}
}

// TestRanks: status has all ranks, and names as silent one that does not answer.
func TestRanks(t *testing.T) {
	all := start(t, connecttest.NewNet(3), 3, nil)
	all[1].thread.Now(watch.StateDraining)
	begun, hush, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() { done <- all[2].Do(t.Context(), func() { close(begun); <-hush }) }()
	<-begun
	states, err := all[0].Ranks()
	close(hush)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	want := []string{watch.StateRunning, watch.StateDraining, watch.StateSilent}
	for r, s := range states {
		if s.State != want[r] || s.Rank != r || s.Node != fmt.Sprint("n", r%2) {
			t.Errorf("rank %d: got %+v, want %s", r, s, want[r])
		}
	}
	if len(states) != 3 {
		t.Errorf("got %d ranks, want 3", len(states))
	}
}

// TestTerminated: TERM says that the end is near, and other signals do not.
func TestTerminated(t *testing.T) {
	x := start(t, connecttest.NewNet(1), 1, nil)[0]
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM} {
		if err := x.Do(t.Context(), func() { x.Signalled(s) }); err != nil {
			t.Fatal(err)
		}
		if n := len(x.term); (n == 1) != (s == syscall.SIGTERM) {
			t.Errorf("%v: told %d times", s, n)
		}
	}
	x.Stop()
	if err := x.Do(t.Context(), func() {}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Stop: got %v, want ErrClosed", err)
	}
}

func TestSilence(t *testing.T) {
	for text, want := range map[string]time.Duration{"silent for 15s": 15 * time.Second, "connection reset": 0,
		"silent for ever": 0} {
		if got := Silence(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}
