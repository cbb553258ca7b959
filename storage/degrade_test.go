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
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
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

// TestDamagedMarkerIsReplaced: a damaged marker beside epochs of the job does not keep it out.
func TestDamagedMarkerIsReplaced(t *testing.T) {
	for _, size := range []int{1, 2} {
		f := crashfs.New()
		f.MkdirAll("/l")
		f.MkdirAll("/g")
		s, err := storage.Open(vfs.With(t.Context(), f), degradeOptions("", "j"))
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, 1, storage.LevelLocal)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.Flip("/l/"+format.MarkerName, 20, 1); err != nil {
			t.Fatal(err)
		}
		opt := degradeOptions("", "j")
		opt.Size, opt.Degrade = size, false
		opt.Levels = opt.Levels[:1]
		s, err = storage.Open(vfs.With(t.Context(), f), opt)
		if size == 1 {
			if err != nil {
				t.Fatal(err)
			}
			if m, err := s.Level(0).ReadMarker(); err != nil || m.Job != "j" {
				t.Errorf("marker %v, %v", m, err)
			}
			err = s.Close()
		} else if !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("the epochs are of another job: got %v, want ErrCorrupt", err)
			err = nil
		} else {
			err = nil
		}
		if err != nil {
			t.Error(err)
		}
	}
}
