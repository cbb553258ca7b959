package storage_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

func TestSkipRule(t *testing.T) {
	f := jobtest.NewWorldFS()
	for death := range jobtest.MaxDeaths + 1 {
		w, err := jobtest.OpenWorld(f)
		if err != nil {
			t.Fatal(err)
		}
		if death == 0 {
			for e := storage.Epoch(1); e <= 2; e++ {
				if err := w.TakeEpoch(e, func(storage.Epoch) {}); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := storage.Epoch(2)
		if death == jobtest.MaxDeaths {
			want = 1 // kept because epoch 2 refers to it
		}
		e, err := w.Newest()
		if err != nil || e != want {
			t.Fatalf("after %d deaths: got epoch %d, %v, want %d", death, e, err, want)
		}
		if e != 0 {
			if durable, err := w.Stores[0].NoteRestore(t.Context(), e); err != nil || durable() != nil {
				t.Fatal(err)
			}
		}
		w.Stop() // the program dies
	}
	w, err := jobtest.OpenWorld(f)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := w.Stores[0].NoteSurvival(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := w.Newest(); err != nil || e != 2 {
		t.Errorf("after a survival: got epoch %d, %v, want 2", e, err)
	}
}

func TestPendingFlush(t *testing.T) {
	w := jobtest.Unflushed(t)
	for _, s := range w.Stores {
		if p, err := s.Pending(t.Context(), storage.LevelLocal,
			storage.LevelGlobal); err != nil || len(p) != 1 || p[0].Epoch != 2 {
			t.Errorf("got %v, %v pending, want epoch 2", p, err)
		}
	}
}

func TestFlushDirsCompletesADeadJob(t *testing.T) {
	w := jobtest.Unflushed(t)
	dirs := []string{"/local0", "/local1"}
	if _, err := checkpoints.Flush(vfs.With(t.Context(), w.FS), dirs[:1], "/global", 0); err == nil {
		t.Error("flushed an epoch without the directory of rank 1")
	}
	e, err := checkpoints.Flush(vfs.With(t.Context(), w.FS), dirs, "/global", 0)
	if err != nil || e != 2 {
		t.Fatalf("got epoch %d, %v, want 2", e, err)
	}
	w.FS.RemoveAll("/local0/epoch-0000000002")
	w.FS.RemoveAll("/local1/epoch-0000000002")
	if err := w.Check(2); err != nil {
		t.Error(err)
	}
	if e, err := checkpoints.Flush(vfs.With(t.Context(), w.FS), dirs, "/global", 0); err != nil || e != 0 {
		t.Errorf("again: got epoch %d, %v, want nothing to do", e, err)
	}
}

func TestPruneDirs(t *testing.T) {
	f := jobtest.NewWorldFS()
	w := jobtest.OpenKeeping(t, f)
	defer w.Stop()
	for e := storage.Epoch(1); e <= 6; e++ {
		if err := w.TakeEpoch(e, func(storage.Epoch) {}); err != nil {
			t.Fatal(err)
		}
	}
	dry, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/local0", "/global"},
		checkpoints.PruneRules{Keep: 1, KeepEvery: 2, DryRun: true})
	// Epoch 3 holds chunks of epochs 4 and 5; nothing of 5 is needed by 6.
	if err != nil || fmt.Sprint(dry["/local0"]) != fmt.Sprint(dry["/global"]) {
		t.Errorf("got %v, %v", dry, err)
	}
	before := f.String()
	got, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/local0", "/global"},
		checkpoints.PruneRules{Keep: 1, KeepEvery: 2})
	if err != nil || fmt.Sprint(got) != fmt.Sprint(dry) || f.String() == before {
		t.Errorf("got %v, %v, want what the dry run said: %v", got, err, dry)
	}
	for _, e := range []storage.Epoch{2, 4, 6} {
		if err := w.Check(e); err != nil {
			t.Errorf("epoch %d was to be kept: %v", e, err)
		}
	}
	var bad *storage.OptionError
	if _, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/global"},
		checkpoints.PruneRules{}); !errors.As(err, &bad) {
		t.Errorf("keep 0: got %v", err)
	}
}

// TestNoEpochsWait takes epochs while nothing reaches the global level: the newest go
// there when it works again, so no more of them are kept than else.
func TestNoEpochsWait(t *testing.T) {
	w, err := jobtest.OpenWorld(jobtest.NewWorldFS())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	const epochs = 9
	s := w.Stores[0]
	s.Config(0).Full = true
	for e := storage.Epoch(1); e <= epochs; e++ {
		infos, err := w.Each(func(s *storage.Store, r int) (storage.ShardInfo, error) {
			return s.Put(t.Context(), e, storage.LevelLocal, jobtest.SmallSections(r, e))
		})
		if err == nil {
			err = w.Commit(e, storage.LevelLocal, infos)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	left, err := s.Level(0).Epochs()
	if keep := s.Config(0).Keep; err != nil || len(left) != keep || left[0] != epochs {
		t.Errorf("got epochs %v, %v, want the newest %d", left, err, keep)
	}
}

// TestFlushDirsPastDamage: the newest manifest at the global level is damaged. That
// it has the epoch is not taken for having it.
func TestFlushDirsPastDamage(t *testing.T) {
	w := jobtest.FullWorld(t, 2)
	if err := w.FS.Flip("/global/"+format.EpochName(2)+"/"+format.ManifestName, 30, 1); err != nil {
		t.Fatal(err)
	}
	if e, err := checkpoints.Flush(vfs.With(t.Context(), w.FS), []string{"/local0", "/local1"}, "/global", 0); e != 0 ||
		!errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("got epoch %d, %v, want to be told of the damage", e, err)
	}
}

func TestFlushDirsLeavesLiveRunsAlone(t *testing.T) {
	w := jobtest.Unflushed(t)
	d := level.NewDir(w.FS, storage.LevelGlobal, "/global", 0)
	live := &format.Lock{Run: "live", Owner: level.ThisProcess()}
	if ok, err := d.Lock(t.Context(), live, level.LockBeat); !ok || err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		quit := make(chan struct{})
		go func() {
			l := &format.Lock{Run: "live", Owner: level.ThisProcess()}
			for {
				select {
				case <-quit:
					return
				case <-time.After(level.LockBeat):
					_ = d.Beat(l)
				}
			}
		}()
		defer close(quit)
		var busy *storage.BusyError
		ctx := vfs.With(t.Context(), w.FS)
		if _, err := checkpoints.Flush(ctx, []string{"/local0", "/local1"}, "/global", 0); !errors.As(err, &busy) {
			t.Errorf("got %v, want a *BusyError", err)
		}
	})
}
