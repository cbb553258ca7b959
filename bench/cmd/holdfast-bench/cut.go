package main

import (
	"time"

	"github.com/holdfast-hpc/holdfast/bench/cut"
	"github.com/spf13/cobra"
)

func newBenchCut() *cobra.Command {
	s := &benchSuite{}
	o := cut.Options{Ranks: []int{2, 4, 8}, Epochs: 20, Compute: 2 * time.Millisecond}
	cmd := s.command(&cobra.Command{
		Use:   "cut",
		Short: "measure how long the ranks take to agree on a cut",
	}, func(cmd *cobra.Command) error {
		return cut.Run(cmd.Context(), &s.Runner, o)
	})
	f := cmd.Flags()
	f.IntSliceVar(&o.Ranks, "ranks", o.Ranks, "numbers of ranks")
	f.IntVar(&o.Epochs, "epochs", o.Epochs, "checkpoints per run")
	f.DurationVar(&o.Compute, "compute", o.Compute, "computing time of an iteration")
	return cmd
}
