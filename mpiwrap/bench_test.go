package mpiwrap_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/holdfast-hpc/holdfast/internal/bench/mpi"
)

// benchEnv tells the test binary that it is a rank of a benchmark.
const benchEnv = "HOLDFAST_MPIWRAP_BENCH"

func TestMain(m *testing.M) {
	if os.Getenv(benchEnv) == "" {
		os.Exit(m.Run())
	}
	if err := mpi.Worker(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// BenchmarkAgainstC prints the table of `holdfast bench mpi`: each case in Go and
// in C, with the same MPI in the same run.
func BenchmarkAgainstC(b *testing.B) {
	lines, err := mpi.Run(b.Context(), mpi.Options{Self: []string{os.Args[0]}, Env: []string{benchEnv + "=1"}, Runs: 3})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
	if err := bench.Write(os.Stdout, lines, false); err != nil {
		b.Fatal(err)
	}
	for _, l := range lines {
		if l.Ratio != nil {
			b.ReportMetric(*l.Ratio, strings.ReplaceAll(l.Case, " ", "_")+"_ratio")
		}
	}
}
