package main

import (
	"github.com/holdfast-hpc/holdfast/bench/mpi"
	"github.com/spf13/cobra"
)

func newBenchMPI() *cobra.Command {
	s := &benchSuite{}
	cmd := s.command(&cobra.Command{
		Use:   "mpi",
		Short: "measure messages through mpiwrap beside C",
	}, func(cmd *cobra.Command) error { return mpi.Run(cmd.Context(), &s.Runner) })
	cmd.Flags().IntVar(&s.Runs, "runs", 5, "runs of each program")
	return cmd
}
