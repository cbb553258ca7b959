package storage_test

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
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
