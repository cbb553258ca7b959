package opencl

import (
	"path/filepath"
	"testing"
)

// TestFewFiles: a program, and the command that serves it, stay within a small limit of open files:
// calls wait for each other, and mappings take longer. More threads than the command answers at once
// wait for an event.
func TestFewFiles(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct{ files, threads string }{{"20", "10"}, {"64", "100"}, {"4000", "1200"}} {
		got := l.run(through("pocl"), "/bin/sh", "-c", `ulimit -n $1; exec "$0" $2`, filepath.Join(built.dir, "few"),
			c.files, c.threads)
		if got != "over\n" {
			t.Errorf("with %s files: %s", c.files, got)
		}
	}
}
