package main

import (
	"fmt"
	"os"

	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/holdfast-hpc/holdfast/internal/mpibench"
	"github.com/spf13/cobra"
)

func newBenchMPI() *cobra.Command {
	var asJSON, strict bool
	o := mpibench.Options{}
	cmd := &cobra.Command{
		Use:   "mpi",
		Short: "measure messages through mpiwrap beside C",
		Long: `mpi runs a Go program with mpiwrap and a C program that makes the same calls, in
turns, on two ranks of this node under every MPI that is installed, and prints
the ratio of their times. The C program is compiled with the MPI's own compiler
(mpicc.openmpi, mpicc.mpich) before it runs. Ranks wait busily, so the node
should have two idle cores.

Exit codes: 0 measured (with --strict: and all goals met); 1 a goal is not met;
2 could not measure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.Self = []string{self, "bench", "mpi-worker"}
			o.Note = func(s string) { fmt.Fprintln(cmd.ErrOrStderr(), "measuring", s) }
			lines, err := mpibench.Run(cmd.Context(), o)
			if werr := bench.Write(cmd.OutOrStdout(), lines, asJSON); err == nil {
				err = werr
			}
			if err == nil && strict && !bench.AllMet(lines) {
				err = errBad
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "write one JSON object per line")
	f.BoolVar(&strict, "strict", false, "exit code 1 when a goal is not met")
	f.IntVar(&o.Runs, "runs", 5, "runs of each program")
	return cmd
}

// newBenchMPIWorker is one rank of the Go program that bench mpi starts.
func newBenchMPIWorker() *cobra.Command {
	return &cobra.Command{
		Use: "mpi-worker", Short: "one rank of bench mpi", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return mpibench.Worker(cmd.OutOrStdout()) },
	}
}
