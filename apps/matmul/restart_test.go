package main

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/internal/jobtest"
)

func TestRestart(t *testing.T) {
	jobtest.Restart{Name: "matmul", Args: "-size 600x3000x600 -panel 40 -checks 1", Ranks: 4,
		Step: "matmul: step ", At: 8}.Run(t)
}
