package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
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
				opt := jobtest.Options(t)
				opt.CutTimeout = time.Minute
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
func pollBetween(t *testing.T, w *mpiwrap.Comm, opt coordinated.Options, source int, d time.Duration) error {
	ctx := context.Background()
	armed := make(chan struct{})
	ck, _, err := jobtest.OpenStep(connect.WithSeam(ctx, connect.Seam{Phase: func(_ int, name string) {
		if name == "armed" {
			close(armed)
		}
	}}), w, opt)
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
		<-armed // the request is on its way
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
	opt := jobtest.Options(t)
	opt.CutTimeout = time.Minute
	err := mpitest.NewWorld(3, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		ctx := context.Background()
		ck, _, err := jobtest.OpenStep(ctx, w, opt)
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

// BenchmarkPoint measures a Point with nothing asked.
func BenchmarkPoint(b *testing.B) {
	c := &coordinated.Checkpointer{}
	ctx := context.Background()
	for b.Loop() {
		if err := c.Point(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
