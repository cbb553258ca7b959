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
		Long: `peers measures other checkpoint libraries that are installed here, with the same
sizes, ranks and directory as Holdfast. It compares their times with what the same
processes need in the same run to write and fsync the same bytes, or to read them
from the page cache.

VELOC_HOME, SCR_HOME and FTI_HOME say where VeloC, SCR and FTI are; otherwise peers
asks pkg-config and looks below /usr, /usr/local and /opt. Holdfast's own drop-in for
VeloC is not taken for it. It compiles a small C driver against each with
the MPI's compiler, so give the MPI that they were built with (--mpi). DMTCP_HOME or
PATH say where DMTCP is; it checkpoints one process without MPI. VeloC runs in sync
mode, SCR with copy type SINGLE and a flush of every checkpoint, FTI at level 1,
DMTCP without gzip. What they restore is compared byte by byte.

A peer that is not installed is skipped, with a note on how to get it.` + suiteCodes,
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
