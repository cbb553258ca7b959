package storage_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
)

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
				infos, err := c.All(func(s *storage.Store, r int) (storage.ShardInfo, error) {
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
		if _, err := c.All(func(s *storage.Store, r int) (i storage.ShardInfo, err error) {
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
		infos, err := c.All(func(s *storage.Store, r int) (storage.ShardInfo, error) {
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
