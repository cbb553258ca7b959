package fetch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

var global = storage.LevelConfig{Name: storage.LevelGlobal}

// TestFailureTable does to a job with three epochs what other libraries answer
// with wrong data and a report of success. Here every rank restores the right
// bytes of the same epoch, or every rank gets the reason.
func TestFailureTable(t *testing.T) {
	const e3 = "epoch-0000000003/"
	localAndGlobal := []storage.LevelConfig{jobtest.Local, global}
	for _, c := range []struct {
		name    string
		levels  []storage.LevelConfig
		damage  func(c *jobtest.Cluster)
		newest  storage.Epoch // that all ranks are offered
		corrupt bool          // the newest fails with ErrCorrupt on all ranks that need the bytes
		restore storage.Epoch // what is restored in the end
	}{
		{"nothing", localAndGlobal, func(c *jobtest.Cluster) {}, 3, false, 3},
		{"a bit flips in a local shard", localAndGlobal, func(c *jobtest.Cluster) {
			c.FS.Flip("/n1/local/"+e3+"rank-000001.shard", 9000, 1)
		}, 3, false, 3},
		{"a bit flips in the only shard", []storage.LevelConfig{jobtest.Local}, func(c *jobtest.Cluster) {
			c.FS.Flip("/n1/local/"+e3+"rank-000001.shard", 9000, 1)
		}, 3, true, 2},
		{"both copies of a chunk are bad", localAndGlobal, func(c *jobtest.Cluster) {
			c.FS.Flip("/n1/local/"+e3+"rank-000001.shard", 9000, 1)
			c.FS.Flip("/global/"+e3+"rank-000001.shard", 9000, 1)
		}, 3, true, 2},
		{"each copy is bad elsewhere", localAndGlobal, func(c *jobtest.Cluster) {
			c.FS.Flip("/n1/local/"+e3+"rank-000001.shard", 9000, 1)
			c.FS.Flip("/global/"+e3+"rank-000001.shard", 290_000, 1)
		}, 3, false, 3},
		{"the nodes are new and a global shard is cut short", localAndGlobal, func(c *jobtest.Cluster) {
			for _, n := range c.Nodes {
				c.LoseNode(n)
			}
			c.FS.Truncate("/global/"+e3+"rank-000000.shard", 100_000)
		}, 2, false, 2},
		{"the nodes are new and a global shard is missing", localAndGlobal, func(c *jobtest.Cluster) {
			for _, n := range c.Nodes {
				c.LoseNode(n)
			}
			c.FS.Remove("/global/" + e3 + "rank-000003.shard")
		}, 2, false, 2},
		{"the nodes are new and a manifest is damaged", localAndGlobal, func(c *jobtest.Cluster) {
			for _, n := range c.Nodes {
				c.LoseNode(n)
			}
			c.FS.Flip("/global/"+e3+"manifest", 40, 4)
		}, 2, false, 2},
		{"one local manifest is missing", []storage.LevelConfig{jobtest.Local}, func(c *jobtest.Cluster) {
			c.FS.Remove("/n2/local/" + e3 + "manifest")
		}, 3, false, 3}, // the others' say that it was committed
		{"one local shard is missing", []storage.LevelConfig{jobtest.Local}, func(c *jobtest.Cluster) {
			c.FS.Remove("/n2/local/" + e3 + "rank-000002.shard")
		}, 2, false, 2},
		{"a node is lost, copies on partners", []storage.LevelConfig{jobtest.Local, jobtest.Partner},
			func(c *jobtest.Cluster) {
				c.LoseNode("n2")
			}, 3, false, 3},
		{"a node is lost and its partner has a bad copy", []storage.LevelConfig{jobtest.Local, jobtest.Partner, global},
			func(c *jobtest.Cluster) {
				c.LoseNode("n2")
				c.FS.Flip("/n3/partner/"+e3+"rank-000002.shard", 5000, 1)
			}, 3, false, 3},
		{"two nodes are lost, parity 2+2",
			[]storage.LevelConfig{jobtest.Local, {Name: storage.LevelParity, Data: 2, Parity: 2}},
			func(c *jobtest.Cluster) {
				c.LoseNode("n0")
				c.LoseNode("n3")
			}, 3, false, 3},
		{"all is lost", []storage.LevelConfig{jobtest.Local, jobtest.Partner}, func(c *jobtest.Cluster) {
			for _, n := range c.Nodes {
				c.LoseNode(n)
			}
		}, 0, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := jobtest.NewCluster(t, jobtest.NodeNames(4)...)
			var names []string
			levels := slices.Clone(c.levels)
			for i := range levels {
				levels[i].Keep, levels[i].Full = 3, true // epochs stand alone
				names = append(names, levels[i].Name)
			}
			w.Start(levels...)
			for e := storage.Epoch(1); e <= 3; e++ {
				w.Take(e, names...)
			}
			w.Stop()
			c.damage(w)
			w.Start(levels...)
			if got := w.Newest(); got != c.newest {
				t.Fatalf("newest epoch offered to all is %d, want %d", got, c.newest)
			}
			if c.newest == 0 {
				return
			}
			_, err := w.Restore(c.newest)
			if c.corrupt {
				if !errors.Is(err, storage.ErrCorrupt) {
					t.Fatalf("got %v, want ErrCorrupt", err)
				}
				_, err = w.Restore(c.restore)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestOtherNumberOfRanks restarts with fewer and with more ranks: refused, with
// both numbers and what to do.
func TestOtherNumberOfRanks(t *testing.T) {
	w := jobtest.NewCluster(t, jobtest.NodeNames(4)...)
	w.Start(jobtest.Local, global)
	w.Take(1, storage.LevelLocal, storage.LevelGlobal)
	w.Stop()
	for _, size := range []int{2, 5} {
		_, err := storage.Open(vfs.With(context.Background(), w.FS), storage.Options{Job: "cluster", Rank: 1,
			Size: size, Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: "/global"}}})
		var bad *storage.SizeError
		if !errors.As(err, &bad) || bad.Have != 4 || bad.Want != size {
			t.Errorf("%d ranks: got %v, want a *SizeError of 4 and %d", size, err, size)
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("of 4 ranks, this job has %d", size)) {
			t.Errorf("%d ranks: got %v, want both numbers in it", size, err)
		}
	}
}

// TestUnreachableRank restores while a rank that has copies does not answer.
func TestUnreachableRank(t *testing.T) {
	w := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
	w.Start(jobtest.Local, jobtest.Partner, global)
	w.Take(1, storage.LevelLocal, storage.LevelPartner, storage.LevelGlobal)
	w.Stop()
	w.LoseNode("n0")
	w.Start(jobtest.Local, jobtest.Partner, global)
	w.Net.SetDown(1, true) // rank 0's partner, as everyone has learnt
	sh, err := w.Stores[0].Fetch(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	if sh.Level() != storage.LevelGlobal {
		t.Errorf("restored from %s, want global", sh.Level())
	}
	if d := sh.Damage(); len(d) != 1 || !strings.Contains(d[0].Error(), "rank 1") {
		t.Errorf("got %v, want that rank 1 did not answer", d)
	}
}
