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
