package campaigns

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

var (
	cycles     = flag.Int("cycles", 40, "simulated cycles of kill and restart")
	cyclesSeed = flag.Uint64("cycles-seed", 1, "first seed of them")
)

// TestSimulatedCycles takes epochs, dies at some step of a commit, loses a node or not,
// and starts with the ranks in another order. All ranks are offered the newest epoch that
// can be had, and it is right.
func TestSimulatedCycles(t *testing.T) {
	if testing.Short() {
		*cycles = min(*cycles, 12)
	}
	for seed := *cyclesSeed; seed < *cyclesSeed+uint64(*cycles); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			simulatedCycle(t, rand.New(rand.NewPCG(seed, 5)))
		})
	}
}

func simulatedCycle(t *testing.T, rng *rand.Rand) {
	outer := []string{"", storage.LevelPartner, storage.LevelParity, storage.LevelGlobal}[rng.IntN(4)]
	levels := []storage.LevelConfig{{Name: storage.LevelLocal, Keep: 5}}
	names := []string{storage.LevelLocal}
	switch outer {
	case "":
	case storage.LevelParity:
		levels = append(levels, storage.LevelConfig{Name: outer, Data: 2, Parity: 1, Keep: 5})
		names = append(names, outer)
	default:
		levels = append(levels, storage.LevelConfig{Name: outer, Keep: 5})
		names = append(names, outer)
	}
	c := jobtest.NewCluster(t, "n0", "n1", "n2")
	c.Start(levels...)
	whole := storage.Epoch(rng.IntN(3))
	for e := storage.Epoch(1); e <= whole; e++ {
		c.Take(e, names...)
	}
	// The death comes when these ranks have committed the next epoch.
	half := whole + 1
	infos, err := c.Stores.Each(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Put(context.Background(), half, storage.LevelLocal, jobtest.ClusterSections(r, half))
	})
	if err != nil {
		t.Fatal(err)
	}
	committers := rng.IntN(1 << 3)
	for r, s := range c.Stores {
		if committers>>r&1 == 1 {
			if err := s.Commit(context.Background(), half, storage.LevelLocal, infos); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.Stop()
	want := whole
	if committers != 0 {
		want = half
	}
	lost := ""
	if outer != "" && rng.IntN(2) == 0 {
		lost = c.Nodes[rng.IntN(3)]
		c.LoseNode(lost)
		want = whole // the shard of the newest that was there is nowhere else
	}
	rng.Shuffle(3, func(i, j int) { c.Nodes[i], c.Nodes[j] = c.Nodes[j], c.Nodes[i] })
	t.Logf("levels %v, %d epochs, the next committed by ranks %03b, lost %q, then %v", names, whole, committers, lost,
		c.Nodes)
	c.Start(levels...)
	if got := c.Newest(); got != want {
		t.Fatalf("all ranks are offered epoch %d, want %d", got, want)
	}
	if want == 0 {
		return
	}
	if _, err := c.Restore(want); err != nil {
		t.Fatal(err)
	}
}
