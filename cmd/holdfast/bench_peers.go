package main

import (
	"os"

	"github.com/holdfast-hpc/holdfast/internal/bench/peers"
	"github.com/spf13/cobra"
)

func newBenchPeers() *cobra.Command {
	var out benchOutput
	o := peers.Options{}
	cmd := &cobra.Command{
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

A peer that is not installed is skipped, with the way to get it.

Exit codes: 0 measured; 2 could not measure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Self, err = self("bench", "worker"); err != nil {
				return err
			}
			o.Note = out.note(cmd, 0)
			lines, err := peers.Run(cmd.Context(), o)
			return out.finish(cmd, lines, err)
		},
	}
	out.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", os.TempDir(), "directory to write in")
	f.StringVar(&o.MPI, "mpi", "", "openmpi or mpich: the one that the libraries were built with (default: the first that is installed)")
	f.IntVar(&o.Ranks, "ranks", 2, "number of ranks")
	f.IntVar(&o.MiB, "mib", 64, "MiB per rank")
	f.IntVar(&o.Runs, "runs", 3, "runs")
	return cmd
}
