package epochs

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// TestIOCounts counts what a file system did.
func TestIOCounts(t *testing.T) {
	var c ioCounts
	files := vfs.From(c.over(t.Context()))
	name := filepath.Join(t.TempDir(), "f")
	f, err := files.Create(name, false)
	if err != nil {
		t.Fatal(err)
	}
	_, werr := f.WriteAt([]byte("hello"), 0)
	_, rerr := f.ReadAt(make([]byte, 3), 0)
	if err := f.Close(); werr != nil || rerr != nil || err != nil {
		t.Fatal(werr, rerr, err)
	}
	if err := files.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Open(name); err == nil {
		t.Error("opened what was removed")
	}
	if r, w, d := c.read.Load(), c.written.Load(), c.removed.Load(); r != 3 || w != 5 || d != 1 {
		t.Errorf("got %d read, %d written, %d removed, want 3, 5, 1", r, w, d)
	}
}
