package catalog_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// keepTwo opens the world with Keep 2 and the local level alone.
func keepTwo(t *testing.T, f *crashfs.FS, full bool) *jobtest.World {
	t.Helper()
	w, err := jobtest.OpenLocal(f, func(l *storage.LevelConfig) { l.Keep, l.Full = 2, full })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// halfCommit puts an epoch on all ranks and commits it on those of who; all
// others could not write the manifest.
func halfCommit(w *jobtest.World, t *testing.T, e storage.Epoch, who ...int) {
	t.Helper()
	infos, err := w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Put(t.Context(), e, storage.LevelLocal, jobtest.SmallSections(r, e))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range who {
		if err := w.Stores[r].Commit(t.Context(), e, storage.LevelLocal, infos); err != nil {
			t.Fatal(err)
		}
	}
}

// commitLocal takes an epoch at local, with the vote that all have committed it.
func commitLocal(w *jobtest.World, t *testing.T, e storage.Epoch) {
	t.Helper()
	halfCommit(w, t, e, 0, 1)
	for _, s := range w.Stores {
		if err := s.Committed(e, storage.LevelLocal); err != nil {
			t.Fatal(err)
		}
	}
}

// wantCommitted compares the epochs with a manifest in a rank's local directory.
func wantCommitted(w *jobtest.World, t *testing.T, rank int, want ...storage.Epoch) {
	t.Helper()
	var got []storage.Epoch
	epochs, err := w.At(rank, 0).Epochs()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range epochs {
		if have, _ := level.HasManifest(w.At(rank, 0), e); have {
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
			w := keepTwo(t, jobtest.NewWorldFS(), true)
			commitLocal(w, t, 1)
			commitLocal(w, t, 2)
			halfCommit(w, t, 3, 0)
			if told {
				for _, s := range w.Stores {
					if err := s.Withdraw(3, storage.LevelLocal); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.Prune(t)
			wantCommitted(w, t, 0, 3, 2, 1) // a restart may find all of its shards
			commitLocal(w, t, 4)
			w.Prune(t)
			wantCommitted(w, t, 0, 4, 2)
			wantCommitted(w, t, 1, 4, 2)
		})
	}
}

// TestVotesThatGoOnFailing: rank 1 never gets its manifest written again. What rank 0
// keeps of the epochs that were given up does not grow.
func TestVotesThatGoOnFailing(t *testing.T) {
	w := keepTwo(t, jobtest.NewWorldFS(), true)
	commitLocal(w, t, 1)
	for e := storage.Epoch(2); e <= 9; e++ {
		halfCommit(w, t, e, 0)
		for _, s := range w.Stores {
			if err := s.Withdraw(e, storage.LevelLocal); err != nil {
				t.Fatal(err)
			}
		}
		w.Prune(t)
	}
	wantCommitted(w, t, 0, 9, 8, 1)
	wantCommitted(w, t, 1, 1)
}

// TestNothingRefersToAWithdrawnEpoch takes an increment after a failed vote.
func TestNothingRefersToAWithdrawnEpoch(t *testing.T) {
	w := keepTwo(t, jobtest.NewWorldFS(), false)
	commitLocal(w, t, 1)
	halfCommit(w, t, 2, 0)
	for _, s := range w.Stores {
		if err := s.Withdraw(2, storage.LevelLocal); err != nil {
			t.Fatal(err)
		}
	}
	infos, err := w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Put(t.Context(), 3, storage.LevelLocal, jobtest.SmallSections(r, 2)) // nothing has changed
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
	f := jobtest.NewWorldFS()
	w := keepTwo(t, f, true)
	commitLocal(w, t, 1)
	commitLocal(w, t, 2)
	halfCommit(w, t, 3, 0)
	w.Stop()
	w = keepTwo(t, f, true)
	commitLocal(w, t, 4)
	w.Agree(t, storage.LevelLocal)
	w.Prune(t)
	for r := range w.Stores {
		if have, _ := level.HasManifest(w.At(r, 0), 2); !have {
			t.Errorf("rank %d has removed epoch 2, and only 4 is on all ranks beside it", r)
		}
	}
	commitLocal(w, t, 5)
	w.Agree(t, storage.LevelLocal)
	w.Prune(t)
	for r := range w.Stores {
		wantCommitted(w, t, r, 5, 4)
	}
}

// TestPruneDirsCountsWholeEpochs is the same by the tool: the directories are
// compared with each other.
func TestPruneDirsCountsWholeEpochs(t *testing.T) {
	f := jobtest.NewWorldFS()
	w := keepTwo(t, f, true)
	commitLocal(w, t, 1)
	commitLocal(w, t, 2)
	halfCommit(w, t, 3, 0)
	commitLocal(w, t, 4)
	halfCommit(w, t, 5, 1)
	if _, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/local0", "/local1"},
		checkpoints.PruneRules{Keep: 2}); err != nil {
		t.Fatal(err)
	}
	wantCommitted(w, t, 0, 4, 3, 2)
	wantCommitted(w, t, 1, 5, 4, 2)
}

// orders are rank orders of a job on three nodes.
var orders = [][]string{{"n0", "n1", "n2"}, {"n2", "n1", "n0"}, {"n1", "n2", "n0"}, {"n2", "n0", "n1"}}

// TestHalfCommitted: a kill during a commit leaves the manifest with some ranks. Its
// shards were all durable before, so a restart has it, wherever the ranks are.
func TestHalfCommitted(t *testing.T) {
	local := storage.LevelConfig{Name: storage.LevelLocal, Keep: 2}
	for committers := 1; committers < 1<<3; committers++ { // sets of ranks
		for _, order := range orders {
			t.Run(fmt.Sprintf("%03b %v", committers, order), func(t *testing.T) {
				c := jobtest.NewCluster(t, "n0", "n1", "n2")
				c.Start(local)
				infos, err := c.Stores.Each(func(s *storage.Store, r int) (storage.ShardInfo, error) {
					return s.Put(context.Background(), 1, storage.LevelLocal, jobtest.ClusterSections(r, 1))
				})
				if err != nil {
					t.Fatal(err)
				}
				for r, s := range c.Stores {
					if committers>>r&1 == 1 {
						if err := s.Commit(context.Background(), 1, storage.LevelLocal, infos); err != nil {
							t.Fatal(err)
						}
					}
				}
				c.Stop()
				c.Nodes = order
				c.Start(local)
				wholeAgain(c, 1, storage.LevelLocal)
			})
		}
	}
}

// wholeAgain restores an epoch, rebuilds it, and finds it whole without the others.
func wholeAgain(c *jobtest.Cluster, e storage.Epoch, levels ...string) {
	c.T.Helper()
	if got := c.Newest(); got != e {
		c.T.Fatalf("all ranks are offered epoch %d, want %d", got, e)
	}
	if _, err := c.Restore(e); err != nil {
		c.T.Fatal(err)
	}
	for _, level := range levels {
		if _, err := c.Stores.Each(func(s *storage.Store, r int) (i storage.ShardInfo, err error) {
			return i, s.Rebuild(context.Background(), e, level)
		}); err != nil {
			c.T.Fatal(err)
		}
	}
	for _, n := range c.Nodes {
		if _, err := c.FS.Stat(fmt.Sprintf("/%s/local/epoch-%010d/manifest", n, e)); err != nil {
			c.T.Errorf("not committed again: %v", err)
		}
	}
}

// TestOtherAttempt: a shard without a manifest that is not of what was committed
// does not serve.
func TestOtherAttempt(t *testing.T) {
	local := storage.LevelConfig{Name: storage.LevelLocal, Keep: 2}
	c := jobtest.NewCluster(t, "n0", "n1", "n2")
	c.Start(local)
	put := func(as func(rank int, e storage.Epoch) []storage.Section) []storage.ShardInfo {
		infos, err := c.Stores.Each(func(s *storage.Store, r int) (storage.ShardInfo, error) {
			return s.Put(context.Background(), 1, storage.LevelLocal, as(r, 1))
		})
		if err != nil {
			t.Fatal(err)
		}
		return infos
	}
	infos := put(jobtest.ClusterSections)
	if err := c.Stores[0].Commit(context.Background(), 1, storage.LevelLocal, infos); err != nil {
		t.Fatal(err)
	}
	c.Stop()
	c.FS.RemoveAll("/n2/local/epoch-0000000001")
	c.Start(local)
	other := storage.Bytes("another attempt")
	if _, err := c.Stores[2].Put(context.Background(), 1, storage.LevelLocal,
		[]storage.Section{{Name: "x", Size: int64(len(other)), Source: other}}); err != nil {
		t.Fatal(err)
	}
	c.Stop()
	c.Nodes = []string{"n2", "n1", "n0"}
	c.Start(local)
	list, unreadable, err := c.Stores[2].Candidates(t.Context())
	if err != nil || len(list) != 0 || !slices.Equal(unreadable, []storage.Epoch{1}) {
		t.Errorf("offered %v, unreadable %v, %v: want nothing but epoch 1 unreadable", list, unreadable, err)
	}
}

// TestParityWithoutLocalManifests: all local manifests are gone, and a node is too.
// The parity manifest describes the shards.
func TestParityWithoutLocalManifests(t *testing.T) {
	levels := []storage.LevelConfig{{Name: storage.LevelLocal, Keep: 2}, {Name: storage.LevelParity, Data: 2, Parity: 1,
		Keep: 2}}
	for _, lost := range []string{"", "n1"} {
		for _, order := range orders {
			t.Run(fmt.Sprint("lost ", lost, order), func(t *testing.T) {
				c := jobtest.NewCluster(t, "n0", "n1", "n2")
				c.Start(levels...)
				c.Take(1, storage.LevelLocal, storage.LevelParity)
				c.Take(2, storage.LevelLocal, storage.LevelParity)
				c.Stop()
				for _, n := range c.Nodes {
					if err := c.FS.Remove("/" + n + "/local/epoch-0000000002/manifest"); err != nil {
						t.Fatal(err)
					}
				}
				if lost != "" {
					c.LoseNode(lost)
				}
				c.Nodes = order
				c.Start(levels...)
				wholeAgain(c, 2, storage.LevelLocal, storage.LevelParity)
			})
		}
	}
}
