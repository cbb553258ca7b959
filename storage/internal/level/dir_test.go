package level_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// TestNothingIsLeftWhenTheNameIsNotDurable fails each SyncDir of a Put, and of a
// Commit.
func TestNothingIsLeftWhenTheNameIsNotDurable(t *testing.T) {
	w, err := jobtest.OpenWorld(jobtest.NewWorldFS())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	dir := "/local0/" + format.EpochName(1)
	failing := func(op crashfs.Op) error {
		if op.Kind == "syncdir" && op.Name == dir {
			return syscall.EIO
		}
		return nil
	}
	w.FS.SetRule(failing)
	put := func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Put(t.Context(), 1, storage.LevelLocal, jobtest.SmallSections(r, 1))
	}
	if _, err := put(w.Stores[0], 0); !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v", err)
	}
	if list, err := w.FS.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("a Put that failed left %v, %v", list, err)
	}
	w.FS.SetRule(nil)
	infos, err := w.Stores.InTurn(put)
	if err != nil {
		t.Fatal(err)
	}
	w.FS.SetRule(failing)
	if err := w.Stores[0].Commit(t.Context(), 1, storage.LevelLocal, infos); !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v", err)
	}
	if have, _ := level.HasManifest(w.At(0, 0), 1); have {
		t.Error("a Commit that failed left its manifest")
	}
}

// TestDamagedMarkerIsReplaced: a damaged marker beside epochs of the job does not keep it out.
func TestDamagedMarkerIsReplaced(t *testing.T) {
	for _, size := range []int{1, 2} {
		f := crashfs.New()
		f.MkdirAll("/l")
		ctx := vfs.With(t.Context(), f)
		opt := storage.Options{Job: "j", Size: 1, Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/l"}}}
		s, err := storage.Open(ctx, opt)
		if err != nil {
			t.Fatal(err)
		}
		jobtest.Take(t, []*storage.Store{s}, 1, storage.LevelLocal, func(r int) []storage.Section {
			return jobtest.SmallSections(r, 1)
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.Flip("/l/"+format.MarkerName, 20, 1); err != nil {
			t.Fatal(err)
		}
		opt.Size = size
		s, err = storage.Open(ctx, opt)
		if size != 1 {
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("the epochs are of another job: got %v, want ErrCorrupt", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if m, err := level.ReadMarker(level.NewDir(f, storage.LevelLocal, "/l", 0)); err != nil || m.Job != "j" {
			t.Errorf("marker %v, %v", m, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestManifestOfAnotherLevel: a manifest that lies in a directory of another
// level is damage there, even if its groups have no data member.
func TestManifestOfAnotherLevel(t *testing.T) {
	w := jobtest.OneEpoch(t)
	b, err := level.ReadFile(w.FS, "/global/"+format.EpochName(1)+"/manifest", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	file := "/local0/" + format.EpochName(1) + "/manifest"
	if err := errors.Join(w.FS.Remove(file), level.WriteFile(w.FS, file, b)); err != nil {
		t.Fatal(err)
	}
	_, err = w.At(0, 0).ReadManifest(1)
	if !errors.Is(err, storage.ErrCorrupt) ||
		!strings.Contains(err.Error(), "manifest of level global in a directory of level local") {
		t.Errorf("got %v, want that it is of another level", err)
	}
	if err := w.Check(1); err != nil {
		t.Errorf("the other level does not serve: %v", err)
	}
	if n := jobtest.Findings(t, w.FS, "/local0", "/local1", "/global"); n == 0 {
		t.Error("verify does not see it")
	}
}
