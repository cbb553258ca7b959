package persist_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
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

// hungAfter is the WriteTimeout of these tests: longer than a busy machine takes for a few
// small writes. They wait most of the time, and do so together.
const hungAfter = 2 * time.Second

// TestHungFirstLevel: a disk that does not answer costs the epoch that is on it, with
// the level's name, and neither the next one nor the program's end.
func TestHungFirstLevel(t *testing.T) {
	t.Parallel()
	for _, pool := range []int64{0, 4096} { // in the latter the program's own memory is written
		b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
		defer b.hangs("/local/", "epoch-0000000001", "rank-000001")()
		b.epochs, b.opt.WriteTimeout, b.opt.MaxPool = 2, hungAfter, pool
		b.ask = func(epochs []coordinated.EpochStats) bool { return len(epochs) == 0 || epochs[0].Err != nil }
		if err := b.run(); err != nil {
			t.Fatal(err)
		}
		for r, s := range b.stats {
			err := s.Epochs[0].Err
			var hung *coordinated.HungError
			if r == 1 && (!errors.As(err, &hung) || hung.Level != storage.LevelLocal) {
				t.Errorf("rank 1, epoch 1: got %v, want a *HungError at local", err)
			}
			if err == nil || !strings.Contains(err.Error(), "rank 1: write at level local: no progress") {
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
	t.Parallel()
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	defer b.hangs("/global/epoch-")()
	b.epochs, b.opt.WriteTimeout = 4, hungAfter
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	for r, s := range b.stats {
		if err := s.Epochs[0].Err; err == nil || !strings.Contains(err.Error(), "at level global: no progress") {
			t.Errorf("rank %d, epoch 1: got %v, want it to name the level", r, err)
		}
		for i := range s.Epochs {
			if _, ok := s.Epochs[i].Durable[storage.LevelLocal]; !ok {
				t.Errorf("rank %d, epoch %d is not at local: %v", r, i+1, s.Epochs[i].Err)
			}
		}
	}
}

// TestHungOuterLevelUnderWay: epochs that are written to the node's disk meanwhile do not hide
// that the file server hangs.
func TestHungOuterLevelUnderWay(t *testing.T) {
	t.Parallel()
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	defer b.hangs("/global/epoch-")()
	b.opt.WriteTimeout = hungAfter
	const most = 60
	b.epochs = most
	next := time.Now()
	b.ask = func([]coordinated.EpochStats) bool { // all of them take longer than the server is given
		if time.Now().Before(next) {
			return false
		}
		next = time.Now().Add(4 * hungAfter / most)
		return true
	}
	b.until = func(epochs []coordinated.EpochStats) bool { return len(epochs) > 0 && epochs[0].Err != nil }
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	for r, s := range b.stats {
		if err := s.Epochs[0].Err; err == nil || !strings.Contains(err.Error(), "at level global: no progress") ||
			len(s.Epochs) >= most {
			t.Errorf("rank %d, epoch 1 of %d: got %v, want it to name the level", r, len(s.Epochs), err)
		}
	}
}

// TestFinalBehindAFlush: the time that is left is known to one rank. All go by it. An epoch
// that is slow on its way to global, or hangs, gives way to the final one, even if its
// memory was recalled. If the server hangs for that one too, this is said, and the program ends.
func TestFinalBehindAFlush(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		hangs string // below it writing hangs
		late  bool
		left  time.Duration
	}{{"slow", "", false, 30 * time.Second}, {"hangs", "/global/epoch-0000000001", false, 30 * time.Second},
		{"the server hangs", "/global/epoch-", true, 6 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			f := finalBehind{bulk: newBulk(t, storage.LevelLocal, storage.LevelGlobal), late: c.late, left: c.left,
				asked: make(chan struct{})}
			over := make(chan struct{})
			defer close(over)
			f.fs.before = func(file string) {
				if strings.Contains(file, "/global/epoch-0000000001") {
					<-f.asked
				}
				if c.hangs != "" && strings.Contains(file, c.hangs) {
					<-over
				}
			}
			if c.hangs == "" {
				f.opt.FlushRate = 2 << 20 // the first epoch, of 64 MB, takes longer than there is time
			}
			var before [2]atomic.Bool
			f.seam.CopyTime = func(rank int, left time.Duration) time.Duration {
				if before[rank].Swap(true) {
					return 0 // not known: it is tried
				}
				return left - left/10 // there is just enough time, the one before has to give way
			}
			f.wire(2)
			if err := mpitest.NewWorld(2, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
				return f.rank(t, w)
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// finalBehind is a program that is stopped while its first epoch is copied to global.
type finalBehind struct {
	*bulk
	late  bool // the final epoch does not come to global either
	left  time.Duration
	asked chan struct{} // closed when the final checkpoint is asked for
}

func (f *finalBehind) rank(t *testing.T, w *mpiwrap.Comm) error {
	ctx := context.Background()
	var parts connect.Inside
	s := f.seam
	s.Opened = func(p connect.Inside) { parts = p }
	ck, err := coordinated.Open(connect.WithSeam(f.under(ctx), s), w, f.opt)
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
	for i := range data {
		data[i] = float64(i)
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
	data = data[:1000] // the final one is small, and so not slow
	if w.Rank() == 1 { // not rank 0
		parts.KillIn(f.left)
		if err := ck.RequestStop(ctx); err != nil {
			return err
		}
		close(f.asked)
	}
	for err == nil {
		err = ck.Point(ctx)
	}
	if !errors.Is(err, coordinated.ErrStop) {
		return err
	}
	if err := ck.Close(); err != nil { // what became of the first epoch is known then
		return err
	}
	epochs := ck.Stats().Epochs
	var late *coordinated.GraceError
	_, copied := epochs[1].Durable[storage.LevelGlobal]
	switch {
	case f.late && !errors.As(epochs[1].Err, &late):
		t.Errorf("rank %d: got %v, want a *GraceError", w.Rank(), epochs[1].Err)
	case !f.late && (!copied || !errors.Is(epochs[0].Err, persist.ErrYields)):
		t.Errorf("rank %d: the final epoch is at %v (%v), and the one before ended with %v; want the one at global "+
			"and the other given way",
			w.Rank(), epochs[1].Durable, epochs[1].Err, epochs[0].Err)
	}
	return nil
}
