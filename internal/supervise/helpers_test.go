package supervise

import (
	"os"
	"path/filepath"
	"testing"
)

// commands puts shell scripts into PATH, by name.
func commands(t *testing.T, bodies map[string]string) {
	t.Helper()
	bin := t.TempDir()
	for name, body := range bodies {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}
