package checkpoints_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
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
		if _, err := c.Stores.Restore(2, jobtest.Little); err != nil {
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

// TestSalvage brings the epoch that a dead job left on its nodes to the global
// level, node by node and in both orders, and both at once.
func TestSalvage(t *testing.T) {
	one := func(w *jobtest.World, dir string) (storage.Epoch, error) {
		ctx := vfs.With(context.Background(), w.FS)
		return checkpoints.Salvage(ctx, "salvage 1", []string{dir, dir + "/partner"}, "/global", 0)
	}
	for name, do := range map[string]func(t *testing.T, w *jobtest.World){
		"0 1": func(t *testing.T, w *jobtest.World) {
			if err := w.FS.Remove("/global/" + format.EpochName(2) + "/" + format.ShardName(0)); err != nil {
				t.Fatal(err)
			}
			if e, err := one(w, "/local0"); e != 0 || err != nil {
				t.Errorf("the first node: got epoch %d, %v, want to wait for the other", e, err)
			}
			if e, err := one(w, "/local1"); e != 2 || err != nil {
				t.Errorf("the second node: got epoch %d, %v", e, err)
			}
		},
		"1 0": func(t *testing.T, w *jobtest.World) {
			// The flush that ended half-way has brought the shard of rank 0.
			if e, err := one(w, "/local1"); e != 2 || err != nil {
				t.Errorf("the first node: got epoch %d, %v", e, err)
			}
			if e, err := one(w, "/local0"); e != 0 || err != nil {
				t.Errorf("the second node: got epoch %d, %v, want nothing to do", e, err)
			}
		},
		"both": func(t *testing.T, w *jobtest.World) {
			var wg sync.WaitGroup
			for _, d := range []string{"/local0", "/local1"} {
				wg.Go(func() {
					if _, err := one(w, d); err != nil {
						t.Errorf("%s: %v", d, err)
					}
				})
			}
			wg.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := jobtest.Unflushed(t)
			do(t, w)
			w.FS.RemoveAll("/local0/" + format.EpochName(2))
			w.FS.RemoveAll("/local1/" + format.EpochName(2))
			if err := w.Check(2); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSalvageLeavesHalf: a node that is lost keeps its epoch from being committed,
// and all other files stay as they were.
func TestSalvageLeavesHalf(t *testing.T) {
	w := jobtest.Unflushed(t)
	if err := w.FS.Remove("/global/" + format.EpochName(2) + "/" + format.ShardName(0)); err != nil {
		t.Fatal(err)
	}
	ctx := vfs.With(t.Context(), w.FS)
	if e, err := checkpoints.Salvage(ctx, "salvage", []string{"/nowhere", "/local1"}, "/global", 0); e != 0 ||
		err != nil {
		t.Errorf("got epoch %d, %v", e, err)
	}
	if e, err := checkpoints.Salvage(ctx, "salvage", []string{"/nowhere"}, "/global", 0); e != 0 || err == nil {
		t.Errorf("no directory is there: got epoch %d, %v", e, err)
	}
	if have, _ := level.HasManifest(w.At(0, 1), 2); have {
		t.Error("half an epoch was committed")
	}
	if err := w.Check(1); err != nil {
		t.Error(err)
	}
}

// TestSalvageOfAnotherAttempt: what a flush left at the global level is whole and is
// not what the ranks committed. It is not committed with the rest.
func TestSalvageOfAnotherAttempt(t *testing.T) {
	w, other := jobtest.Unflushed(t), jobtest.Unflushed(t)
	if _, err := other.Stores[0].Put(t.Context(), 2, storage.LevelGlobal, jobtest.SmallSections(1, 7)); err != nil {
		t.Fatal(err)
	}
	file := "/global/" + format.EpochName(2) + "/" + format.ShardName(0)
	b, err := level.ReadFile(other.FS, file, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.FS.Remove(file), level.WriteFile(w.FS, file, b)); err != nil {
		t.Fatal(err)
	}
	if e, err := checkpoints.Salvage(vfs.With(t.Context(), w.FS), "s", []string{"/local1"}, "/global", 0); e != 0 ||
		!errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("got epoch %d, %v", e, err)
	}
	e, err := checkpoints.Salvage(vfs.With(t.Context(), w.FS), "s", []string{"/local0"}, "/global", 0)
	if e != 2 || err != nil {
		t.Errorf("from the rank that has it: got epoch %d, %v", e, err)
	}
	w.FS.RemoveAll("/local0/" + format.EpochName(2))
	if err := w.Check(2); err != nil {
		t.Error(err)
	}
}

// TestCrashOfSalvage goes down at every operation and salvages again.
func TestCrashOfSalvage(t *testing.T) {
	both := func(f *crashfs.FS, run string) (err error) {
		for _, d := range []string{"/local0", "/local1"} {
			ctx := vfs.With(context.Background(), f)
			if _, err = checkpoints.Salvage(ctx, run, []string{d}, "/global", 0); err != nil {
				return err
			}
		}
		return nil
	}
	master := jobtest.Unflushed(t).FS
	n := jobtest.CrashEverywhere(t, func() *crashfs.FS { return copyWorldOf(master) }, func(f *crashfs.FS) error {
		return both(f, "one")
	}, func(f *crashfs.FS, at int) {
		if err := both(f, "one"); err != nil {
			t.Fatalf("op %d: again: %v\n%s", at, err, f)
		}
		w, err := jobtest.OpenWorld(f)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		for _, d := range []string{"/local0/", "/local1/"} {
			f.RemoveAll(d + format.EpochName(2))
		}
		if err := w.Check(2); err != nil {
			t.Fatalf("op %d: %v", at, err)
		}
	})
	if n < 30 {
		t.Errorf("only %d operations", n)
	}
}
