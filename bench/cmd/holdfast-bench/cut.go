package main

import (
	"time"

	"github.com/holdfast-hpc/holdfast/bench/cut"
	"github.com/holdfast-hpc/holdfast/bench/cut/scale"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/spf13/cobra"
)

func newBenchCut() *cobra.Command {
	s := &benchSuite{}
	var simulate int
	o := cut.Options{Ranks: []int{2, 4, 8}, Epochs: 20, Compute: 2 * time.Millisecond}
	cmd := s.command(&cobra.Command{
		Use:   "cut",
		Short: "measure how long the ranks take to agree on a cut",
	}, func(cmd *cobra.Command) error {
		if simulate > 0 {
			return simulateCut(cmd, simulate, s.json)
		}
		return cut.Run(cmd.Context(), &s.Runner, o)
	})
	f := cmd.Flags()
	f.IntSliceVar(&o.Ranks, "ranks", o.Ranks, "numbers of ranks")
	f.IntVar(&o.Epochs, "epochs", o.Epochs, "checkpoints per run")
	f.DurationVar(&o.Compute, "compute", o.Compute, "computing time of an iteration")
	f.IntVar(&simulate, "simulate", 0, "simulate the protocol on this many ranks instead")
	return cmd
}

// simulateCut prints the table of the protocol at scale.
func simulateCut(cmd *cobra.Command, ranks int, asJSON bool) error {
	var results []scale.Result
	for _, s := range scale.Shapes() {
		r, err := scale.Run(scale.Options{Ranks: ranks, Shape: s})
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	if asJSON {
		return cli.JSONLines(cmd.OutOrStdout(), results)
	}
	return scale.WriteTable(cmd.OutOrStdout(), results)
}
