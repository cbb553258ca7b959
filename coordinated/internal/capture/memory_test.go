package capture

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestGroupMemory: the tightest control group counts.
func TestGroupMemory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755),
			os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("self", "0::/job/step\n")
	self := filepath.Join(dir, "self")
	if _, known := groupMemory(self, dir); known {
		t.Error("known without any limit")
	}
	write("job/memory.max", "1000\n")
	write("job/memory.current", "300\n")
	write("job/step/memory.max", "max\n")
	write("job/step/memory.current", "100\n")
	if left, known := groupMemory(self, dir); !known || left != 700 {
		t.Errorf("got %d %t, want 700", left, known)
	}
}
