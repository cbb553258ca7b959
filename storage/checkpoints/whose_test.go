package checkpoints_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// TestToolsRefuseOtherRuns: repair with the directories of two runs of a program takes nothing of the one into the
// other, and says which is which.
func TestToolsRefuseOtherRuns(t *testing.T) {
	base := t.TempDir()
	dirs := []string{filepath.Join(base, "a"), filepath.Join(base, "b")}
	for i, dir := range dirs {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s, err := storage.Open(t.Context(), storage.Options{Job: "sweep", Size: 1, Levels: []storage.LevelConfig{
			{Name: storage.LevelGlobal, Dir: dir, Keep: 5}},
			Identity: storage.Identity{ID: [16]byte{byte(i + 1)}, Began: int64(i+1) * 1e18}})
		if err != nil {
			t.Fatal(err)
		}
		for e := storage.Epoch(1); e <= storage.Epoch(2+3*i); e++ {
			info, err := s.Put(t.Context(), e, storage.LevelGlobal, []storage.Section{{Name: "x", Size: 1,
				Source: storage.Bytes{byte(i)}}})
			if err == nil {
				err = s.Commit(t.Context(), e, storage.LevelGlobal, []storage.ShardInfo{info})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var refused *storage.RunError
	check := func(tool string, err error) {
		t.Helper()
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "the run that began 2001-09-09") ||
			!strings.Contains(err.Error(), "the run that began 2033-05-18") {
			t.Errorf("%s: got %v, want a *RunError with both runs", tool, err)
		}
	}
	_, err := checkpoints.Repair(t.Context(), dirs, checkpoints.RepairRules{})
	check("repair", err)
	_, err = checkpoints.Inspect(t.Context(), dirs...)
	check("verify", err)
	_, err = checkpoints.Open(t.Context(), dirs...)
	check("export", err)
	_, err = checkpoints.Copy(t.Context(), dirs[:1], dirs[1], 0, 0)
	check("copy", err)
	_, err = checkpoints.Flush(t.Context(), dirs[1:], dirs[0], 0)
	check("flush", err)
	// An epoch that somebody copied is found, and is nobody's to use, repair or remove.
	if err := os.CopyFS(filepath.Join(dirs[0], "epoch-0000000005"),
		os.DirFS(filepath.Join(dirs[1], "epoch-0000000005"))); err != nil {
		t.Fatal(err)
	}
	v, err := checkpoints.Inspect(t.Context(), dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	if found := v.VerifyDirs(); len(found) != 1 || found[0].Kind != checkpoints.OtherRun ||
		!strings.Contains(found[0].Err.Error(), "epoch belongs to the run that began 2033-05-18") {
		t.Errorf("verify finds %+v", found)
	}
	if expected, err := v.Expected(); err != nil || slices.Contains(expected, 5) {
		t.Errorf("epochs %v, %v", expected, err)
	}
	if _, err := checkpoints.Prune(t.Context(), dirs[:1], checkpoints.PruneRules{Keep: 1}); err == nil ||
		!strings.Contains(err.Error(), "is not removed") {
		t.Errorf("prune says nothing of what it leaves: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dirs[0], "epoch-0000000005", "manifest")); err != nil {
		t.Errorf("prune removed the epoch of another run: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dirs[0], "epoch-0000000001")); err == nil {
		t.Error("prune kept an epoch for the sake of one of another run")
	}
}
