package main

import (
	"os"

	"github.com/holdfast-hpc/holdfast/internal/bench/peers"
	"github.com/spf13/cobra"
)

func newBenchPeers() *cobra.Command {
	s := &benchSuite{}
	o := peers.Options{}
	cmd := s.command(&cobra.Command{
		Use:   "peers",
		Short: "measure VeloC, SCR, FTI and DMTCP where they are installed",
		Long: `peers measures other libraries for checkpoints on your own installations, with the
same sizes, ranks and directory as Holdfast, as ratios to what the same
processes need in the same run to write and fsync the same bytes, or to read
them from the page cache.

VeloC, SCR and FTI are found by VELOC_HOME, SCR_HOME and FTI_HOME, or below /usr,
/usr/local and /opt; a small C driver is compiled against them with the MPI's
compiler, so give the MPI that they were built with (--mpi). DMTCP is found by
DMTCP_HOME or PATH and checkpoints one process without MPI. Settings: VeloC in
sync mode, SCR's copy type SINGLE with a flush of every checkpoint, FTI's level
1, DMTCP without gzip. What they restore is compared byte by byte.

A peer that is not installed is skipped, with the way to get it.` + suiteCodes,
	}, func(cmd *cobra.Command) error { return peers.Run(cmd.Context(), &s.Runner, o) })
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", os.TempDir(), "directory to write in")
	f.StringVar(&o.MPI, "mpi", "", "openmpi or mpich: the one that the libraries were built with (default: the first "+
		"that is installed)")
	f.IntVar(&o.Ranks, "ranks", 2, "number of ranks")
	f.IntVar(&o.MiB, "mib", 64, "MiB per rank")
	f.IntVar(&s.Runs, "runs", 3, "runs")
	return cmd
}
