package level_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
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
	infos, err := w.Each(put)
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
