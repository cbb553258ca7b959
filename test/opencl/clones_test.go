package opencl

import (
	"path/filepath"
	"testing"
)

// TestClones: copies of kernels, samplers from lists and attributes of kernels are what PoCL's are, also after a move.
// NVIDIA's own end the program.
func TestClones(t *testing.T) {
	l := newLab(t)
	want := l.run(onPoCLItself, "clones", l.file("go on", ""))
	l.serve()
	file := filepath.Join(l.dir, "later")
	p := l.startUntil("half", through(""), "clones", file)
	l.move("clones", l.socket()+","+another)
	l.file("later", "")
	got, err := p.rest()
	if got = p.before + got; err != nil || got != want {
		t.Errorf("moved: %v, got\n%s\nwant\n%s\n%s", err, got, want, p.errs.Bytes())
	}
}
