package capture_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestFreedThenClosed: a rank that has closed takes part in many checkpoints,
// whatever communicators were freed before.
func TestFreedThenClosed(t *testing.T) {
	opt := jobtest.Options(t)
	const epochs = 3
	err := mpitest.NewWorld(3, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		ck, _, err := jobtest.OpenStep(ctx, w, opt)
		if err != nil {
			return err
		}
		c, err := w.Dup()
		if err != nil {
			return err
		}
		pair, err := w.Split(w.Rank()/2, 0) // ranks 0 and 1, and rank 2 alone
		if err != nil {
			return err
		}
		if err := c.Free(); err != nil {
			return err
		}
		if w.Rank() == 2 {
			if err := pair.Free(); err != nil {
				return err
			}
			return ck.Close()
		}
		for n := 0; n < epochs && ctx.Err() == nil; n = len(ck.Stats().Epochs) {
			if w.Rank() == 0 && n == committed(ck) {
				if err := ck.Request(ctx); err != nil {
					return err
				}
			}
			if n == 1 && pair != nil {
				if err := pair.Free(); err != nil {
					return err
				}
				pair = nil
			}
			if err := ck.Point(ctx); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		if err := ck.Wait(ctx, "local"); err != nil {
			t.Errorf("rank %d, after %d epochs: %v", w.Rank(), len(ck.Stats().Epochs), err)
		}
		return ck.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// committed counts the epochs that are at the first level.
func committed(ck *coordinated.Checkpointer) int {
	n := 0
	for _, es := range ck.Stats().Epochs {
		if _, ok := es.Durable["local"]; ok {
			n++
		}
	}
	return n
}
