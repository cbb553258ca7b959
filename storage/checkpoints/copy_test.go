package checkpoints_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
	"github.com/holdfast-hpc/holdfast/test/fakes3"
)

var storeKills = flag.Bool("store-kills", false, "TestKilledCopyToStore kills at every request, not at every fifth")

// epochIn compares an epoch of two ranks, as directories have it, with what was put.
func epochIn(ctx context.Context, e storage.Epoch, dirs ...string) error {
	v, err := checkpoints.Open(ctx, dirs...)
	if err != nil {
		return err
	}
	for r := range jobtest.WorldSize {
		sh, err := v.Fetch(ctx, e, r)
		if err != nil {
			return err
		}
		for _, want := range jobtest.SmallSections(r, e) {
			got := make([]byte, want.Size)
			if err := sh.ReadAt(ctx, want.Name, got, 0); err != nil {
				return errors.Join(err, sh.Close())
			}
			if !bytes.Equal(got, want.Source.(storage.Bytes)) {
				return errors.Join(fmt.Errorf("rank %d: section %s of epoch %d differs", r, want.Name, e), sh.Close())
			}
		}
		if err := errors.Join(sh.Close(), clean(sh.Damage())); err != nil {
			return err
		}
	}
	return nil
}

func clean(damage []error) error {
	if len(damage) > 0 {
		return fmt.Errorf("read around damage: %w", errors.Join(damage...))
	}
	return nil
}

// intact reports whether verify finds nothing wrong with an epoch in the directories.
func intact(ctx context.Context, e storage.Epoch, dirs ...string) error {
	v, err := checkpoints.Inspect(ctx, dirs...)
	if err != nil {
		return err
	}
	found, err := v.Verify(ctx, e)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("verify finds %+v", found)
	}
	return err
}

// copyWorld returns a disk with the epochs 1 to 3 at global, each of which refers to earlier ones, and a place for
// copies.
func copyWorld(t *testing.T) *crashfs.FS {
	t.Helper()
	f := jobtest.NewWorldFS()
	w := openKeeping(t, f)
	defer w.Stop()
	for e := storage.Epoch(1); e <= 3; e++ {
		if err := w.TakeEpoch(e, func(storage.Epoch) {}); err != nil {
			t.Fatal(err)
		}
	}
	f.MkdirAll("/site")
	return f
}

func TestCopyDirs(t *testing.T) {
	f := copyWorld(t)
	ctx := vfs.With(t.Context(), f)
	before := f.String()
	for _, c := range []struct {
		from    []string
		epoch   storage.Epoch
		want    storage.Epoch
		already bool
	}{
		{[]string{"/global"}, 0, 3, false},
		{[]string{"/local0", "/local1"}, 3, 3, true},
		{[]string{"/local1", "/local0"}, 2, 2, false},
		{[]string{"/global"}, 2, 2, true},
	} {
		done, err := checkpoints.Copy(ctx, c.from, "/site/new", c.epoch, 0)
		if err != nil || done.Epoch != c.want || done.Already != c.already || done.Bytes != 2*8700 {
			t.Fatalf("copy of %d from %v: got %+v, %v", c.epoch, c.from, done, err)
		}
	}
	for e := storage.Epoch(2); e <= 3; e++ {
		if err := errors.Join(epochIn(ctx, e, "/site/new"), intact(ctx, e, "/site/new")); err != nil {
			t.Error(err)
		}
	}
	f.RemoveAll("/site")
	if f.String() != before {
		f.MkdirAll("/site")
		if f.String() != before {
			t.Errorf("the copied directories have changed:\n%s\nwere\n%s", f, before)
		}
	}
}

// TestCopyRefuses: what a copy would harm, or cannot do, is an error with a type, and nothing is written.
func TestCopyRefuses(t *testing.T) {
	f := copyWorld(t)
	ctx := vfs.With(t.Context(), f)
	if _, err := checkpoints.Copy(ctx, []string{"/global"}, "/site/new", 3, 0); err != nil {
		t.Fatal(err)
	}
	other := jobtest.NewWorldFS()
	w, err := jobtest.OpenWorld(other)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := storage.Epoch(5); e <= 8; e++ { // numbers that are not those of the contents
		infos, err := w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
			return s.Put(ctx, e-5+1, storage.LevelGlobal, jobtest.SmallSections(r, e))
		})
		if err == nil {
			err = w.Stores.Commit(e-5+1, storage.LevelGlobal, infos)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// Epoch 3 of another run with the same name lies at the place to copy to.
	copyTree(t, other, f, "/global/"+format.EpochName(3), "/site/other/"+format.EpochName(3))
	copyTree(t, other, f, "/global", "/site/other")
	before := f.String()
	_, err = checkpoints.Copy(ctx, []string{"/global"}, "/site/other", 3, 0)
	if err == nil || !strings.Contains(err.Error(), "has another epoch 3") {
		t.Errorf("another epoch 3 is there: got %v", err)
	}
	var option *storage.OptionError
	if _, err := checkpoints.Copy(ctx, []string{"/global"}, "/global/.", 3, 0); !errors.As(err, &option) {
		t.Errorf("onto itself: got %v", err)
	}
	var dir *storage.DirError
	if _, err := checkpoints.Copy(ctx, []string{"/global"}, "/local0", 3, 0); !errors.As(err, &dir) {
		t.Errorf("to the directory of another level: got %v", err)
	}
	if _, err := checkpoints.Copy(ctx, []string{"/global"}, "/site/new", 9, 0); !errors.Is(err,
		storage.ErrNotCommitted) {
		t.Errorf("an epoch that is not there: got %v", err)
	}
	if f.String() != before {
		t.Errorf("something was written:\n%s\nwere\n%s", f, before)
	}
	shard := "/site/new/" + format.EpochName(3) + "/" + format.ShardName(1)
	if err := f.Truncate(shard, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoints.Copy(ctx, []string{"/global"}, "/site/new", 3, 0); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("what was copied is damaged: got %v", err)
	}
	if err := f.Flip("/local0/"+format.EpochName(3)+"/"+format.ShardName(0), 5000, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoints.Copy(ctx, []string{"/local0", "/local1"},
		"/site/third", 3, 0); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("from damaged shards: got %v", err)
	}
	if err := epochIn(ctx, 3, "/site/third"); !errors.Is(err, storage.ErrNotCommitted) {
		t.Errorf("a damaged epoch was committed: %v", err)
	}
	// Together the directories have every chunk right.
	if _, err := checkpoints.Copy(ctx, []string{"/local0", "/local1", "/global"}, "/site/third", 3, 0); err != nil {
		t.Error(err)
	}
	if err := epochIn(ctx, 3, "/site/third"); err != nil {
		t.Error(err)
	}
}

// copyTree copies a directory from one file system to another.
func copyTree(t *testing.T, from, to *crashfs.FS, dir, target string) {
	t.Helper()
	to.MkdirAll(target)
	list, err := from.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Dir {
			continue
		}
		b, err := level.ReadFile(from, dir+"/"+e.Name, 1<<20)
		if err == nil {
			err = level.WriteFile(to, target+"/"+e.Name, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopyCompletesADamagedHalf: shards that an earlier copy has left are taken as they are if they are good.
func TestCopyCompletesADamagedHalf(t *testing.T) {
	f := copyWorld(t)
	ctx := vfs.With(t.Context(), f)
	f.SetRule(func(op crashfs.Op) error {
		if op.Kind == "rename" && op.Name == "/site/new/"+format.EpochName(3)+"/manifest" {
			return errors.New("interrupted")
		}
		return nil
	})
	if _, err := checkpoints.Copy(ctx, []string{"/global"}, "/site/new", 3, 0); err == nil {
		t.Fatal("the copy was not interrupted")
	}
	f.SetRule(nil)
	if err := f.Flip("/site/new/"+format.EpochName(3)+"/"+format.ShardName(1), 4200, 8); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoints.Copy(ctx, []string{"/global"}, "/site/new", 3, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(epochIn(ctx, 3, "/site/new"), intact(ctx, 3, "/site/new")); err != nil {
		t.Error(err)
	}
}

// TestCrashOfCopy goes down at every operation: what was copied from is as it was, the copy is not there or is whole,
// and a second call completes it.
func TestCrashOfCopy(t *testing.T) { synctest.Test(t, crashOfCopy) }

func crashOfCopy(t *testing.T) {
	master := copyWorld(t)
	prepare := func() *crashfs.FS { return copyWorldOf(master) }
	copyIt := func(f *crashfs.FS) error {
		_, err := checkpoints.Copy(vfs.With(context.Background(), f), []string{"/global"}, "/site/new", 3, 1)
		return err
	}
	n := jobtest.CrashEverywhere(t, prepare, copyIt, func(f *crashfs.FS, at int) {
		ctx := vfs.With(context.Background(), f)
		if err := epochIn(ctx, 3, "/global"); err != nil {
			t.Fatalf("op %d: at the origin: %v", at, err)
		}
		var none *storage.DirError
		err := epochIn(ctx, 3, "/site/new")
		if err != nil && !errors.Is(err, storage.ErrNotCommitted) && !errors.As(err, &none) {
			t.Fatalf("op %d: half a copy: %v\n%s", at, err, f)
		}
		if err := copyIt(f); err != nil {
			t.Fatalf("op %d: again: %v\n%s", at, err, f)
		}
		if err := errors.Join(epochIn(ctx, 3, "/site/new"), intact(ctx, 3, "/site/new")); err != nil {
			t.Fatalf("op %d: %v\n%s", at, err, f)
		}
	})
	if n < 40 {
		t.Errorf("only %d operations", n)
	}
}

// copyWorldOf returns a copy of a disk that has been synced.
func copyWorldOf(f *crashfs.FS) *crashfs.FS { return f.Crash(crashfs.KeepAll, 0) }

// TestCopyToStoreAndBack takes an epoch to an object store, from there to another one, and back to a directory,
// through a network that loses, repeats and delays requests. Whatever a failed copy leaves is completed.
func TestCopyToStoreAndBack(t *testing.T) {
	jobtest.QuickStore(t)
	f := copyWorld(t)
	ctx := vfs.With(t.Context(), f)
	rnd := rand.New(rand.NewPCG(7, 7))
	var ways []*fakes3.Proxy
	lost := 0
	place := func() (string, *fakes3.Server) {
		store := &fakes3.Server{MinPart: 64 << 10, Page: 7}
		p := &fakes3.Proxy{Store: store}
		p.Choose, p.Wait = fakes3.Random(rnd.Uint64(), 0.25)
		ways = append(ways, p)
		return fakes3.Start(t, p), store
	}
	one, first := place()
	two, _ := place()
	steps := []struct {
		from []string
		to   string
	}{{[]string{"/local0", "/local1"}, one}, {[]string{one}, two}, {[]string{two}, "/site/back"}}
	for _, s := range steps {
		for try := 0; ; try++ {
			done, err := checkpoints.Copy(ctx, s.from, s.to, 3, 3)
			if err == nil && done.Epoch == 3 {
				break
			}
			lost++
			if try == 200 {
				t.Fatalf("from %v to %s: %v", s.from, s.to, err)
			}
		}
	}
	if err := errors.Join(epochIn(ctx, 3, "/site/back"), intact(ctx, 3, "/site/back")); err != nil {
		t.Error(err)
	}
	for try := 0; ; try++ {
		err := epochIn(ctx, 3, one)
		if err == nil {
			break
		}
		if try == 50 {
			t.Fatalf("at the store: %v, of %v", err, first.Keys())
		}
	}
	faults := 0
	for _, p := range ways {
		for kind, n := range p.Counts() {
			if kind != "" {
				faults += n
			}
		}
	}
	if faults < 20 {
		t.Errorf("only %d faults", faults)
	}
	t.Logf("%d faults, %d copies failed on the way", faults, lost)
}

// TestKilledCopyToStore stops the copy at every fifth request, or by -store-kills at each: no reader sees half an
// epoch, and the next copy completes it.
func TestKilledCopyToStore(t *testing.T) {
	jobtest.QuickStore(t)
	f := copyWorld(t)
	ctx := vfs.With(t.Context(), f)
	step := int64(5)
	switch {
	case *storeKills:
		step = 1
	case testing.Short():
		step = 17
	}
	for at := int64(1); ; at += step {
		store := &fakes3.Server{MinPart: 64 << 10, Page: 7}
		proxy := jobtest.NewStoreProxy(store, at, at%2 == 0)
		url := fakes3.Start(t, proxy)
		_, err := checkpoints.Copy(ctx, []string{"/global"}, url, 3, 2)
		plain := fakes3.Start(t, store)
		if err == nil && !proxy.Dead.Load() {
			if at < 12 {
				t.Errorf("only %d requests", at)
			}
			return
		}
		committed := epochIn(ctx, 3, plain)
		var none *storage.DirError
		if committed != nil && !errors.Is(committed, storage.ErrNotCommitted) && !errors.As(committed, &none) {
			t.Fatalf("request %d: half a copy: %v, of %v", at, committed, store.Keys())
		}
		// The lock's owner is this process, and lives.
		store.Edit("some/prefix/"+format.LockName, func([]byte) []byte { return nil })
		if _, err := checkpoints.Copy(ctx, []string{"/global"}, plain, 3, 2); err != nil {
			t.Fatalf("request %d: again: %v", at, err)
		}
		if err := errors.Join(epochIn(ctx, 3, plain), intact(ctx, 3, plain)); err != nil {
			t.Fatalf("request %d: %v, of %v", at, err, store.Keys())
		}
	}
}
