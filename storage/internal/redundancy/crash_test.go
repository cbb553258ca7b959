package redundancy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// TestCrashOfRedundancy takes all machines down at every operation, loses a
// node permanently on top of it, and starts again on the others' disks. What was
// at all levels is restored.
func TestCrashOfRedundancy(t *testing.T) {
	whole := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
	if _, err := jobtest.RedundantJob(whole); err != nil {
		t.Fatal(err)
	}
	whole.Stop()
	total := whole.FS.Ops()
	t.Logf("%d operations", total)
	step := jobtest.CrashStep(5)
	for at := 0; at < total; at += step {
		c := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
		c.FS.SetRule(func(op crashfs.Op) error {
			if op.N == at {
				return crashfs.ErrCrashed
			}
			return nil
		})
		sure, err := jobtest.RedundantJob(c)
		c.Stop()
		if err == nil {
			continue // this run needed fewer operations
		}
		// Another rank may only be told that something failed elsewhere.
		c.FS = c.FS.Crash(crashfs.Survival(at%3), uint64(at))
		c.LoseNode(fmt.Sprintf("n%d", at%2))
		if err := c.TryStart(jobtest.SmallLocal, jobtest.SmallCopies, jobtest.SmallParity); err != nil {
			t.Fatalf("op %d: start again: %v", at, err)
		}
		e := c.Newest()
		if e < sure {
			t.Fatalf("op %d: epoch %d was at all levels, newest is %d\n%s", at, sure, e, c.FS)
		}
		if e > 0 {
			if _, err := c.Stores.Restore(e, jobtest.Little); err != nil {
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
		_, err := c.Stores.Each(func(s *storage.Store, r int) (info storage.ShardInfo, err error) {
			return info, s.Rebuild(context.Background(), 2, level)
		})
		if err != nil {
			return err
		}
		return c.Learn()
	}
	step := jobtest.CrashStep(9)
	for at := 0; ; at += step {
		c := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
		if _, err := jobtest.RedundantJob(c); err != nil {
			t.Fatal(err)
		}
		c.Stop()
		c.LoseNode("n1")
		c.Start(jobtest.SmallLocal, jobtest.SmallCopies, jobtest.SmallParity)
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
		c.Start(jobtest.SmallLocal, jobtest.SmallCopies, jobtest.SmallParity)
		for _, level := range levels {
			if err := rebuild(c, level); err != nil {
				t.Fatalf("op %d: rebuild %s again: %v\n%s", at, level, err, c.FS)
			}
		}
		c.Stop()
		c.LoseNode("n2")
		c.Start(jobtest.SmallLocal, jobtest.SmallCopies, jobtest.SmallParity)
		if _, err := c.Stores.Restore(2, jobtest.Little); err != nil {
			t.Fatalf("op %d: %v", at, err)
		}
		c.Stop()
		if done {
			t.Logf("%d operations", at)
			return
		}
	}
}
