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
		Long: `mpi runs a Go program with mpiwrap and a C program that makes the same calls, in
turn, on two ranks of this node under every MPI that is installed. It prints the
ratio of their times. The MPI's own compiler (mpicc.openmpi, mpicc.mpich) compiles
the C program first. Ranks poll while they wait, so the node should have two idle
cores.` + suiteCodes,
	}, func(cmd *cobra.Command) error { return mpi.Run(cmd.Context(), &s.Runner) })
	cmd.Flags().IntVar(&s.Runs, "runs", 5, "runs of each program")
	return cmd
}
