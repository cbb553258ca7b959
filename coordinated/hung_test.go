package coordinated

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
)

// hangs makes writes to files whose names have all of parts wait until free is called.
func (b *bulk) hangs(parts ...string) (free func()) {
	gone := make(chan struct{})
	b.fs.before = func(name string) {
		for _, p := range parts {
			if !strings.Contains(name, p) {
				return
			}
		}
		<-gone
	}
	return sync.OnceFunc(func() { close(gone) })
}

// TestHungFirstLevel: a disk that does not answer costs the epoch that is on it, with
// the level's name, and neither the next one nor the program's end.
func TestHungFirstLevel(t *testing.T) {
	for _, pool := range []int64{0, 4096} { // in the latter the program's own memory is written
		b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
		defer b.hangs("/local/", "epoch-0000000001", "rank-000001")()
		b.epochs, b.opt.WriteTimeout, b.opt.MaxPool = 2, 200*time.Millisecond, pool
		b.ask = func(epochs []EpochStats) bool { return len(epochs) == 0 || epochs[0].Err != nil }
		if err := b.run(); err != nil {
			t.Fatal(err)
		}
		for r, s := range b.stats {
			err := s.Epochs[0].Err
			var hung *HungError
			if r == 1 && (!errors.As(err, &hung) || hung.Level != storage.LevelLocal) {
				t.Errorf("rank 1, epoch 1: got %v, want a *HungError at local", err)
			}
			if err == nil || !strings.Contains(err.Error(), "rank 1: write at level local: nothing has moved") {
				t.Errorf("rank %d, epoch 1: got %v, want it to name rank 1 and the level", r, err)
			}
			if _, ok := s.Epochs[1].Durable[storage.LevelGlobal]; !ok {
				t.Errorf("rank %d, epoch 2 is not at global: %v", r, s.Epochs[1].Err)
			}
		}
	}
}

// TestHungOuterLevel: a file server that does not answer keeps nothing from the first
// level, and the program's end neither.
func TestHungOuterLevel(t *testing.T) {
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	defer b.hangs("/global/epoch-")()
	b.epochs, b.opt.WriteTimeout = 4, 200*time.Millisecond
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	for r, s := range b.stats {
		if err := s.Epochs[0].Err; err == nil || !strings.Contains(err.Error(), "at level global: nothing has moved") {
			t.Errorf("rank %d, epoch 1: got %v, want it to name the level", r, err)
		}
		for i := range s.Epochs {
			if _, ok := s.Epochs[i].Durable[storage.LevelLocal]; !ok {
				t.Errorf("rank %d, epoch %d is not at local: %v", r, i+1, s.Epochs[i].Err)
			}
		}
	}
}

// TestFinalBehindAFlush: the time that is left is known to one rank. All go by it, and
// what the final epoch does not reach, since the copying of the one before hangs, is said.
// A copy that is only slow is not tried: whether the final epoch reaches global behind it
// hangs on the rate that was measured, and so on the machine.
func TestFinalBehindAFlush(t *testing.T) {
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	gone := make(chan struct{})
	defer close(gone)
	b.fs.before = func(file string) {
		if strings.Contains(file, "/global/epoch-0000000001") {
			<-gone
		}
	}
	b.opt.plane = newMemNet(2).plane
	err := mpitest.NewWorld(2, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error { return b.finalBehind(t, w) })
	if err != nil {
		t.Fatal(err)
	}
}

const finalTime = 12 * time.Second

func (b *bulk) finalBehind(t *testing.T, w *mpiwrap.Comm) error {
	ctx := context.Background()
	ck, err := Open(ctx, w, b.opt)
	if err != nil {
		return err
	}
	data := make([]float64, 4_000_000)
	if err := ck.Protect("data", &data); err != nil {
		return err
	}
	if _, err := ck.Restore(ctx); err != nil {
		return err
	}
	if w.Rank() == 0 {
		if err := ck.Request(ctx); err != nil {
			return err
		}
	}
	for len(ck.Stats().Epochs) == 0 {
		if err := ck.Point(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(ck.Wait(ctx, "local"), w.Barrier()); err != nil {
		return err
	}
	if w.Rank() == 1 { // not rank 0
		ck.limitStop(finalTime)
		if err := ck.RequestStop(ctx); err != nil {
			return err
		}
	}
	begin := time.Now()
	for err == nil {
		err = ck.Point(ctx)
	}
	if !errors.Is(err, ErrStop) {
		return err
	}
	took := time.Since(begin)
	es := ck.Stats().Epochs[1]
	var late *GraceError
	switch {
	case took > 5*finalTime:
		t.Errorf("rank %d: the final checkpoint took %v, and %v were left", w.Rank(), took, finalTime)
	case !errors.As(es.Err, &late):
		t.Errorf("rank %d: got %v, want a *GraceError", w.Rank(), es.Err)
	}
	return ck.Close()
}
