package vfs

import (
	"os"
	"path/filepath"
	"testing"
)

// TestIdentity: the same directory by any path, and no other.
func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	a, b, link := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "link")
	for _, d := range []string{a, b} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(a, link); err != nil {
		t.Fatal(err)
	}
	id := Identity(OS{}, a)
	if id == "" || Identity(OS{}, link) != id || Identity(OS{}, filepath.Join(b, "..", "a")) != id {
		t.Errorf("got %q by one path, %q and %q by others", id, Identity(OS{}, link),
			Identity(OS{}, filepath.Join(b, "..", "a")))
	}
	if Identity(OS{}, b) == id {
		t.Errorf("two directories are both %q", id)
	}
	if got := Identity(OS{}, filepath.Join(dir, "none")); got != "" {
		t.Errorf("got %q for what is not there", got)
	}
	if got := Identity(struct{ FS }{OS{}}, a); got != "" {
		t.Errorf("got %q of a file system that cannot tell", got)
	}
}
