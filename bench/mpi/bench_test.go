package mpi

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/bench"
)

// TestMain lets the test binary be a rank of the benchmark.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "worker" {
		os.Exit(m.Run())
	}
	if err := Work(context.Background(), struct{}{}, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// BenchmarkAgainstC prints the table of `holdfast bench mpi`: each case in Go and
// in C, with the same MPI in the same run.
func BenchmarkAgainstC(b *testing.B) {
	r := &bench.Runner{Self: os.Args[0], Runs: 3}
	if err := Run(b.Context(), r); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
	if err := bench.Write(os.Stdout, r.Rows, false); err != nil {
		b.Fatal(err)
	}
	for _, l := range r.Rows {
		if l.Ratio != nil {
			b.ReportMetric(*l.Ratio, strings.ReplaceAll(l.Case, " ", "_")+"_ratio")
		}
	}
}
