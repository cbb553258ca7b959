package redundancy_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// TestNodeLoss takes epochs with redundancy, loses nodes, starts again and
// restores.
func TestNodeLoss(t *testing.T) {
	for _, c := range []struct {
		name   string
		nodes  []string
		levels []storage.LevelConfig
		lose   []string
		want   storage.Epoch // 0: gone, and said so
	}{
		{"nothing lost", jobtest.NodeNames(2), []storage.LevelConfig{jobtest.Local, jobtest.Partner}, nil, 2},
		{"partner, one node", jobtest.NodeNames(3), []storage.LevelConfig{jobtest.Local, jobtest.Partner},
			[]string{"n1"}, 2},
		{"partner, two ranks a node", []string{"a", "a", "b", "b"},
			[]storage.LevelConfig{jobtest.Local, jobtest.Partner},
			[]string{"a"}, 2},
		{"partner, unlike numbers of ranks", []string{"a", "a", "a", "b", "c", "c"},
			[]storage.LevelConfig{jobtest.Local, jobtest.Partner}, []string{"a"}, 2},
		{"partner, and the small node", []string{"a", "a", "a", "b"},
			[]storage.LevelConfig{jobtest.Local, jobtest.Partner},
			[]string{"b"}, 2},
		{"partner, a node and its copy", jobtest.NodeNames(3), []storage.LevelConfig{jobtest.Local, jobtest.Partner},
			[]string{"n1", "n2"}, 0},
		{"two copies, two nodes", jobtest.NodeNames(4),
			[]storage.LevelConfig{jobtest.Local, {Name: storage.LevelPartner, Copies: 2}}, []string{"n1", "n2"}, 2},
		{"parity 4+2, one node", jobtest.NodeNames(6), []storage.LevelConfig{jobtest.Local, jobtest.Parity},
			[]string{"n4"}, 2},
		{"parity 4+2, two nodes", jobtest.NodeNames(6), []storage.LevelConfig{jobtest.Local, jobtest.Parity},
			[]string{"n0", "n1"}, 2},
		{"parity 4+2, two nodes apart", jobtest.NodeNames(6), []storage.LevelConfig{jobtest.Local, jobtest.Parity},
			[]string{"n1", "n4"}, 2},
		{"parity 4+2, three nodes", jobtest.NodeNames(6), []storage.LevelConfig{jobtest.Local, jobtest.Parity},
			[]string{"n0", "n2", "n4"}, 0},
		{"parity 2+1, two ranks a node", []string{"a", "b", "c", "a", "b", "c"},
			[]storage.LevelConfig{jobtest.Local, {Name: storage.LevelParity, Data: 2, Parity: 1}}, []string{"b"}, 2},
		{"parity on few nodes", jobtest.NodeNames(3), []storage.LevelConfig{jobtest.Local, jobtest.Parity},
			[]string{"n0", "n2"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := jobtest.NewCluster(t, c.nodes...)
			w.Start(c.levels...)
			var names []string
			for _, l := range c.levels {
				names = append(names, l.Name)
			}
			w.Take(1, names...)
			w.Take(2, names...)
			w.Stop()
			for _, n := range c.lose {
				w.LoseNode(n)
			}
			w.Start(c.levels...)
			if got := w.Newest(); got != c.want {
				t.Fatalf("newest epoch is %d, want %d", got, c.want)
			}
			if c.want == 0 {
				return
			}
			levels, err := w.Restore(c.want)
			if err != nil {
				t.Fatal(err)
			}
			for r, n := range c.nodes {
				want := storage.LevelLocal
				if slices.Contains(c.lose, n) {
					want = names[1]
				}
				if levels[r] != want {
					t.Errorf("rank %d on %s restored from %s, want %s", r, n, levels[r], want)
				}
			}
		})
	}
}

// TestOtherPlacement restarts the ranks in reversed order on the nodes.
func TestOtherPlacement(t *testing.T) {
	w := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
	w.Start(jobtest.Local, jobtest.Partner)
	w.Take(1, storage.LevelLocal, storage.LevelPartner)
	w.Stop()
	slices.Reverse(w.Nodes)
	w.Start(jobtest.Local, jobtest.Partner)
	if _, err := w.Restore(w.Newest()); err != nil {
		t.Fatal(err)
	}
	w.Take(2, storage.LevelLocal, storage.LevelPartner)
	w.Stop()
	w.LoseNode("n0")
	w.Start(jobtest.Local, jobtest.Partner)
	if _, err := w.Restore(2); err != nil {
		t.Fatal(err)
	}
}

// TestParityAroundDamage loses a node and damages another member's shard and a
// row: what is computed from them fails its checksum, and is computed from the
// others.
func TestParityAroundDamage(t *testing.T) {
	w := jobtest.NewCluster(t, jobtest.NodeNames(6)...)
	w.Start(jobtest.Local, jobtest.Parity)
	w.Take(1, storage.LevelLocal, storage.LevelParity)
	w.Stop()
	w.LoseNode("n2")
	for _, at := range []int64{5000, 400_000, 800_000} {
		if err := w.FS.Flip("/n4/local/epoch-0000000001/rank-000004.shard", at, 8); err != nil {
			t.Fatal(err)
		}
	}
	w.Start(jobtest.Local, jobtest.Parity)
	if _, err := w.Restore(1); err != nil {
		t.Fatal(err)
	}
}

// TestMissingParts says which levels refuse a topology that cannot carry them.
func TestTopologyRefused(t *testing.T) {
	w := jobtest.NewCluster(t, "a", "a")
	w.Start(jobtest.Local, jobtest.Partner)
	if _, err := w.Stores[0].Put(t.Context(), 1, storage.LevelLocal, jobtest.ClusterSections(0, 1)); err != nil {
		t.Fatal(err)
	}
	infos, err := w.Stores.Each(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Put(context.Background(), 2, storage.LevelLocal, jobtest.ClusterSections(r, 2))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range w.Stores {
		if err := s.Commit(t.Context(), 2, storage.LevelLocal, infos); err != nil {
			t.Fatal(err)
		}
	}
	_, err = w.Stores[0].Flush(t.Context(), 2, storage.LevelLocal, storage.LevelPartner, nil)
	if err == nil || !strings.Contains(err.Error(), "level partner: 1 copies on other nodes need 2 nodes") {
		t.Errorf("got %v, want the topology refused", err)
	}
}

// TestRebuild loses a node, rebuilds what it had, and can then lose another one
// that it could not have lost before.
func TestRebuild(t *testing.T) {
	for _, c := range []struct {
		name      string
		nodes     int
		level     storage.LevelConfig
		lose      []string
		loseAgain []string
	}{
		{"partner", 3, jobtest.Partner, []string{"n1"}, []string{"n2"}},
		{"parity", 6, jobtest.Parity, []string{"n1", "n2"}, []string{"n3", "n4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := jobtest.NewCluster(t, jobtest.NodeNames(c.nodes)...)
			w.Start(jobtest.Local, c.level)
			w.Take(1, storage.LevelLocal, c.level.Name)
			w.Take(2, storage.LevelLocal, c.level.Name)
			w.Stop()
			for _, n := range c.lose {
				w.LoseNode(n)
			}
			w.Start(jobtest.Local, c.level)
			// Copies are rebuilt from local shards and these from parity.
			order := []string{storage.LevelLocal, c.level.Name}
			if c.level.Name == storage.LevelPartner {
				order = []string{c.level.Name, storage.LevelLocal, c.level.Name}
			}
			for _, level := range order {
				if _, err := w.Stores.Each(func(s *storage.Store, r int) (info storage.ShardInfo, err error) {
					return info, s.Rebuild(context.Background(), 2, level)
				}); err != nil {
					t.Fatalf("rebuild %s: %v", level, err)
				}
				if err := w.Learn(); err != nil {
					t.Fatal(err)
				}
			}
			w.Stop()
			for _, n := range c.loseAgain {
				w.LoseNode(n)
			}
			w.Start(jobtest.Local, c.level)
			if got := w.Newest(); got != 2 {
				t.Fatalf("newest epoch is %d, want 2", got)
			}
			if _, err := w.Restore(2); err != nil {
				t.Fatal(err)
			}
		})
	}
}
