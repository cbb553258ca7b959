package opencl

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestKept: the objects of a program are part of its epochs by libholdfast. After a kill -9 it
// continues from one on another platform, to the same bytes.
func TestKept(t *testing.T) {
	l := newLab(t)
	jobs := func(dir string) []string {
		if err := os.Mkdir(filepath.Join(l.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		return []string{"HOLDFAST_GLOBAL=" + filepath.Join(l.dir, dir), "HOLDFAST_LOCAL=",
			"HOLDFAST_NODE_KEY=" + l.dir + dir}
	}
	last := func(out string) string { return out[max(0, strings.Index(out, "a ")):] }
	want := last(l.run(append(through(platform), jobs("whole")...), "kept", "9", "0"))
	for _, places := range [][2]string{{platform, another}, {another, platform}} {
		env := jobs(places[0])
		out, err := l.command(append(through(places[0]), env...), "kept", "9", "5").Output()
		var killed *exec.ExitError
		if !errors.As(err, &killed) || killed.String() != "signal: killed" {
			t.Fatalf("on %s: %v\n%s", places[0], err, out)
		}
		if begin := "from 0\nmapped: 1 -12\ngated: 1 -59\n"; string(out) != begin {
			t.Errorf("got %q, want %q", out, begin)
		}
		got := l.run(append(through(places[1]), env...), "kept", "9", "5")
		if !strings.HasPrefix(got, "from 5\n") || last(got) != want {
			t.Errorf("from %s to %s: got\n%s\nwant from 5, then\n%s", places[0], places[1], got, want)
		}
	}
}
