package storage_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// readOnly lets nobody write below a directory.
func readOnly(dir string) crashfs.Rule {
	return func(op crashfs.Op) error {
		switch op.Kind {
		case "create", "edit", "mkdir", "link", "rename", "remove":
			if strings.HasPrefix(op.Name, dir) {
				return &fs.PathError{Op: op.Kind, Path: op.Name, Err: syscall.EROFS}
			}
		}
		return nil
	}
}

func degradeOptions(run, job string) storage.Options {
	return storage.Options{Job: job, Size: 1, Run: run, Degrade: true,
		Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/l"}, {Name: storage.LevelGlobal, Dir: "/g"}}}
}

// TestDegrade: a level that cannot be written to is left out and read all the same,
// unless it is another job's or in use.
func TestDegrade(t *testing.T) { synctest.Test(t, testDegrade) }

func testDegrade(t *testing.T) {
	f := crashfs.New()
	f.MkdirAll("/l")
	f.MkdirAll("/g")
	first, err := storage.Open(vfs.With(t.Context(), f), degradeOptions("one", "j"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, first, 1, storage.LevelLocal)
	f.SetRule(readOnly("/l"))
	var busy *storage.BusyError
	if s, err := storage.Open(vfs.With(t.Context(), f), degradeOptions("two", "j")); !errors.As(err, &busy) {
		t.Errorf("another run is alive: got %v, %v, want a *BusyError", s, err)
	}
	f.SetRule(nil)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	f.SetRule(readOnly("/l"))
	var other *storage.JobError
	if s, err := storage.Open(vfs.With(t.Context(), f), degradeOptions("two", "k")); !errors.As(err, &other) {
		t.Errorf("another job's: got %v, %v, want a *JobError", s, err)
	}
	f.RemoveAll("/g")
	f.MkdirAll("/g")
	s, err := storage.Open(vfs.With(t.Context(), f), degradeOptions("two", "j"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if out := s.Out(); len(out) != 1 || !errors.Is(out[storage.LevelLocal], syscall.EROFS) ||
		errors.Is(out[storage.LevelLocal], fs.ErrNotExist) || errors.Is(out[storage.LevelLocal], fs.ErrPermission) {
		t.Errorf("out: %v", out)
	}
	list, _, err := s.Candidates(t.Context())
	if err != nil || len(list) != 1 || list[0].Epoch != 1 {
		t.Errorf("candidates %v, %v, want epoch 1", list, err)
	}
	durable, err := s.NoteRestore(t.Context(), 1)
	if err != nil || durable() != nil {
		t.Errorf("note of a restore: %v", err)
	}
	put(t, s, 2, storage.LevelGlobal)
	if _, err := s.Prune(t.Context()); err != nil {
		t.Error(err)
	}
}

// put commits an epoch of one rank at a level.
func put(t *testing.T, s *storage.Store, e storage.Epoch, level string) {
	t.Helper()
	b := storage.Bytes("contents")
	info, err := s.Put(context.Background(), e, level, []storage.Section{{Name: "a", Size: int64(len(b)), Source: b}})
	if err == nil {
		err = s.Commit(context.Background(), e, level, []storage.ShardInfo{info})
	}
	if err != nil {
		t.Fatal(err)
	}
}
