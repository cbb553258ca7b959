package opencl

import (
	"path/filepath"
	"testing"
)

// TestFewFiles: a program, and the command that serves it, stay within a small limit of open files:
// calls wait for each other, and mappings take longer. More threads than the command answers at once
// wait for an event.
func TestFewFiles(t *testing.T) {
	l := newPoCLLab(t)
	few, more := "20", "64"
	if onGPU {
		few, more = "100", "200" // NVIDIA's library needs some 50 for itself
	}
	for _, c := range []struct{ files, threads string }{{few, "10"}, {more, "100"}, {"4000", "1200"}} {
		got := l.run(through(platform), "/bin/sh", "-c", `ulimit -n $1; exec "$0" $2`, filepath.Join(built.dir, "few"),
			c.files, c.threads)
		if got != "over\n" {
			t.Errorf("with %s files: %s", c.files, got)
		}
	}
}
