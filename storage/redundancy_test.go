package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
)

// cluster is a job on emulated nodes: each node has its own directories, and
// ranks reach each other's stores by a loopback.
type cluster struct {
	t      *testing.T
	fs     *crashfs.FS
	wrap   vfs.FS   // what the stores see of fs; nil: fs
	nodes  []string // of each rank
	stores []*storage.Store
	net    *storagetest.Loopback
}

// newCluster makes a directory for each node.
func newCluster(t *testing.T, nodes ...string) *cluster {
	c := &cluster{t: t, fs: crashfs.New(), nodes: nodes}
	c.fs.SetDirect(true)
	c.fs.MkdirAll("/global")
	for _, n := range nodes {
		c.makeNode(n)
	}
	return c
}

func (c *cluster) makeNode(n string) {
	for _, l := range []string{storage.LevelLocal, storage.LevelPartner, storage.LevelParity} {
		c.fs.MkdirAll("/" + n + "/" + l)
	}
}

// loseNode takes a node's disk away and puts an empty one in its place.
func (c *cluster) loseNode(n string) {
	c.fs.RemoveAll("/" + n)
	c.makeNode(n)
}

// start opens the stores of a job with these levels and tells each what the
// others have.
func (c *cluster) start(levels ...storage.LevelConfig) {
	c.t.Helper()
	if err := c.tryStart(levels...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) tryStart(levels ...storage.LevelConfig) error {
	c.net = storagetest.NewLoopback(len(c.nodes))
	c.stores = nil
	for r, n := range c.nodes {
		mine := slices.Clone(levels)
		for i := range mine {
			mine[i].Dir = "/" + n + "/" + mine[i].Name
			if mine[i].Name == storage.LevelGlobal {
				mine[i].Dir = "/global"
			}
		}
		s, err := storage.Open(vfs.With(c.t.Context(), c.files()), storage.Shared(storage.Options{
			Job: "cluster", Rank: r, Size: len(c.nodes), Node: n, Nodes: c.nodes,
			Transport: c.net.Rank(r), Levels: mine}))
		if err != nil {
			return err
		}
		c.stores = append(c.stores, s)
		c.t.Cleanup(func() { s.Close() })
	}
	return c.learn()
}

func (c *cluster) files() vfs.FS {
	if c.wrap != nil {
		return c.wrap
	}
	return c.fs
}

func (c *cluster) learn() error {
	for r, s := range c.stores {
		h, err := s.Holdings(c.t.Context())
		if err != nil {
			return err
		}
		for _, other := range c.stores {
			if err := other.Learn(r, h); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *cluster) stop() {
	for _, s := range c.stores {
		if err := s.Close(); err != nil {
			c.t.Error(err)
		}
	}
}

// all calls do for every rank at once and collects the shards.
func (c *cluster) all(do func(s *storage.Store, r int) (storage.ShardInfo, error)) ([]storage.ShardInfo, error) {
	infos, errs := make([]storage.ShardInfo, len(c.stores)), make([]error, len(c.stores))
	var wg sync.WaitGroup
	for r, s := range c.stores {
		wg.Go(func() { infos[r], errs[r] = do(s, r) })
	}
	wg.Wait()
	return infos, errors.Join(errs...)
}

// take brings an epoch to all levels in turn.
func (c *cluster) take(e storage.Epoch, levels ...string) {
	c.t.Helper()
	if err := c.tryTake(e, data, levels...); err != nil {
		c.t.Fatal(err)
	}
}

// sectionsFor makes the shard of a rank.
type sectionsFor func(rank int, e storage.Epoch) []storage.Section

func (c *cluster) tryTake(e storage.Epoch, data sectionsFor, levels ...string) error {
	for i, level := range levels {
		infos, err := c.all(func(s *storage.Store, r int) (storage.ShardInfo, error) {
			if i == 0 {
				return s.Put(context.Background(), e, level, data(r, e))
			}
			return s.Flush(context.Background(), e, levels[0], level, nil)
		})
		if err != nil {
			return fmt.Errorf("epoch %d at %s: %w", e, level, err)
		}
		if _, err := c.all(func(s *storage.Store, r int) (storage.ShardInfo, error) {
			return infos[r], s.Commit(context.Background(), e, level, infos)
		}); err != nil {
			return fmt.Errorf("commit %d at %s: %w", e, level, err)
		}
	}
	return nil
}

// data makes shards of different lengths, part of which stays the same from
// one epoch to the next.
func data(rank int, e storage.Epoch) []storage.Section {
	part := func(seed uint64, n int) []byte {
		b := make([]byte, n)
		rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1}).Read(b)
		return b
	}
	secs := []storage.Section{
		{Name: "moves", Source: storage.Bytes(part(uint64(rank)*64+uint64(e), 300_000+rank*50_000))},
		{Name: "stays", Source: storage.Bytes(part(uint64(rank)+9999, 600_000))},
		{Name: "small", Source: storage.Bytes(fmt.Sprintf("rank %d epoch %d", rank, e))},
	}
	for i := range secs {
		secs[i].Size = int64(len(secs[i].Source.(storage.Bytes)))
	}
	return secs
}

// restore fetches an epoch on all ranks and compares it. It returns the levels
// from which the ranks had their shards.
func (c *cluster) restore(e storage.Epoch) ([]string, error) { return c.restoreAs(e, data) }

func (c *cluster) restoreAs(e storage.Epoch, data sectionsFor) ([]string, error) {
	levels := make([]string, len(c.stores))
	_, err := c.all(func(s *storage.Store, r int) (info storage.ShardInfo, err error) {
		sh, err := s.Fetch(context.Background(), e)
		if err != nil {
			return info, err
		}
		defer sh.Close()
		levels[r] = sh.Level()
		for _, want := range data(r, e) {
			got := make([]byte, want.Size)
			if err := sh.ReadAt(context.Background(), want.Name, got, 0); err != nil {
				return info, err
			}
			if !bytes.Equal(got, want.Source.(storage.Bytes)) {
				return info, fmt.Errorf("rank %d: section %s of epoch %d differs", r, want.Name, e)
			}
		}
		return info, nil
	})
	return levels, err
}

// newest is the newest epoch that every rank is offered.
func (c *cluster) newest() storage.Epoch {
	c.t.Helper()
	count := map[storage.Epoch]int{}
	var best storage.Epoch
	for _, s := range c.stores {
		list, _, err := s.Candidates(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		for _, x := range list {
			if count[x.Epoch]++; count[x.Epoch] == len(c.stores) {
				best = max(best, x.Epoch)
			}
		}
	}
	return best
}

var (
	local   = storage.LevelConfig{Name: storage.LevelLocal}
	partner = storage.LevelConfig{Name: storage.LevelPartner}
	parity  = storage.LevelConfig{Name: storage.LevelParity}
)

func nodeNames(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("n%d", i))
	}
	return out
}

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
		{"nothing lost", nodeNames(2), []storage.LevelConfig{local, partner}, nil, 2},
		{"partner, one node", nodeNames(3), []storage.LevelConfig{local, partner}, []string{"n1"}, 2},
		{"partner, two ranks a node", []string{"a", "a", "b", "b"}, []storage.LevelConfig{local, partner},
			[]string{"a"}, 2},
		{"partner, unlike numbers of ranks", []string{"a", "a", "a", "b", "c", "c"},
			[]storage.LevelConfig{local, partner}, []string{"a"}, 2},
		{"partner, and the small node", []string{"a", "a", "a", "b"}, []storage.LevelConfig{local, partner},
			[]string{"b"}, 2},
		{"partner, a node and its copy", nodeNames(3), []storage.LevelConfig{local, partner}, []string{"n1", "n2"}, 0},
		{"two copies, two nodes", nodeNames(4),
			[]storage.LevelConfig{local, {Name: storage.LevelPartner, Copies: 2}}, []string{"n1", "n2"}, 2},
		{"parity 4+2, one node", nodeNames(6), []storage.LevelConfig{local, parity}, []string{"n4"}, 2},
		{"parity 4+2, two nodes", nodeNames(6), []storage.LevelConfig{local, parity}, []string{"n0", "n1"}, 2},
		{"parity 4+2, two nodes apart", nodeNames(6), []storage.LevelConfig{local, parity}, []string{"n1", "n4"}, 2},
		{"parity 4+2, three nodes", nodeNames(6), []storage.LevelConfig{local, parity}, []string{"n0", "n2", "n4"}, 0},
		{"parity 2+1, two ranks a node", []string{"a", "b", "c", "a", "b", "c"},
			[]storage.LevelConfig{local, {Name: storage.LevelParity, Data: 2, Parity: 1}}, []string{"b"}, 2},
		{"parity on few nodes", nodeNames(3), []storage.LevelConfig{local, parity}, []string{"n0", "n2"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newCluster(t, c.nodes...)
			w.start(c.levels...)
			var names []string
			for _, l := range c.levels {
				names = append(names, l.Name)
			}
			w.take(1, names...)
			w.take(2, names...)
			w.stop()
			for _, n := range c.lose {
				w.loseNode(n)
			}
			w.start(c.levels...)
			if got := w.newest(); got != c.want {
				t.Fatalf("newest epoch is %d, want %d", got, c.want)
			}
			if c.want == 0 {
				return
			}
			levels, err := w.restore(c.want)
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
	w := newCluster(t, nodeNames(3)...)
	w.start(local, partner)
	w.take(1, storage.LevelLocal, storage.LevelPartner)
	w.stop()
	slices.Reverse(w.nodes)
	w.start(local, partner)
	if _, err := w.restore(w.newest()); err != nil {
		t.Fatal(err)
	}
	w.take(2, storage.LevelLocal, storage.LevelPartner)
	w.stop()
	w.loseNode("n0")
	w.start(local, partner)
	if _, err := w.restore(2); err != nil {
		t.Fatal(err)
	}
}

// TestParityAroundDamage loses a node and damages another member's shard and a
// row: what is computed from them fails its checksum, and is computed from the
// others.
func TestParityAroundDamage(t *testing.T) {
	w := newCluster(t, nodeNames(6)...)
	w.start(local, parity)
	w.take(1, storage.LevelLocal, storage.LevelParity)
	w.stop()
	w.loseNode("n2")
	for _, at := range []int64{5000, 400_000, 800_000} {
		if err := w.fs.Flip("/n4/local/epoch-0000000001/rank-000004.shard", at, 8); err != nil {
			t.Fatal(err)
		}
	}
	w.start(local, parity)
	if _, err := w.restore(1); err != nil {
		t.Fatal(err)
	}
}

// TestMissingParts says which levels refuse a topology that cannot carry them.
func TestTopologyRefused(t *testing.T) {
	w := newCluster(t, "a", "a")
	w.start(local, partner)
	if _, err := w.stores[0].Put(t.Context(), 1, storage.LevelLocal, data(0, 1)); err != nil {
		t.Fatal(err)
	}
	infos, err := w.all(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Put(context.Background(), 2, storage.LevelLocal, data(r, 2))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range w.stores {
		if err := s.Commit(t.Context(), 2, storage.LevelLocal, infos); err != nil {
			t.Fatal(err)
		}
	}
	var bad *storage.TopologyError
	_, err = w.stores[0].Flush(t.Context(), 2, storage.LevelLocal, storage.LevelPartner, nil)
	if !errors.As(err, &bad) {
		t.Errorf("got %v, want a *TopologyError", err)
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
		{"partner", 3, partner, []string{"n1"}, []string{"n2"}},
		{"parity", 6, parity, []string{"n1", "n2"}, []string{"n3", "n4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newCluster(t, nodeNames(c.nodes)...)
			w.start(local, c.level)
			w.take(1, storage.LevelLocal, c.level.Name)
			w.take(2, storage.LevelLocal, c.level.Name)
			w.stop()
			for _, n := range c.lose {
				w.loseNode(n)
			}
			w.start(local, c.level)
			// Copies are rebuilt from local shards and these from parity.
			order := []string{storage.LevelLocal, c.level.Name}
			if c.level.Name == storage.LevelPartner {
				order = []string{c.level.Name, storage.LevelLocal, c.level.Name}
			}
			for _, level := range order {
				if _, err := w.all(func(s *storage.Store, r int) (info storage.ShardInfo, err error) {
					return info, s.Rebuild(context.Background(), 2, level)
				}); err != nil {
					t.Fatalf("rebuild %s: %v", level, err)
				}
				if err := w.learn(); err != nil {
					t.Fatal(err)
				}
			}
			w.stop()
			for _, n := range c.loseAgain {
				w.loseNode(n)
			}
			w.start(local, c.level)
			if got := w.newest(); got != 2 {
				t.Fatalf("newest epoch is %d, want 2", got)
			}
			if _, err := w.restore(2); err != nil {
				t.Fatal(err)
			}
		})
	}
}
