package jobtest

import (
	"context"
	"flag"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	_ "github.com/holdfast-hpc/holdfast/storage/parity"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
)

var every = flag.Bool("every", false, "crash at every operation of the tests with many nodes, not at every few")

// CrashStep returns how far apart the crashes are: usual, further apart in short
// tests, 1 with -every.
func CrashStep(usual int) int {
	switch {
	case *every:
		return 1
	case testing.Short():
		return 10 * usual
	}
	return usual
}

// Little returns a shard of a few pages, part of which stays the same.
func Little(rank int, e storage.Epoch) []storage.Section {
	moves := fmt.Appendf(nil, "moves: rank %d epoch %d", rank, e)
	stays := make([]byte, 9000)
	for i := range stays {
		stays[i] = byte(i*rank + i>>3 + 1)
	}
	return []storage.Section{storagetest.Section("moves", moves), storagetest.Section("stays", stays)}
}

// Levels of a RedundantJob.
var (
	SmallParity = storage.LevelConfig{Name: storage.LevelParity, Data: 2, Parity: 1, Keep: 1}
	SmallCopies = storage.LevelConfig{Name: storage.LevelPartner, Keep: 1}
	SmallLocal  = storage.LevelConfig{Name: storage.LevelLocal, Keep: 1}
)

// RedundantJob takes two epochs with all redundancy and removes the first.
func RedundantJob(c *Cluster) (sure storage.Epoch, err error) {
	if err := c.TryStart(SmallLocal, SmallCopies, SmallParity); err != nil {
		return 0, err
	}
	for e := storage.Epoch(1); e <= 2; e++ {
		if err := c.TryTake(e, Little, storage.LevelLocal, storage.LevelPartner, storage.LevelParity); err != nil {
			return sure, err
		}
		sure = e
		for _, s := range c.Stores {
			if _, err := s.Prune(context.Background()); err != nil {
				return sure, err
			}
		}
	}
	return sure, nil
}

// Changing returns a section of n chunks; epoch e changes chunk e mod n only.
func Changing(n int) func(rank int, e storage.Epoch) []storage.Section {
	return func(rank int, e storage.Epoch) []storage.Section {
		b := make([]byte, n*format.ChunkBytes)
		for c := range n {
			last := storage.Epoch(0) // epoch that last changed chunk c
			if int(e) >= c {
				last = e - storage.Epoch((int(e)-c)%n)
			}
			copy(b[c*format.ChunkBytes:], Random(uint64(c)<<8|uint64(last), format.ChunkBytes))
		}
		return []storage.Section{storagetest.Section("x", b)}
	}
}

// WholeEpoch returns the reason why an epoch is not whole.
func WholeEpoch(l level.Epochs, e storage.Epoch) error {
	m, err := l.ReadManifest(e)
	if err != nil {
		return err
	}
	return level.CheckOrigins(l, m.Origins())
}
