package opencl

import (
	"path/filepath"
	"testing"
)

// TestSources: sources without a kernel, long ones, in many pieces, with many kernels, and with words that only seem
// to need what the device has not got, become what they become without the library.
func TestSources(t *testing.T) {
	l := newLab(t)
	want := l.run(without, "sources")
	for _, device := range []string{platform, another} {
		if got := l.run(through(device), "sources"); got != want {
			t.Errorf("HOLDFAST_DEVICE=%q: got\n%s\nwant\n%s", device, got, want)
		}
	}
}

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
