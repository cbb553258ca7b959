package supervise

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
)

// TestPostAfterEnd: the machine hears nothing of a start that is over, although it listens.
func TestPostAfterEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		r := &run{events: make(chan decide.Event, 1)}
		if r.post(ctx, decide.Lost{}); len(r.events) > 0 {
			t.Fatal("it hears that rank 0 is lost")
		}
	}
}

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
