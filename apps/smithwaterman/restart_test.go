package main

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/internal/jobtest"
)

func TestRestart(t *testing.T) {
	jobtest.Restart{Name: "smithwaterman", Args: "-a input/lambda.fa:1-12000 -b input/lambda.fa:20001-36000", Ranks: 3,
		Step: "smithwaterman: step ", At: 25}.Run(t)
}
