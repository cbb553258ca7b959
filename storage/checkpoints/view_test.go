package checkpoints

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestDirectoryGivenTwice: one directory under two spellings is one.
func TestDirectoryGivenTwice(t *testing.T) {
	t.Chdir(t.TempDir())
	wd, err := filepath.Abs(".")
	if err := errors.Join(err, os.Mkdir("d", 0o700), os.Symlink("d", "link")); err != nil {
		t.Fatal(err)
	}
	if got := distinct([]string{"d", "link", filepath.Join(wd, "d"), "e"}); len(got) != 2 || got[1] != "e" {
		t.Errorf("paths to one directory: got %v", got)
	}
}
