package main

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/internal/jobtest"
)

func TestRestart(t *testing.T) {
	jobtest.Restart{Name: "nbody", Args: "-plummer 2000 -steps 80 -energy 20", Ranks: 3,
		Step: "nbody: step ", At: 10}.Run(t)
}
