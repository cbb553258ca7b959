package checkpoints_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// TestCrashOfRepairOfRedundancy damages a shard, a partner's copy and a row of parity, takes the machines down at every
// few operations of their repair, repairs again, and then loses a node that could not have been lost before.
func TestCrashOfRepairOfRedundancy(t *testing.T) {
	c := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
	if _, err := jobtest.RedundantJob(c); err != nil {
		t.Fatal(err)
	}
	c.Stop()
	var dirs []string
	for _, n := range jobtest.NodeNames(3) {
		for _, l := range []string{storage.LevelLocal, storage.LevelPartner, storage.LevelParity} {
			dirs = append(dirs, "/"+n+"/"+l)
		}
	}
	const e = "/epoch-0000000002/"
	master := c.FS
	damaged := master.Crash(crashfs.KeepAll, 0)
	if err := errors.Join(damaged.Truncate("/n0/local"+e+"rank-000000.shard", 4096),
		damaged.Truncate("/n1/partner"+e+"rank-000000.shard", 500),
		damaged.Flip("/n2/parity"+e+"rank-000002.parity-0", 4300, 8),
		damaged.Flip("/n1/local"+e+"manifest", 40, 1)); err != nil {
		t.Fatal(err)
	}
	repair := func(f *crashfs.FS) ([]checkpoints.Repaired, error) {
		for _, d := range dirs { // a process that has died in the test lives, and so does its lock
			f.RemoveAll(d + "/holdfast.run")
		}
		return checkpoints.Repair(vfs.With(context.Background(), f), dirs,
			checkpoints.RepairRules{Complete: true, Jobs: 1})
	}
	step := jobtest.CrashStep(13)
	for at := 0; ; at += step {
		f := damaged.Crash(crashfs.KeepAll, 0)
		f.SetRule(func(op crashfs.Op) error {
			if op.N == at {
				return crashfs.ErrCrashed
			}
			return nil
		})
		_, err := repair(f)
		ended := err == nil && f.Ops() <= at
		c.FS = f.Crash(crashfs.Survival(at%3), uint64(at))
		list, err := repair(c.FS)
		for _, r := range list {
			if !r.Done {
				t.Fatalf("op %d: not repaired: %+v", at, r)
			}
		}
		if err != nil || ended && len(list) > 0 {
			t.Fatalf("op %d: again: %v, %v", at, list, err)
		}
		c.LoseNode([]string{"n1", "n2"}[at%2])
		c.Start(jobtest.SmallLocal, jobtest.SmallCopies, jobtest.SmallParity)
		if _, err := c.RestoreAs(2, jobtest.Little); err != nil {
			t.Fatalf("op %d: %v\n%s", at, err, c.FS)
		}
		c.Stop()
		if ended {
			if at < 100 {
				t.Errorf("only %d operations", at)
			}
			return
		}
	}
}
