package checkpoints_test

import (
	"context"
	"errors"
	"fmt"
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
)

// openKeeping opens a world where no level prunes any of the few epochs of a test.
func openKeeping(t *testing.T, f *crashfs.FS) *jobtest.World {
	t.Helper()
	w, err := jobtest.OpenWorld(f, func(l *storage.LevelConfig) { l.Keep = 10 })
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestPruneDirs(t *testing.T) {
	f := jobtest.NewWorldFS()
	w := openKeeping(t, f)
	defer w.Stop()
	for e := storage.Epoch(1); e <= 6; e++ {
		if err := w.TakeEpoch(e, func(storage.Epoch) {}); err != nil {
			t.Fatal(err)
		}
	}
	dry, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/local0", "/global"},
		checkpoints.PruneRules{Keep: 1, KeepEvery: 2, DryRun: true})
	// Epoch 3 holds chunks of epochs 4 and 5; nothing of 5 is needed by 6.
	if err != nil || fmt.Sprint(dry["/local0"]) != fmt.Sprint(dry["/global"]) {
		t.Errorf("got %v, %v", dry, err)
	}
	before := f.String()
	got, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/local0", "/global"},
		checkpoints.PruneRules{Keep: 1, KeepEvery: 2})
	if err != nil || fmt.Sprint(got) != fmt.Sprint(dry) || f.String() == before {
		t.Errorf("got %v, %v, want what the dry run said: %v", got, err, dry)
	}
	for _, e := range []storage.Epoch{2, 4, 6} {
		if err := w.Check(e); err != nil {
			t.Errorf("epoch %d was to be kept: %v", e, err)
		}
	}
	var bad *storage.OptionError
	if _, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/global"},
		checkpoints.PruneRules{}); !errors.As(err, &bad) {
		t.Errorf("keep 0: got %v", err)
	}
}

// TestCrashOfPrune goes down at every operation of 'holdfast prune': what the
// rules keep is whole, and a second run ends the work. See TestCrashOfFlushDirs
// for the lock.
func TestCrashOfPrune(t *testing.T) { synctest.Test(t, crashOfPrune) }

func crashOfPrune(t *testing.T) {
	master := jobtest.NewWorldFS()
	w := openKeeping(t, master)
	for e := storage.Epoch(1); e <= 5; e++ {
		if err := w.TakeEpoch(e, func(storage.Epoch) {}); err != nil {
			t.Fatal(err)
		}
	}
	w.Stop()
	prepare := func() *crashfs.FS { return copyWorldOf(master) }
	prune := func(f *crashfs.FS) error {
		_, err := checkpoints.Prune(vfs.With(context.Background(), f), []string{"/local0", "/local1", "/global"},
			checkpoints.PruneRules{Keep: 2})
		return err
	}
	n := jobtest.CrashEverywhere(t, prepare, prune, func(f *crashfs.FS, at int) {
		w, err := jobtest.OpenWorld(f)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		for again := range 2 {
			for e := storage.Epoch(4); e <= 5; e++ {
				if err := w.Check(e); err != nil {
					t.Fatalf("op %d, run %d: epoch %d: %v\n%s", at, again, e, err, f)
				}
			}
			if err := prune(f); err != nil {
				t.Fatalf("op %d: again: %v", at, err)
			}
		}
		if list, err := w.At(0, 1).Epochs(); err != nil || len(list) > 3 { // 3 holds chunks of 4 and 5
			t.Fatalf("op %d: got epochs %v, %v", at, list, err)
		}
	})
	if n < 30 {
		t.Errorf("only %d operations", n)
	}
}

// TestToolsAndRuns lets 'holdfast prune' and 'holdfast flush' meet a live run.
func TestToolsAndRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := jobtest.FullWorld(t, 3)
		s, err := storage.Open(vfs.With(t.Context(),
			w.FS), storage.Options{Job: "crash", Rank: 0, Size: jobtest.WorldSize, Run: "live",
			Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/local0"}}})
		if err != nil {
			t.Fatal(err)
		}
		var busy *storage.BusyError
		dirs := []string{"/local0", "/local1"}
		if _, err := checkpoints.Prune(vfs.With(t.Context(), w.FS), dirs,
			checkpoints.PruneRules{Keep: 1}); !errors.As(err, &busy) ||
			busy.Dir != "/local0" {
			t.Errorf("prune: got %v", err)
		}
		if _, err := checkpoints.Flush(vfs.With(t.Context(), w.FS), dirs, "/global", 0); !errors.As(err, &busy) {
			t.Errorf("flush: got %v", err)
		}
		if _, err := checkpoints.Prune(vfs.With(t.Context(), w.FS), dirs,
			checkpoints.PruneRules{Keep: 1, DryRun: true}); err != nil {
			t.Errorf("a look: got %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if gone, err := checkpoints.Prune(vfs.With(t.Context(), w.FS), dirs,
			checkpoints.PruneRules{Keep: 1}); err != nil ||
			len(gone["/local0"]) != 2 {
			t.Errorf("got %v, %v", gone, err)
		}
		if _, err := w.FS.Stat("/local0/" + format.LockName); err == nil {
			t.Error("the lock was left")
		}
	})
}

func TestToolsWithoutDirectories(t *testing.T) {
	f := jobtest.NewWorldFS()
	var bad *storage.OptionError
	if _, err := checkpoints.Prune(vfs.With(t.Context(), f), nil,
		checkpoints.PruneRules{Keep: 1}); !errors.As(err, &bad) {
		t.Errorf("prune: got %v", err)
	}
	if _, err := checkpoints.Flush(vfs.With(t.Context(), f), nil, "/global", 0); !errors.As(err, &bad) {
		t.Errorf("flush: got %v", err)
	}
	for _, r := range []checkpoints.PruneRules{{Keep: -1}, {}, {Keep: 1, KeepEvery: -2}} {
		if _, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/global"}, r); !errors.As(err, &bad) {
			t.Errorf("%+v: got %v", r, err)
		}
	}
}

// TestBadManifestAtTheWidestLevel: epochs that the global level does not have,
// because what it has of a newer one cannot be read, stay at local when the tool prunes.
func TestBadManifestAtTheWidestLevel(t *testing.T) {
	w := jobtest.Unflushed(t) // epoch 1 at both levels, 2 at local
	w.FS.MkdirAll("/global/" + format.EpochName(9))
	if err := level.WriteFile(w.FS, "/global/"+format.EpochName(9)+"/manifest", []byte("rubbish")); err != nil {
		t.Fatal(err)
	}
	for e := storage.Epoch(3); e <= 5; e++ {
		infos, err := w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
			return s.Put(t.Context(), e, storage.LevelLocal, jobtest.SmallSections(r, e))
		})
		if err == nil {
			err = w.Stores.Commit(e, storage.LevelLocal, infos)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	left := w.At(0, 0)
	w.Stop()
	dirs := []string{"/local0", "/local1", "/global"}
	_, err := checkpoints.Prune(vfs.With(t.Context(), w.FS), dirs, checkpoints.PruneRules{Keep: 1})
	if err == nil || !strings.Contains(err.Error(), "not removed: /global") {
		t.Errorf("got %v, want the bad manifest to be named", err)
	}
	if epochs, err := left.Epochs(); err != nil || len(epochs) < 4 {
		t.Errorf("got epochs %v, %v at local, want those that the global level lacks", epochs, err)
	}
}
