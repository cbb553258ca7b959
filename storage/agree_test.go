package storage

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// keepTwo opens the world with Keep 2 and the local level alone.
func keepTwo(t *testing.T, f *crashfs.FS) *world {
	t.Helper()
	w, err := openWorld(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	for _, s := range w.stores {
		s.levels = s.levels[:1]
		s.levels[0].cfg.Keep = 2
	}
	return w
}

// halfCommit puts an epoch on all ranks and commits it on those of who; all
// others could not write the manifest.
func (w *world) halfCommit(t *testing.T, e Epoch, who ...int) {
	t.Helper()
	infos, err := w.each(func(s *Store) (ShardInfo, error) {
		return s.Put(t.Context(), e, LevelLocal, smallSections(s.opt.Rank, e))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range who {
		if err := w.stores[r].Commit(t.Context(), e, LevelLocal, infos); err != nil {
			t.Fatal(err)
		}
	}
}

// commitLocal takes an epoch at local, with the vote that all have committed it.
func (w *world) commitLocal(t *testing.T, e Epoch) {
	t.Helper()
	w.halfCommit(t, e, 0, 1)
	for _, s := range w.stores {
		if err := s.Committed(e, LevelLocal); err != nil {
			t.Fatal(err)
		}
	}
}

// agree is the exchange of what lies in the directories.
func (w *world) agree(t *testing.T, level string) {
	t.Helper()
	count := map[Epoch]int{}
	for _, s := range w.stores {
		have, err := s.Present(t.Context(), level)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range have {
			count[e]++
		}
	}
	for _, s := range w.stores {
		all := slices.DeleteFunc(countedEpochs(count), func(e Epoch) bool { return count[e] < len(w.stores) })
		if err := s.Agree(level, all); err != nil {
			t.Fatal(err)
		}
	}
}

func countedEpochs(count map[Epoch]int) []Epoch {
	set := map[Epoch]bool{}
	for e := range count {
		set[e] = true
	}
	return format.SortedEpochs(set)
}

func (w *world) prune(t *testing.T) {
	t.Helper()
	for _, s := range w.stores {
		if _, err := s.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// wantCommitted compares the epochs with a manifest in a rank's local directory.
func (w *world) wantCommitted(t *testing.T, rank int, want ...Epoch) {
	t.Helper()
	var got []Epoch
	epochs, err := w.stores[rank].levels[0].Epochs()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range epochs {
		if have, _ := level.HasManifest(w.stores[rank].levels[0], e); have {
			got = append(got, e)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("rank %d has epochs %v, want %v", rank, got, want)
	}
}

// TestFailedVoteCountsNowhere lets rank 1 fail to write a manifest: both ranks
// keep the same two epochs after the next one.
func TestFailedVoteCountsNowhere(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprint("withdrawn ", told), func(t *testing.T) {
			w := keepTwo(t, newWorldFS())
			for _, s := range w.stores {
				s.levels[0].cfg.Full = true
			}
			w.commitLocal(t, 1)
			w.commitLocal(t, 2)
			w.halfCommit(t, 3, 0)
			if told {
				for _, s := range w.stores {
					if err := s.Withdraw(3, LevelLocal); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.prune(t)
			w.wantCommitted(t, 0, 3, 2, 1) // a restart may find all of its shards
			w.commitLocal(t, 4)
			w.prune(t)
			w.wantCommitted(t, 0, 4, 2)
			w.wantCommitted(t, 1, 4, 2)
		})
	}
}

// TestVotesThatGoOnFailing: rank 1 never gets its manifest written again. What rank 0
// keeps of the epochs that were given up does not grow.
func TestVotesThatGoOnFailing(t *testing.T) {
	w := keepTwo(t, newWorldFS())
	for _, s := range w.stores {
		s.levels[0].cfg.Full = true
	}
	w.commitLocal(t, 1)
	for e := Epoch(2); e <= 9; e++ {
		w.halfCommit(t, e, 0)
		for _, s := range w.stores {
			if err := s.Withdraw(e, LevelLocal); err != nil {
				t.Fatal(err)
			}
		}
		w.prune(t)
	}
	w.wantCommitted(t, 0, 9, 8, 1)
	w.wantCommitted(t, 1, 1)
}

// TestNothingRefersToAWithdrawnEpoch takes an increment after a failed vote.
func TestNothingRefersToAWithdrawnEpoch(t *testing.T) {
	w := keepTwo(t, newWorldFS())
	w.commitLocal(t, 1)
	w.halfCommit(t, 2, 0)
	for _, s := range w.stores {
		if err := s.Withdraw(2, LevelLocal); err != nil {
			t.Fatal(err)
		}
	}
	infos, err := w.each(func(s *Store) (ShardInfo, error) {
		return s.Put(t.Context(), 3, LevelLocal, smallSections(s.opt.Rank, 2)) // nothing has changed
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		if slices.Contains(i.Origins, 2) {
			t.Errorf("rank %d refers to epochs %v, and 2 was withdrawn", i.Rank, i.Origins)
		}
	}
}

// TestHalfCommittedBeforeRestart starts again after a death between two
// manifests: what lies on some nodes only takes no epoch's place.
func TestHalfCommittedBeforeRestart(t *testing.T) {
	f := newWorldFS()
	w := keepTwo(t, f)
	for _, s := range w.stores {
		s.levels[0].cfg.Full = true
	}
	w.commitLocal(t, 1)
	w.commitLocal(t, 2)
	w.halfCommit(t, 3, 0)
	w.close()
	w = keepTwo(t, f)
	for _, s := range w.stores {
		s.levels[0].cfg.Full = true
	}
	w.commitLocal(t, 4)
	w.agree(t, LevelLocal)
	w.prune(t)
	for r := range w.stores {
		if have, _ := level.HasManifest(w.stores[r].levels[0], 2); !have {
			t.Errorf("rank %d has removed epoch 2, and only 4 is on all ranks beside it", r)
		}
	}
	w.commitLocal(t, 5)
	w.agree(t, LevelLocal)
	w.prune(t)
	for r := range w.stores {
		w.wantCommitted(t, r, 5, 4)
	}
}

// TestPruneDirsCountsWholeEpochs is the same by the tool: the directories are
// compared with each other.
func TestPruneDirsCountsWholeEpochs(t *testing.T) {
	f := newWorldFS()
	w := keepTwo(t, f)
	for _, s := range w.stores {
		s.levels[0].cfg.Full = true
	}
	w.commitLocal(t, 1)
	w.commitLocal(t, 2)
	w.halfCommit(t, 3, 0)
	w.commitLocal(t, 4)
	w.halfCommit(t, 5, 1)
	if _, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/local0", "/local1"},
		checkpoints.PruneRules{Keep: 2}); err != nil {
		t.Fatal(err)
	}
	w.wantCommitted(t, 0, 4, 3, 2)
	w.wantCommitted(t, 1, 5, 4, 2)
}
