package level_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// TestManifestOfAnotherLevel: a manifest that lies in a directory of another
// level is damage there, also where its groups cannot be divided by.
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
