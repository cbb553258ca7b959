package main

import (
	"github.com/holdfast-hpc/holdfast/internal/bench/mpi"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/spf13/cobra"
)

func newBenchMPI() *cobra.Command {
	var out benchOutput
	o := mpi.Options{}
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
			var err error
			if o.Self, err = self("bench", "mpi-worker"); err != nil {
				return err
			}
			o.Note = out.note(cmd, len(mpirun.Launchers())*o.Runs)
			lines, err := mpi.Run(cmd.Context(), o)
			return out.finish(cmd, lines, err)
		},
	}
	out.flags(cmd)
	f := cmd.Flags()
	f.IntVar(&o.Runs, "runs", 5, "runs of each program")
	return cmd
}

// newBenchMPIWorker is one rank of the Go program that bench mpi starts.
func newBenchMPIWorker() *cobra.Command {
	return &cobra.Command{
		Use: "mpi-worker", Short: "one rank of bench mpi", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return mpi.Worker(cmd.OutOrStdout()) },
	}
}
