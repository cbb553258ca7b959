package main

import (
	"os"

	"github.com/holdfast-hpc/holdfast/bench/storage"
	"github.com/spf13/cobra"
)

func newBenchStorage() *cobra.Command {
	s := &benchSuite{}
	var quick bool
	resize := storage.ResizeOptions{}
	o := storage.Options{Parity: true}
	cmd := s.command(&cobra.Command{
		Use:   "storage",
		Short: "measure how checkpoints are written, copied and restored",
		Long: `storage has several processes take checkpoints of random data, and compares their
times with what the same processes need in the same run to write and fsync the same
bytes, to read them from the page cache, and to copy them in memory.

--dir is a directory on the disk to measure; it needs room for five times the data.
VALUE and BASELINE are medians.

With --resize N it measures how N simulated ranks' epoch of --mib MiB in all is restored
by as many, half as many and twice as many ranks: the time, and the bytes read, for arrays
that are divided by rows, by blocks of rows in turn, and by columns.` + suiteCodes,
	}, func(cmd *cobra.Command) error {
		if resize.Ranks > 0 {
			resize.Dir, resize.MiB = o.Dir, o.MiB[len(o.MiB)-1]
			if quick {
				resize.MiB, s.Runs = 64, 3
			}
			return storage.Resize(cmd.Context(), &s.Runner, resize)
		}
		if quick {
			o.Ranks, o.MiB, s.Runs = []int{2}, []int{64}, 3
		}
		return storage.Run(cmd.Context(), &s.Runner, o)
	})
	f := cmd.Flags()
	f.BoolVar(&quick, "quick", false, "2 ranks, 64 MiB each, 3 runs: less than a minute")
	f.StringVar(&o.Dir, "dir", os.TempDir(), "directory to write in")
	f.IntSliceVar(&o.Ranks, "procs", []int{2, 4}, "numbers of processes")
	f.IntVar(&resize.Ranks, "resize", 0, "measure restarts on half and on twice this number of ranks instead")
	f.IntSliceVar(&o.MiB, "mib", []int{64, 256}, "MiB per process")
	f.IntVar(&s.Runs, "runs", 5, "runs of each case after one to warm up")
	return cmd
}
