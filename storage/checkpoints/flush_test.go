package checkpoints_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

func TestFlushDirsCompletesADeadJob(t *testing.T) {
	w := jobtest.Unflushed(t)
	dirs := []string{"/local0", "/local1"}
	if _, err := checkpoints.Flush(vfs.With(t.Context(), w.FS), dirs[:1], "/global", 0); err == nil {
		t.Error("flushed an epoch without the directory of rank 1")
	}
	e, err := checkpoints.Flush(vfs.With(t.Context(), w.FS), dirs, "/global", 0)
	if err != nil || e != 2 {
		t.Fatalf("got epoch %d, %v, want 2", e, err)
	}
	w.FS.RemoveAll("/local0/epoch-0000000002")
	w.FS.RemoveAll("/local1/epoch-0000000002")
	if err := w.Check(2); err != nil {
		t.Error(err)
	}
	if e, err := checkpoints.Flush(vfs.With(t.Context(), w.FS), dirs, "/global", 0); err != nil || e != 0 {
		t.Errorf("again: got epoch %d, %v, want nothing to do", e, err)
	}
}

// TestFlushDirsPastDamage: the newest manifest at the global level is damaged. That
// it has the epoch is not taken for having it.
func TestFlushDirsPastDamage(t *testing.T) {
	w := jobtest.FullWorld(t, 2)
	if err := w.FS.Flip("/global/"+format.EpochName(2)+"/"+format.ManifestName, 30, 1); err != nil {
		t.Fatal(err)
	}
	if e, err := checkpoints.Flush(vfs.With(t.Context(), w.FS), []string{"/local0", "/local1"}, "/global", 0); e != 0 ||
		!errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("got epoch %d, %v, want to be told of the damage", e, err)
	}
}

func TestFlushDirsLeavesLiveRunsAlone(t *testing.T) {
	w := jobtest.Unflushed(t)
	d := level.NewDir(w.FS, storage.LevelGlobal, "/global", 0)
	live := &format.Lock{Run: "live", Owner: level.ThisProcess()}
	if ok, err := d.Lock(t.Context(), live, level.LockBeat); !ok || err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		quit := make(chan struct{})
		go func() {
			l := &format.Lock{Run: "live", Owner: level.ThisProcess()}
			for {
				select {
				case <-quit:
					return
				case <-time.After(level.LockBeat):
					_ = d.Beat(l)
				}
			}
		}()
		defer close(quit)
		var busy *storage.BusyError
		ctx := vfs.With(t.Context(), w.FS)
		if _, err := checkpoints.Flush(ctx, []string{"/local0", "/local1"}, "/global", 0); !errors.As(err, &busy) {
			t.Errorf("got %v, want a *BusyError", err)
		}
	})
}

// TestFlushComputesWhatIsLost flushes the newest epoch of a dead job, from which a node has gone, from the rest and its
// parity, at several numbers of shards at once.
func TestFlushComputesWhatIsLost(t *testing.T) {
	for _, jobs := range []int{1, 6} {
		s := buildSite(t, filepath.Join(fastDir(t), "site"), storage.LevelParity)
		if err := os.RemoveAll(s.dir(storage.LevelLocal, "n1")); err != nil {
			t.Fatal(err)
		}
		global := s.dir(storage.LevelGlobal, "")
		var local, all []string
		for _, n := range []string{"n0", "n2"} {
			local = append(local, s.dir(storage.LevelLocal, n))
			all = append(all, s.dir(storage.LevelLocal, n), s.dir(storage.LevelParity, n))
		}
		if e, err := checkpoints.Flush(t.Context(), local, global, jobs); e != 0 || !storage.IsDamage(err) ||
			!strings.Contains(err.Error(), "on node n1: give the directories of that node") {
			t.Errorf("without parity: got epoch %d, %v", e, err)
		}
		if e, err := checkpoints.Flush(t.Context(), all, global, jobs); e != siteEpochs || err != nil {
			t.Fatalf("got epoch %d, %v", e, err)
		}
		for _, n := range []string{"n0", "n2"} {
			if err := os.RemoveAll(s.dir(storage.LevelLocal, n)); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range s.nodes {
			if err := os.MkdirAll(s.dir(storage.LevelLocal, n), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		s.levels = []string{storage.LevelGlobal}
		if e, _, err := s.restore(t.Context()); e != siteEpochs || err != nil || errors.Is(err, errWrongBytes) {
			t.Errorf("restored epoch %d, %v", e, err)
		}
	}
}

// TestCrashOfFlushDirs goes down at every operation of 'holdfast flush' on a dead
// job, and flushes again. The process that died lives on here, so its lock takes
// its time to become stale.
func TestCrashOfFlushDirs(t *testing.T) { synctest.Test(t, crashOfFlushDirs) }

func crashOfFlushDirs(t *testing.T) {
	dirs := []string{"/local0", "/local1"}
	flush := func(f *crashfs.FS) error {
		_, err := checkpoints.Flush(vfs.With(context.Background(), f), dirs, "/global", 0)
		return err
	}
	master := jobtest.Unflushed(t).FS
	prepare := func() *crashfs.FS { return copyWorldOf(master) }
	n := jobtest.CrashEverywhere(t, prepare, flush, func(f *crashfs.FS, at int) {
		if err := flush(f); err != nil {
			t.Fatalf("op %d: again: %v\n%s", at, err, f)
		}
		for _, d := range dirs {
			f.RemoveAll(d + "/" + format.EpochName(2))
		}
		w, err := jobtest.OpenWorld(f)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		if err := w.Check(2); err != nil {
			t.Fatalf("op %d: %v", at, err)
		}
	})
	if n < 30 {
		t.Errorf("only %d operations", n)
	}
}
