package main

import (
	"os"

	"github.com/holdfast-hpc/holdfast/internal/bench/storage"
	"github.com/spf13/cobra"
)

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure what checkpoints cost on this machine",
	}
	cmd.AddCommand(newBenchStorage(), newBenchCut(), newBenchMPI(), newBenchGPU(), newBenchRemote(), newBenchApps(), newBenchPeers(), newBenchModel(), newBenchPlot(),
		newBenchWorker(), newBenchCutWorker(), newBenchMPIWorker(), newBenchGPUWorker(), newBenchAppsRaw())
	return cmd
}

func newBenchStorage() *cobra.Command {
	var out benchOutput
	var quick bool
	o := storage.Options{Parity: true}
	cmd := &cobra.Command{
		Use:   "storage",
		Short: "measure writing, copying, restoring",
		Long: `storage measures checkpoints of random data by several processes, as ratios to
what the same processes need in the same run to write and fsync the same bytes,
to read them from the page cache, and to copy them in memory.

Give --dir a directory on the disk that is to be measured; it needs room for
five times the data. Values are medians, SPREAD is the range over the median.

Exit codes: 0 measured (with --strict: and all goals met); 1 a goal is not met;
2 could not measure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Self, err = self("bench", "worker"); err != nil {
				return err
			}
			if quick {
				o.Ranks, o.MiB, o.Runs = []int{2}, []int{64}, 3
			}
			o.Note = out.note(cmd, (len(o.Ranks)+1)*len(o.MiB)) // and parity
			lines, err := storage.Run(cmd.Context(), o)
			return out.finish(cmd, lines, err)
		},
	}
	out.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&quick, "quick", false, "2 ranks, 64 MiB each, 3 runs: less than a minute")
	f.StringVar(&o.Dir, "dir", os.TempDir(), "directory to write in")
	f.IntSliceVar(&o.Ranks, "ranks", []int{2, 4}, "numbers of processes")
	f.IntSliceVar(&o.MiB, "mib", []int{64, 256}, "MiB per process")
	f.IntVar(&o.Runs, "runs", 5, "runs of each case after one to warm up")
	return cmd
}

// newBenchWorker is how bench starts its processes.
func newBenchWorker() *cobra.Command {
	var s storage.Setup
	cmd := &cobra.Command{
		Use:    "worker",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return storage.Work(cmd.Context(), s, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Dir, "dir", "", "")
	f.IntVar(&s.Rank, "rank", 0, "")
	f.IntVar(&s.Size, "size", 1, "")
	f.Int64Var(&s.Bytes, "bytes", 0, "")
	return cmd
}
