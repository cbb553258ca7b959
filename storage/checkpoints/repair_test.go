package checkpoints_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
	"github.com/holdfast-hpc/holdfast/test/fakes3"
)

var repairKills = flag.Bool("repair-kills", false, "TestCrashOfRepair goes down at every operation, not at every 23rd")

var repairWorldDirs = []string{"/local0", "/local1", "/global"}

// repairWorld returns a disk with the epochs 1 to 4 at both levels. At global, epoch 3 is in packs, and the shard of
// rank 1 of epoch 2, to which later ones refer, has a layout that no second writing gives it.
func repairWorld(t *testing.T) *crashfs.FS {
	t.Helper()
	ctx := context.Background()
	f := jobtest.NewWorldFS()
	w := openKeeping(t, f)
	defer w.Stop()
	for e := storage.Epoch(1); e <= 4; e++ {
		infos, err := w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
			return s.Put(ctx, e, storage.LevelLocal, jobtest.SmallSections(r, e/2))
		})
		if err == nil {
			err = w.Stores.Commit(e, storage.LevelLocal, infos)
		}
		if err == nil {
			infos, err = w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
				switch {
				case e == 2 && r == 1:
					return putFar(ctx, w, r, e)
				case e == 3:
					packed, err := s.FlushNode(ctx, e, storage.LevelLocal, storage.LevelGlobal, []int{r})
					return append(packed, storage.ShardInfo{})[0], err
				}
				return s.Flush(ctx, e, storage.LevelLocal, storage.LevelGlobal, nil)
			})
		}
		if err == nil {
			err = w.Stores.Commit(e, storage.LevelGlobal, infos)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// putFar puts the shard of repairWorld's epoch at global with a hole in the file.
func putFar(ctx context.Context, w *jobtest.World, rank int, e storage.Epoch) (info storage.ShardInfo, err error) {
	pool := shard.NewPool(shard.WriterBuffers)
	spec := &shard.Spec{Sections: jobtest.SmallSections(rank, e/2), Hole: 8192,
		Head: format.Header{Epoch: e, Rank: rank, Size: jobtest.WorldSize, Job: "crash"}}
	err = w.At(rank, 1).Put(e, spec.FileName(), fetch.RoomOf(spec), func(f vfs.File) error {
		return shard.WriteTo(ctx, f, pool, nil, func(to *shard.Writer) (err error) {
			info, _, err = shard.Write(ctx, to, spec)
			return err
		})
	})
	return info, errors.Join(err, pool.Close())
}

// checkRepairWorld compares the epochs of a repairWorld, as the directories have them.
func checkRepairWorld(ctx context.Context, dirs ...string) error {
	v, err := checkpoints.Open(ctx, dirs...)
	if err != nil {
		return err
	}
	for e := storage.Epoch(1); e <= 4; e++ {
		for r := range jobtest.WorldSize {
			sh, err := v.Fetch(ctx, e, r)
			if err != nil {
				return fmt.Errorf("epoch %d: %w", e, err)
			}
			for _, want := range jobtest.SmallSections(r, e/2) {
				got := make([]byte, want.Size)
				if err = sh.ReadAt(ctx, want.Name, got,
					0); err == nil && string(got) != string(want.Source.(storage.Bytes)) {
					err = fmt.Errorf("epoch %d, rank %d: section %s differs", e, r, want.Name)
				}
				if err != nil {
					return errors.Join(err, sh.Close())
				}
			}
			if err := sh.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// wornOut are damages to a repairWorld, each of which can be repaired.
var wornOut = map[string]func(f *crashfs.FS) error{
	"a bit in a local shard": func(f *crashfs.FS) error {
		return f.Flip("/local0/"+format.EpochName(4)+"/"+format.ShardName(0), 4200, 2)
	},
	"a local shard to which others refer": func(f *crashfs.FS) error {
		return f.Truncate("/local1/"+format.EpochName(2)+"/"+format.ShardName(1), 4096)
	},
	"a local epoch is gone": func(f *crashfs.FS) error {
		f.RemoveAll("/local1/" + format.EpochName(4))
		return nil
	},
	"a pack is cut": func(f *crashfs.FS) error {
		return f.Truncate("/global/"+format.EpochName(3)+"/"+format.PackName(0), 4500)
	},
	"the index of a pack": func(f *crashfs.FS) error {
		name := "/global/" + format.EpochName(3) + "/" + format.PackName(0)
		info, err := f.Stat(name)
		return errors.Join(err, f.Flip(name, info.Size-format.FooterLen+3, 1))
	},
	"a shard at global that refers to others": func(f *crashfs.FS) error {
		return f.Truncate("/global/"+format.EpochName(4)+"/"+format.ShardName(0), 100)
	},
	"a shard at global with another layout, to which others refer": func(f *crashfs.FS) error {
		f.RemoveAll("/local1/" + format.EpochName(3)) // which global alone has then
		f.RemoveAll("/local1/" + format.EpochName(4))
		return f.Flip("/global/"+format.EpochName(2)+"/"+format.ShardName(1), 200, 1)
	},
	"the manifest at global": func(f *crashfs.FS) error {
		return f.Flip("/global/"+format.EpochName(4)+"/manifest", 30, 1)
	},
	"the manifest of a pack at global, and a local shard": func(f *crashfs.FS) error {
		return errors.Join(f.Truncate("/global/"+format.EpochName(3)+"/manifest", 30),
			f.Flip("/local0/"+format.EpochName(3)+"/"+format.ShardName(0), 4200, 2))
	},
	"one copy in one place, the other in another": func(f *crashfs.FS) error {
		return errors.Join(f.Flip("/local0/"+format.EpochName(1)+"/"+format.ShardName(0), 4100, 2),
			f.Flip("/global/"+format.EpochName(1)+"/"+format.ShardName(0), 8000, 2))
	},
	"a manifest and a shard at a node": func(f *crashfs.FS) error {
		return errors.Join(f.Truncate("/local0/"+format.EpochName(4)+"/manifest", 0),
			f.Truncate("/local0/"+format.EpochName(4)+"/"+format.ShardName(0), 0))
	},
}

// TestCrashOfRepair goes down at every 11th operation of a repair, or by -repair-kills at each: what could be had from
// the directories together can be had of what is left, and a second repair ends the work, at each level.
func TestCrashOfRepair(t *testing.T) {
	master := repairWorld(t)
	for name, harm := range wornOut {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { crashOfRepair(t, master, harm) }) })
	}
}

func crashOfRepair(t *testing.T, master *crashfs.FS, harm func(f *crashfs.FS) error) {
	damaged := copyWorldOf(master)
	if err := harm(damaged); err != nil {
		t.Fatal(err)
	}
	repair := func(f *crashfs.FS) ([]checkpoints.Repaired, error) {
		return checkpoints.Repair(vfs.With(context.Background(), f), repairWorldDirs, checkpoints.RepairRules{Jobs: 1})
	}
	check := func(f *crashfs.FS) error {
		ctx := vfs.With(context.Background(), f)
		err := checkRepairWorld(ctx, repairWorldDirs...)
		for e := storage.Epoch(1); e <= 4 && err == nil; e++ {
			err = intact(ctx, e, repairWorldDirs...)
		}
		if err == nil {
			err = checkRepairWorld(ctx, "/local0", "/local1")
		}
		if err == nil {
			err = checkRepairWorld(ctx, "/global")
		}
		return err
	}
	readable := checkRepairWorld(vfs.With(context.Background(), damaged), repairWorldDirs...) == nil
	if check(damaged) == nil {
		t.Fatal("there is no damage")
	}
	at, step := 1, 23
	switch {
	case *repairKills:
		step = 1
	case testing.Short():
		step = 101
	}
	for ; ; at += step {
		f := copyWorldOf(damaged)
		f.SetRule(func(op crashfs.Op) error {
			if op.N == at {
				return crashfs.ErrCrashed
			}
			return nil
		})
		if _, err := repair(f); err == nil && f.Ops() <= at {
			break
		} else if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatalf("op %d: %v", at, err)
		}
		f = f.Crash(crashfs.Survival(at%3), uint64(at))
		err := checkRepairWorld(vfs.With(context.Background(), f), repairWorldDirs...)
		if err != nil && readable {
			t.Fatalf("op %d: something is lost: %v\n%s", at, err, f)
		}
		list, err := repair(f)
		for _, r := range list {
			if !r.Done {
				t.Errorf("op %d: again: %+v", at, r)
			}
		}
		if err == nil {
			err = check(f)
		}
		if err != nil {
			t.Fatalf("op %d: %v, after %+v\n%s", at, err, list, f)
		}
	}
	if at < 100 {
		t.Errorf("only %d operations", at)
	}
}

// TestRepairKeepsWhatLaterEpochsNeed: a shard whose bytes cannot be made again lies elsewhere after its repair, and the
// epochs that refer to it are whole before that.
func TestRepairKeepsWhatLaterEpochsNeed(t *testing.T) {
	f := repairWorld(t)
	ctx := vfs.With(t.Context(), f)
	d := level.NewDir(f, storage.LevelGlobal, "/global", 0)
	before, err := d.ReadManifest(3)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(before.Shards[1].Origins) != "[2]" {
		t.Fatalf("epoch 3 refers to %v, want 2", before.Shards[1].Origins)
	}
	if err := wornOut["a shard at global with another layout, to which others refer"](f); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoints.Repair(ctx, repairWorldDirs, checkpoints.RepairRules{}); err != nil {
		t.Fatal(err)
	}
	m, err := d.ReadManifest(2)
	if err != nil || m.ID() == [16]byte{} || m.Shards[1].Pack != 1 {
		t.Errorf("the shard is in pack %d, %v", m.Shards[1].Pack, err)
	}
	after, err := d.ReadManifest(3)
	if err != nil || after == nil || len(after.Shards[1].Origins) > 0 || after.ID() != before.ID() {
		t.Errorf("epoch 3 refers to %v, %v, and its contents are the same: %v", after.Shards[1].Origins, err,
			after.ID() == before.ID())
	}
	if err := checkRepairWorld(ctx, "/global"); err != nil {
		t.Error(err)
	}
}

// TestRepairNamesWhatIsLost: what no directory has stays as it is and is named; the rest is repaired.
func TestRepairNamesWhatIsLost(t *testing.T) {
	f := repairWorld(t)
	ctx := vfs.With(t.Context(), f)
	lost := []string{"/local0/" + format.EpochName(4) + "/" + format.ShardName(0),
		"/global/" + format.EpochName(4) + "/" + format.ShardName(0)}
	for _, name := range append(lost, "/local1/"+format.EpochName(4)+"/"+format.ShardName(1)) {
		if err := f.Flip(name, 4200, 1); err != nil {
			t.Fatal(err)
		}
	}
	was, err := level.ReadFile(f, lost[0], 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		list, err := checkpoints.Repair(ctx, repairWorldDirs, checkpoints.RepairRules{DryRun: dry})
		if err != nil || len(list) != 3 {
			t.Fatalf("got %+v, %v", list, err)
		}
		for _, r := range list {
			if could := r.Rank == 1; could != (r.Err == nil) || r.Done != (could && !dry) {
				t.Errorf("dry run %v: rank %d in %s: done %v, %v", dry, r.Rank, r.Dir.Dir, r.Done, r.Err)
			}
		}
	}
	if b, err := level.ReadFile(f, lost[0], 1<<20); err != nil || string(b) != string(was) {
		t.Errorf("what cannot be repaired was changed: %v", err)
	}
}

// TestRepairAndRuns: a running job keeps repair away, and repair keeps prune away.
func TestRepairAndRuns(t *testing.T) { synctest.Test(t, repairAndRuns) }

func repairAndRuns(t *testing.T) {
	f := repairWorld(t)
	ctx := vfs.With(context.Background(), f)
	run := level.NewGuard(ctx, "a run of the job")
	for _, d := range repairWorldDirs {
		if err := run.Take(ctx, level.Of(f, d, nil)); err != nil {
			t.Fatal(err)
		}
	}
	run.KeepAlive()
	var busy *storage.BusyError
	if _, err := checkpoints.Repair(ctx, repairWorldDirs, checkpoints.RepairRules{}); !errors.As(err, &busy) {
		t.Errorf("beside a run: got %v", err)
	}
	if _, err := checkpoints.Repair(ctx, repairWorldDirs, checkpoints.RepairRules{DryRun: true}); err != nil {
		t.Errorf("to look beside a run: got %v", err)
	}
	if _, err := checkpoints.Copy(ctx, []string{"/local0", "/local1"}, "/global", 4, 0); !errors.As(err, &busy) {
		t.Errorf("copy into it: got %v", err)
	}
	if err := run.Release(); err != nil {
		t.Fatal(err)
	}
	if list, err := checkpoints.Repair(ctx, repairWorldDirs, checkpoints.RepairRules{}); err != nil || len(list) > 0 {
		t.Errorf("after it: got %v, %v", list, err)
	}
}

// TestRepairInStore damages an epoch in an object store, in each way that objects are, and stops its repair at every
// 23rd request, or by -repair-kills at each: then, too, all can be had, and the next repair ends the work.
func TestRepairInStore(t *testing.T) {
	jobtest.QuickStore(t)
	f := copyWorld(t)
	ctx := vfs.With(t.Context(), f)
	prefix := "some/prefix/" + format.EpochName(3) + "/"
	gone := func([]byte) []byte { return nil }
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	for name, harm := range map[string]func(s *fakes3.Server){
		"a bit of a shard":      func(s *fakes3.Server) { s.Edit(prefix+format.ShardName(1), flip) },
		"a shard is gone":       func(s *fakes3.Server) { s.Edit(prefix+format.ShardName(0), gone) },
		"a bit of the manifest": func(s *fakes3.Server) { s.Edit(prefix+"manifest", flip) },
		"the manifest and a shard": func(s *fakes3.Server) {
			s.Edit(prefix+"manifest", flip)
			s.Edit(prefix+format.ShardName(1), flip)
		},
		"the marker and the record": func(s *fakes3.Server) {
			s.Edit("some/prefix/holdfast.job", flip)
			s.Edit("some/prefix/holdfast.begun", flip)
		},
	} {
		step := int64(23)
		switch {
		case *repairKills:
			step = 1
		case testing.Short():
			step = 151
		}
		for at := int64(2); ; at += step {
			store := &fakes3.Server{MinPart: 64 << 10, Page: 7}
			plain := fakes3.Start(t, store)
			if _, err := checkpoints.Copy(ctx, []string{"/global"}, plain, 3, 2); err != nil {
				t.Fatal(err)
			}
			harm(store)
			proxy := jobtest.NewStoreProxy(store, at, at%2 == 0)
			url := fakes3.Start(t, proxy)
			_, err := checkpoints.Repair(ctx, []string{"/local0", "/local1", url}, checkpoints.RepairRules{Epoch: 3})
			ended := err == nil && !proxy.Dead.Load()
			for _, lock := range []string{"/local0/", "/local1/"} { // of this process, which lives
				f.RemoveAll(lock + format.LockName)
			}
			store.Edit("some/prefix/"+format.LockName, gone)
			if err := epochIn(ctx, 3, "/local0", "/local1"); err != nil {
				t.Fatalf("%s, request %d: the good copy is damaged: %v", name, at, err)
			}
			if !ended {
				dirs := []string{"/local0", "/local1", plain}
				if _, err := checkpoints.Repair(ctx, dirs, checkpoints.RepairRules{Epoch: 3}); err != nil {
					t.Fatalf("%s, request %d: again: %v", name, at, err)
				}
			}
			if err := errors.Join(epochIn(ctx, 3, plain), intact(ctx, 3, plain)); err != nil {
				t.Fatalf("%s, request %d: %v, of %v", name, at, err, store.Keys())
			}
			if ended {
				break
			}
		}
	}
}

// TestDryRunSeesWhatRepairDoes: a dry run says of each damage that it can be repaired, even if one repair needs
// another one first.
func TestDryRunSeesWhatRepairDoes(t *testing.T) {
	master := repairWorld(t)
	for name, harm := range wornOut {
		f := copyWorldOf(master)
		if err := harm(f); err != nil {
			t.Fatal(err)
		}
		before := f.String()
		list, err := checkpoints.Repair(vfs.With(t.Context(), f), repairWorldDirs,
			checkpoints.RepairRules{DryRun: true})
		if err != nil || len(list) == 0 || f.String() != before {
			t.Errorf("%s: got %+v, %v", name, list, err)
		}
		for _, r := range list {
			if r.Err != nil || r.Done {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}
