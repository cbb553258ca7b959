package storage

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// maxDeaths is how many deaths the tests put up with, as the callers of a Store do.
const maxDeaths = 2

func TestSkipRule(t *testing.T) {
	f := newWorldFS()
	for death := range maxDeaths + 1 {
		w, err := openWorld(f)
		if err != nil {
			t.Fatal(err)
		}
		if death == 0 {
			for e := Epoch(1); e <= 2; e++ {
				if err := w.takeEpoch(e, func(Epoch) {}); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := Epoch(2)
		if death == maxDeaths {
			want = 1 // kept because epoch 2 refers to it
		}
		e, err := w.newest()
		if err != nil || e != want {
			t.Fatalf("after %d deaths: got epoch %d, %v, want %d", death, e, err, want)
		}
		if e != 0 {
			if durable, err := w.stores[0].NoteRestore(t.Context(), e); err != nil || durable() != nil {
				t.Fatal(err)
			}
		}
		w.close() // the program dies
	}
	w, err := openWorld(f)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := w.stores[0].NoteSurvival(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := w.newest(); err != nil || e != 2 {
		t.Errorf("after a survival: got epoch %d, %v, want 2", e, err)
	}
}

// unflushed is a dead job with epoch 1 at both levels and epoch 2 at local only.
func unflushed(t *testing.T) *world {
	t.Helper()
	w, err := openWorld(newWorldFS())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	if err := w.takeEpoch(1, func(Epoch) {}); err != nil {
		t.Fatal(err)
	}
	infos, err := w.each(func(s *Store) (ShardInfo, error) {
		return s.Put(context.Background(), 2, LevelLocal, smallSections(s.opt.Rank, 2))
	})
	if err == nil {
		err = w.commit(2, LevelLocal, infos)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A flush that ended half-way.
	if _, err := w.stores[0].Flush(t.Context(), 2, LevelLocal, LevelGlobal, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestPendingFlush(t *testing.T) {
	w := unflushed(t)
	for _, s := range w.stores {
		if p, err := s.Pending(t.Context(), LevelLocal, LevelGlobal); err != nil || len(p) != 1 || p[0].Epoch != 2 {
			t.Errorf("got %v, %v pending, want epoch 2", p, err)
		}
	}
}

func TestFlushDirsCompletesADeadJob(t *testing.T) {
	w := unflushed(t)
	dirs := []string{"/local0", "/local1"}
	if _, err := checkpoints.Flush(vfs.With(t.Context(), w.fs), dirs[:1], "/global", 0); err == nil {
		t.Error("flushed an epoch without the directory of rank 1")
	}
	e, err := checkpoints.Flush(vfs.With(t.Context(), w.fs), dirs, "/global", 0)
	if err != nil || e != 2 {
		t.Fatalf("got epoch %d, %v, want 2", e, err)
	}
	w.fs.RemoveAll("/local0/epoch-0000000002")
	w.fs.RemoveAll("/local1/epoch-0000000002")
	if err := w.check(2); err != nil {
		t.Error(err)
	}
	if e, err := checkpoints.Flush(vfs.With(t.Context(), w.fs), dirs, "/global", 0); err != nil || e != 0 {
		t.Errorf("again: got epoch %d, %v, want nothing to do", e, err)
	}
}

func TestPruneDirs(t *testing.T) {
	f := newWorldFS()
	w := openKeeping(t, f)
	defer w.close()
	for e := Epoch(1); e <= 6; e++ {
		if err := w.takeEpoch(e, func(Epoch) {}); err != nil {
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
	for _, e := range []Epoch{2, 4, 6} {
		if err := w.check(e); err != nil {
			t.Errorf("epoch %d was to be kept: %v", e, err)
		}
	}
	var bad *OptionError
	if _, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/global"},
		checkpoints.PruneRules{}); !errors.As(err, &bad) {
		t.Errorf("keep 0: got %v", err)
	}
}

// TestNoEpochsWait takes epochs while nothing reaches the global level: the newest go
// there when it works again, so no more of them are kept than else.
func TestNoEpochsWait(t *testing.T) {
	w, err := openWorld(newWorldFS())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	const epochs = 9
	s := w.stores[0]
	s.levels[0].cfg.Full = true
	for e := Epoch(1); e <= epochs; e++ {
		infos, err := w.each(func(s *Store) (ShardInfo, error) {
			return s.Put(t.Context(), e, LevelLocal, smallSections(s.opt.Rank, e))
		})
		if err == nil {
			err = w.commit(e, LevelLocal, infos)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	left, err := s.levels[0].Epochs()
	if keep := s.levels[0].cfg.Keep; err != nil || len(left) != keep || left[0] != epochs {
		t.Errorf("got epochs %v, %v, want the newest %d", left, err, keep)
	}
}

// TestFlushDirsPastDamage: the newest manifest at the global level is damaged. That
// it has the epoch is not taken for having it.
func TestFlushDirsPastDamage(t *testing.T) {
	w := fullWorld(t, 2)
	if err := w.fs.Flip("/global/"+format.EpochName(2)+"/"+format.ManifestName, 30, 1); err != nil {
		t.Fatal(err)
	}
	if e, err := checkpoints.Flush(vfs.With(t.Context(), w.fs), []string{"/local0", "/local1"}, "/global", 0); e != 0 ||
		!errors.Is(err, ErrCorrupt) {
		t.Errorf("got epoch %d, %v, want to be told of the damage", e, err)
	}
}
