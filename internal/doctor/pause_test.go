package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/preload"
)

// TestPause: what the driver and the installation can do with holdfast pause.
func TestPause(t *testing.T) {
	const line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %.159.04  Release Build\n"
	dir := t.TempDir()
	for _, c := range []struct {
		version string
		library bool
		state   State
		want    string
	}{
		{"580", false, Note, "is not installed"},
		{"550", true, Note, "needs 570"},
		{"570", true, OK, "to move them needs 580"},
		{"610", true, OK, "can be paused and moved"},
	} {
		self := filepath.Join(dir, c.version, "bin", "holdfast")
		lib := filepath.Join(dir, c.version, "lib", "holdfast", "cuda")
		if err := os.MkdirAll(filepath.Dir(self), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(lib, 0o755); err != nil {
			t.Fatal(err)
		}
		if c.library {
			if err := os.WriteFile(filepath.Join(lib, preload.CUDA), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r := &report{}
		r.lookPause(self, strings.Replace(line, "%", c.version, 1))
		if len(r.findings) != 1 || r.findings[0].State != c.state || !strings.Contains(r.findings[0].Detail, c.want) {
			t.Errorf("%s: got %+v, want %v %q", c.version, r.findings, c.state, c.want)
		}
	}
}
