package storage_test

import (
	"context"
	"flag"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
)

var every = flag.Bool("every", false, "crash at every operation of the tests with many nodes, not at every few")

// crashStep is how far apart the crashes are: usual, further apart in short
// tests, 1 with -every.
func crashStep(usual int) int {
	switch {
	case *every:
		return 1
	case testing.Short():
		return 10 * usual
	}
	return usual
}

// little is a shard of a few pages, part of which stays the same.
func little(rank int, e storage.Epoch) []storage.Section {
	moves := storage.Bytes(fmt.Sprintf("moves: rank %d epoch %d", rank, e))
	stays := make(storage.Bytes, 9000)
	for i := range stays {
		stays[i] = byte(i*rank + i>>3 + 1)
	}
	return []storage.Section{{Name: "moves", Size: int64(len(moves)), Source: moves},
		{Name: "stays", Size: int64(len(stays)), Source: stays}}
}

var (
	smallParity = storage.LevelConfig{Name: storage.LevelParity, Data: 2, Parity: 1, Keep: 1}
	smallCopies = storage.LevelConfig{Name: storage.LevelPartner, Keep: 1}
	smallLocal  = storage.LevelConfig{Name: storage.LevelLocal, Keep: 1}
)

// redundantJob takes two epochs with all redundancy and removes the first.
func redundantJob(c *jobtest.Cluster) (sure storage.Epoch, err error) {
	if err := c.TryStart(smallLocal, smallCopies, smallParity); err != nil {
		return 0, err
	}
	for e := storage.Epoch(1); e <= 2; e++ {
		if err := c.TryTake(e, little, storage.LevelLocal, storage.LevelPartner, storage.LevelParity); err != nil {
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

// TestCrashOfRedundancy takes all machines down at every operation, loses a
// node for good on top of it, and starts again on the others' disks. What was
// at all levels is restored.
func TestCrashOfRedundancy(t *testing.T) {
	whole := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
	if _, err := redundantJob(whole); err != nil {
		t.Fatal(err)
	}
	whole.Stop()
	total := whole.FS.Ops()
	t.Logf("%d operations", total)
	step := crashStep(5)
	for at := 0; at < total; at += step {
		c := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
		c.FS.SetRule(func(op crashfs.Op) error {
			if op.N == at {
				return crashfs.ErrCrashed
			}
			return nil
		})
		sure, err := redundantJob(c)
		c.Stop()
		if err == nil {
			continue // this run needed fewer operations
		}
		// Another rank may only be told that something failed elsewhere.
		c.FS = c.FS.Crash(crashfs.Survival(at%3), uint64(at))
		c.LoseNode(fmt.Sprintf("n%d", at%2))
		if err := c.TryStart(smallLocal, smallCopies, smallParity); err != nil {
			t.Fatalf("op %d: start again: %v", at, err)
		}
		e := c.Newest()
		if e < sure {
			t.Fatalf("op %d: epoch %d was at all levels, newest is %d\n%s", at, sure, e, c.FS)
		}
		if e > 0 {
			if _, err := c.RestoreAs(e, little); err != nil {
				t.Fatalf("op %d: restore %d: %v", at, e, err)
			}
		}
		c.Stop()
	}
}

// TestCrashOfRebuild takes all machines down at every operation of a rebuild,
// rebuilds again, and then loses a node that could not have been lost before.
func TestCrashOfRebuild(t *testing.T) {
	rebuild := func(c *jobtest.Cluster, level string) error {
		_, err := c.All(func(s *storage.Store, r int) (info storage.ShardInfo, err error) {
			return info, s.Rebuild(context.Background(), 2, level)
		})
		if err != nil {
			return err
		}
		return c.Learn()
	}
	step := crashStep(9)
	for at := 0; ; at += step {
		c := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
		if _, err := redundantJob(c); err != nil {
			t.Fatal(err)
		}
		c.Stop()
		c.LoseNode("n1")
		c.Start(smallLocal, smallCopies, smallParity)
		start := c.FS.Ops()
		c.FS.SetRule(func(op crashfs.Op) error {
			if op.N == start+at {
				return crashfs.ErrCrashed
			}
			return nil
		})
		levels := []string{storage.LevelLocal, storage.LevelPartner, storage.LevelParity}
		var err error
		for _, level := range levels {
			if err == nil {
				err = rebuild(c, level)
			}
		}
		c.Stop()
		done := err == nil
		c.FS = c.FS.Crash(crashfs.Survival(at%3), uint64(at))
		c.Start(smallLocal, smallCopies, smallParity)
		for _, level := range levels {
			if err := rebuild(c, level); err != nil {
				t.Fatalf("op %d: rebuild %s again: %v\n%s", at, level, err, c.FS)
			}
		}
		c.Stop()
		c.LoseNode("n2")
		c.Start(smallLocal, smallCopies, smallParity)
		if _, err := c.RestoreAs(2, little); err != nil {
			t.Fatalf("op %d: %v", at, err)
		}
		c.Stop()
		if done {
			t.Logf("%d operations", at)
			return
		}
	}
}
