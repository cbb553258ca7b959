package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/internal/jobtest"
)

func TestRestart(t *testing.T) {
	jobtest.Restart{Name: "nbody", Args: "-plummer 2000 -steps 80", Ranks: 3,
		Step: "nbody: step ", At: 10, Back: true}.Run(t)
}

// TestRankGivesUp: an error of one rank ends the run, while the others wait for
// that rank in the ring.
func TestRankGivesUp(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "step-00000004.csv"), 0o755); err != nil {
		t.Fatal(err)
	}
	jobtest.GivesUp(t, "nbody", "-plummer 500 -steps 1000000 -every 2 -snapshots "+dir,
		"step-00000004.csv: file exists")
}
