package jobtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// Cluster is a job on emulated nodes: each node has its own directories, and
// ranks reach each other's stores by a loopback.
type Cluster struct {
	T      *testing.T
	FS     *crashfs.FS
	Wrap   vfs.FS   // the stores' view of fs; nil: fs
	Nodes  []string // of each rank
	Stores storagetest.Stores
	Net    *storagetest.Loopback
}

// NewCluster makes a directory for each node.
func NewCluster(t *testing.T, nodes ...string) *Cluster {
	c := &Cluster{T: t, FS: crashfs.New(), Nodes: nodes}
	c.FS.SetDirect(true)
	c.FS.MkdirAll("/global")
	for _, n := range nodes {
		c.makeNode(n)
	}
	return c
}

func (c *Cluster) makeNode(n string) {
	for _, l := range []string{storage.LevelLocal, storage.LevelPartner, storage.LevelParity} {
		c.FS.MkdirAll("/" + n + "/" + l)
	}
}

// LoseNode takes a node's disk away and puts an empty one in its place.
func (c *Cluster) LoseNode(n string) {
	c.FS.RemoveAll("/" + n)
	c.makeNode(n)
}

// Start opens the stores of a job with these levels and has each learn the holdings of the
// others.
func (c *Cluster) Start(levels ...storage.LevelConfig) {
	c.T.Helper()
	if err := c.TryStart(levels...); err != nil {
		c.T.Fatal(err)
	}
}

// TryStart is Start that may fail.
func (c *Cluster) TryStart(levels ...storage.LevelConfig) error {
	c.Net = storagetest.NewLoopback(len(c.Nodes))
	c.Stores = nil
	for r, n := range c.Nodes {
		mine := slices.Clone(levels)
		for i := range mine {
			mine[i].Dir = "/" + n + "/" + mine[i].Name
			if mine[i].Name == storage.LevelGlobal {
				mine[i].Dir = "/global"
			}
		}
		s, err := storage.Open(WithPools(vfs.With(c.T.Context(), c.files())), storage.Options{
			Job: "cluster", Rank: r, Size: len(c.Nodes), Node: n, Nodes: c.Nodes,
			Transport: c.Net.Rank(r), Levels: mine})
		if err != nil {
			return err
		}
		c.Stores = append(c.Stores, s)
		c.T.Cleanup(func() { s.Close() })
	}
	return c.Learn()
}

func (c *Cluster) files() vfs.FS {
	if c.Wrap != nil {
		return c.Wrap
	}
	return c.FS
}

// Learn has each store learn the holdings of the others.
func (c *Cluster) Learn() error { return c.Stores.Learn(c.T.Context()) }

// Stop closes the stores.
func (c *Cluster) Stop() {
	for _, s := range c.Stores {
		if err := s.Close(); err != nil {
			c.T.Error(err)
		}
	}
}

// Take brings an epoch to all levels in turn.
func (c *Cluster) Take(e storage.Epoch, levels ...string) {
	c.T.Helper()
	if err := c.TryTake(e, ClusterSections, levels...); err != nil {
		c.T.Fatal(err)
	}
}

// SectionsFor makes the shard of a rank.
type SectionsFor = storagetest.SectionsFor

// TryTake is Take of any sections, and may fail.
func (c *Cluster) TryTake(e storage.Epoch, data SectionsFor, levels ...string) error {
	for i, level := range levels {
		infos, err := c.Stores.Each(func(s *storage.Store, r int) (storage.ShardInfo, error) {
			if i == 0 {
				return s.Put(context.Background(), e, level, data(r, e))
			}
			return s.Flush(context.Background(), e, levels[0], level, nil)
		})
		if err != nil {
			return fmt.Errorf("epoch %d at %s: %w", e, level, err)
		}
		if err := c.Stores.Commit(e, level, infos); err != nil {
			return fmt.Errorf("commit %d at %s: %w", e, level, err)
		}
	}
	return nil
}

// ClusterSections makes shards of different lengths, part of which stays the same from
// one epoch to the next.
func ClusterSections(rank int, e storage.Epoch) []storage.Section {
	part := func(seed uint64, n int) []byte {
		b := make([]byte, n)
		rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1}).Read(b)
		return b
	}
	return []storage.Section{
		storagetest.Section("moves", part(uint64(rank)*64+uint64(e), 300_000+rank*50_000)),
		storagetest.Section("stays", part(uint64(rank)+9999, 600_000)),
		storagetest.Section("small", fmt.Appendf(nil, "rank %d epoch %d", rank, e)),
	}
}

// Restore fetches an epoch on all ranks and compares it. It returns the levels
// from which the ranks had their shards.
func (c *Cluster) Restore(e storage.Epoch) ([]string, error) {
	return c.Stores.Restore(e, ClusterSections)
}

// Newest returns the newest epoch that every rank is offered.
func (c *Cluster) Newest() storage.Epoch {
	c.T.Helper()
	best, err := c.Stores.Newest()
	if err != nil {
		c.T.Fatal(err)
	}
	return best
}

// Levels of a Cluster.
var (
	Local   = storage.LevelConfig{Name: storage.LevelLocal}
	Partner = storage.LevelConfig{Name: storage.LevelPartner}
	Parity  = storage.LevelConfig{Name: storage.LevelParity}
)

// NodeNames returns the names of n nodes.
func NodeNames(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("n%d", i))
	}
	return out
}
