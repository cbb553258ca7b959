package main

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/holdfast-hpc/holdfast/test/schema"
)

// TestMain lets the test binary be a rank of the doctor, and other processes that holdfast starts of itself.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "doctor-rank" || len(os.Args) > 2 && os.Args[1] == "doctor-node" ||
		os.Getenv("HOLDFAST_TEST_AS_ITSELF") != "" {
		os.Exit(Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), args, &out, &errs)
	schema.Output(t, args, out.String())
	return code, out.String(), errs.String()
}
