package opencl

import (
	"path/filepath"
	"testing"
)

// TestIncludes: sources include the program's own files, which the compiler of the server finds
// in the program's directories, even after a move.
func TestIncludes(t *testing.T) {
	l := newLab(t)
	want := l.run(without, "includes", l.file("go on", ""))
	l.serve()
	file := filepath.Join(l.dir, "later")
	p := l.startUntil("half", through(""), "includes", file)
	l.move("includes", l.socket()+","+another)
	l.file("later", "")
	got, err := p.rest()
	if got = p.before + got; err != nil || got != want {
		t.Errorf("moved: %v, got\n%s\nwant\n%s\n%s", err, got, want, p.errs.Bytes())
	}
}
