package main

import (
	"os"

	"github.com/holdfast-hpc/holdfast/bench/peers"
	"github.com/spf13/cobra"
)

func newBenchPeers() *cobra.Command {
	s := &benchSuite{}
	o := peers.Options{}
	cmd := s.command(&cobra.Command{
		Use:   "peers",
		Short: "measure VeloC, SCR, FTI and DMTCP where they are installed",
	}, func(cmd *cobra.Command) error { return peers.Run(cmd.Context(), &s.Runner, o) })
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", os.TempDir(), "directory to write in")
	f.StringVar(&o.MPI, "mpi", "", "openmpi or mpich: the one that the libraries were built with (default: the first "+
		"that is installed)")
	f.IntVar(&o.Ranks, "ranks", 2, "number of ranks")
	f.IntVar(&o.MiB, "mib", 64, "MiB of state per rank")
	f.IntVar(&s.Runs, "runs", 3, "number of runs")
	return cmd
}
