package main

import (
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut/scale"
	"github.com/holdfast-hpc/holdfast/internal/bench/cut"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/spf13/cobra"
)

func newBenchCut() *cobra.Command {
	var out benchOutput
	var simulate int
	o := cut.Options{Ranks: []int{2, 4, 8}, Epochs: 20, Compute: 2 * time.Millisecond}
	cmd := &cobra.Command{
		Use:   "cut",
		Short: "measure how long the ranks take to agree on a cut",
		Long: `cut runs a small MPI program under every MPI that is installed, asks for
checkpoints at random moments of random ranks, and prints how long the request
takes to become a cut beyond the program's own iteration, which is the baseline:
a request waits for the end of one at least.

With --simulate N it prints what the protocol costs on N simulated ranks
instead: control messages, bytes through the busiest rank, memory, virtual time.

Exit codes: 0 measured (with --strict: and all goals met); 1 a goal is not met;
2 could not measure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if simulate > 0 {
				return simulateCut(cmd, simulate, out.json)
			}
			var err error
			if o.Self, err = self("bench", "cut-worker"); err != nil {
				return err
			}
			o.Note = out.note(cmd, len(mpirun.Launchers())*len(o.Ranks))
			lines, err := cut.Run(cmd.Context(), o)
			return out.finish(cmd, lines, err)
		},
	}
	out.flags(cmd)
	f := cmd.Flags()
	f.IntSliceVar(&o.Ranks, "ranks", o.Ranks, "numbers of ranks")
	f.IntVar(&o.Epochs, "epochs", o.Epochs, "checkpoints per run")
	f.DurationVar(&o.Compute, "compute", o.Compute, "computing in an iteration")
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
		return jsonLines(cmd.OutOrStdout(), results)
	}
	return scale.WriteTable(cmd.OutOrStdout(), results)
}

// newBenchCutWorker is one rank of the program that bench cut starts.
func newBenchCutWorker() *cobra.Command {
	var o cut.WorkerOptions
	cmd := &cobra.Command{
		Use: "cut-worker", Short: "one rank of bench cut", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cut.Worker(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", "", "directory for checkpoints")
	f.IntVar(&o.Epochs, "epochs", 20, "checkpoints")
	f.DurationVar(&o.Compute, "compute", time.Millisecond, "computing in an iteration")
	return cmd
}
