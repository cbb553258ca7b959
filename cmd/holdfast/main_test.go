package main

import (
	"context"
	"os"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
)

// TestMain lets the test binary be a rank of the doctor, and other processes that holdfast starts of itself.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && (os.Args[1] == "doctor-rank" || os.Args[1] == "guard") || len(os.Args) > 2 &&
		(os.Args[1] == "start-rank" || os.Args[1] == "doctor-node" || os.Args[1] == "node" || os.Args[1] == "flush" &&
			os.Args[2] == "--salvage") || os.Getenv("HOLDFAST_TEST_AS_ITSELF") != "" {
		os.Exit(Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	if os.Getenv("VICTIM") != "" { // TestRun starts this binary as its program
		victim()
		os.Exit(cli.Good)
	}
	os.Exit(m.Run())
}
