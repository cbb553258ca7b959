package campaigns

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// stepping returns a shard of eight chunks of which each epoch changes one, so that the newest
// ones refer to many earlier epochs.
func stepping(rank int, e storage.Epoch) []storage.Section {
	const chunks, chunk = 8, 256 << 10
	b := make(storage.Bytes, chunks*chunk)
	for c := range chunks {
		last := uint64(0) // epoch that changed it last
		for x := uint64(1); x <= uint64(e); x++ {
			if x%chunks == uint64(c) {
				last = x
			}
		}
		rand.NewChaCha8([32]byte{byte(rank), byte(c), byte(last)}).Read(b[c*chunk : (c+1)*chunk])
	}
	return []storage.Section{{Name: "x", Size: int64(len(b)), Source: b}}
}

// TestEpochsPassedOver takes epochs of which only some come to the outer level, prunes after
// each, loses a node, and restores the newest that came there: whatever it refers to
// must be there.
func TestEpochsPassedOver(t *testing.T) {
	for _, c := range []struct {
		outer  storage.LevelConfig
		failed bool // a flush that does not end, in place of one left out
	}{{jobtest.Parity, false}, {jobtest.Parity, true}, {jobtest.Partner, false}} {
		t.Run(fmt.Sprint(c.outer.Name, " ", c.failed), func(t *testing.T) {
			outer := c.outer
			outer.Data, outer.Parity, outer.Keep = 2, 1, 2
			w := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
			w.Start(jobtest.Local, outer)
			var newest storage.Epoch
			for e := storage.Epoch(1); e <= 9; e++ {
				levels := []string{storage.LevelLocal}
				if e%3 == 1 || e == 8 {
					levels, newest = append(levels, outer.Name), e
				}
				if err := w.TryTake(e, stepping, levels...); err != nil {
					t.Fatal(err)
				}
				if c.failed && e%3 == 2 && newest != e {
					if _, err := w.Stores.Each(func(s *storage.Store, _ int) (storage.ShardInfo, error) {
						return s.Flush(t.Context(), e, storage.LevelLocal, outer.Name, nil)
					}); err != nil {
						t.Fatal(err)
					}
					if _, err := w.Stores.Each(func(s *storage.Store, _ int) (info storage.ShardInfo, err error) {
						return info, s.Discard(t.Context(), e, outer.Name)
					}); err != nil {
						t.Fatal(err)
					}
				}
				for _, s := range w.Stores {
					if _, err := s.Prune(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.Stop()
			w.LoseNode("n1")
			w.Start(jobtest.Local, outer)
			levels, err := w.Stores.Restore(newest, stepping)
			if err != nil {
				t.Fatal(err)
			}
			t.Log("epoch", newest, "restored from", levels)
		})
	}
}

// TestBaseHasRows: a shard still refers to earlier epochs where parity has all of them, or
// every third one.
func TestBaseHasRows(t *testing.T) {
	for _, every := range []storage.Epoch{1, 3} {
		t.Run(fmt.Sprint("every ", every), func(t *testing.T) {
			group := storage.LevelConfig{Name: storage.LevelParity, Data: 2, Parity: 1, Keep: 2}
			w := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
			w.Start(jobtest.Local, group)
			for e := storage.Epoch(1); e <= 7; e++ {
				levels := []string{storage.LevelLocal}
				if e%every == 1%every {
					levels = append(levels, storage.LevelParity)
				}
				if err := w.TryTake(e, stepping, levels...); err != nil {
					t.Fatal(err)
				}
				m, err := checkpoints.Open(vfs.With(t.Context(), w.FS), "/n0/local")
				if err != nil {
					t.Fatal(err)
				}
				list, err := m.Epochs(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				const chunk = 256 << 10
				changed := (e - 2) % every // since the epoch before the last that came to parity
				if stored := list[0].Shards[0].Stored; e > 1 && stored > int64(changed+1)*chunk {
					t.Errorf("epoch %d: %d chunks were written, want at most %d", e, stored/chunk, changed+1)
				}
			}
		})
	}
}
