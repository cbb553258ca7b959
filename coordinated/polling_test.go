package coordinated

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// spin computes for d.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

// TestPollAndCompute: a rank that polls and computes between the polls gets its
// message from one that stands at a Point, and the epoch is committed.
func TestPollAndCompute(t *testing.T) {
	for _, source := range []int{1, mpiwrap.AnySource} {
		for _, d := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 60 * time.Millisecond,
			300 * time.Millisecond} {
			t.Run(fmt.Sprint("from ", source, " every ", d), func(t *testing.T) {
				opt := testOptions(t)
				opt.CutTimeout = 20 * time.Second
				err := mpitest.NewWorld(3, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
					return pollBetween(t, w, opt, source, d)
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// pollBetween lets rank 0 poll and rank 1 send after its Point; rank 2 stands by.
func pollBetween(t *testing.T, w *mpiwrap.Comm, opt Options, source int, d time.Duration) error {
	ctx := context.Background()
	ck, _, err := openStep(ctx, w, opt)
	if err != nil {
		return err
	}
	in := []float64{0}
	switch w.Rank() {
	case 0:
		if err := ck.Request(ctx); err != nil {
			return err
		}
		for there := false; !there; spin(d) {
			if _, there, err = w.Iprobe(source, 4); err != nil {
				return err
			}
		}
		if _, err := mpiwrap.Recv(w, in, 1, 4); err != nil {
			return err
		}
	case 1:
		for ck.gate.Load()&gateArmed == 0 { // the request is on its way
			runtime.Gosched()
		}
		if err := ck.Point(ctx); err != nil {
			return err
		}
		if err := mpiwrap.Send(w, in, 0, 4); err != nil {
			return err
		}
	}
	if err := errors.Join(ck.Point(ctx), ck.Close()); err != nil {
		return err
	}
	for _, es := range ck.Stats().Epochs {
		if es.Err != nil {
			t.Errorf("rank %d, epoch %d: %v", w.Rank(), es.Epoch, es.Err)
		}
	}
	return nil
}

// TestPollersPark: ranks that overlap computing with tests for each other's
// messages, which are not due yet, do not keep each other from parking.
func TestPollersPark(t *testing.T) {
	opt := testOptions(t)
	opt.CutTimeout = 20 * time.Second
	err := mpitest.NewWorld(3, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		ctx := context.Background()
		ck, _, err := openStep(ctx, w, opt)
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			if err := ck.Request(ctx); err != nil {
				return err
			}
		}
		left := (w.Rank() + 2) % 3
		for len(ck.Stats().Epochs) == 0 {
			for range 12 + 5*w.Rank() {
				if _, _, err := w.Iprobe(left, 1); err != nil {
					return err
				}
				spin(time.Millisecond)
			}
			if err := ck.Point(ctx); err != nil {
				return err
			}
		}
		if err := ck.Wait(ctx, "local"); err != nil {
			t.Errorf("rank %d: %v", w.Rank(), err)
		}
		return ck.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPolling: what counts as waiting, look by look.
func TestPolling(t *testing.T) {
	var p polling
	var had uint64
	v := pollView{last: endpoint.Wait{Source: 1}, wait: func(w endpoint.Wait) cut.Wait {
		return cut.Wait{Source: w.Source, Had: had}
	}}
	look := func(polls, points uint64, later time.Duration) (call uint64) {
		v.polls, v.points, v.now = v.polls+polls, v.points+points, v.now+later
		if b := p.look(v); b != nil {
			return b.Call &^ pollCall
		}
		return 0
	}
	check := func(what string, got, want uint64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got call %d, want %d", what, got, want)
		}
	}
	const tick = time.Millisecond
	check("first look", look(1, 0, tick), 0)
	for range pollLooks - 1 {
		check("some polls", look(1, 0, tick), 0)
	}
	check("enough polls", look(1, 0, tick), 1)
	check("computing between polls", look(0, 0, 100*tick), 1)
	check("polling on", look(5, 0, tick), 1)
	had++
	check("a message has come", look(1, 0, tick), 0)
	check("a poll", look(1, 0, tick), 0)
	check("another, much later", look(1, 0, time.Second), 2)
	check("a Point", look(0, 1, tick), 0)
	for range pollLooks {
		check("as many polls as before", look(1, 0, tick), 0)
	}
	for range pollLooks - 1 {
		check("waited in vain once, so more polls are needed", look(1, 0, tick), 0)
	}
	check("twice as many", look(1, 0, tick), 3)
}
