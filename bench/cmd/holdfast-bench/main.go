// Command holdfast-bench measures the cost of checkpoints on this machine. holdfast bench starts it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/holdfast-hpc/holdfast/bench/apps"
	"github.com/holdfast-hpc/holdfast/bench/cut"
	"github.com/holdfast-hpc/holdfast/bench/gpu"
	"github.com/holdfast-hpc/holdfast/bench/mpi"
	"github.com/holdfast-hpc/holdfast/bench/storage"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/spf13/cobra"
)

func main() { cli.Main(Run) }

// Run runs holdfast-bench with arguments and returns its exit code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, newRoot(), args, stdout, stderr)
}

// newRoot has the name by which users start it.
func newRoot() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure what checkpoints cost on this machine",
		Long: `Each suite prints one row for each figure. VALUE and BASELINE are in UNIT and were
measured in the same run; RATIO is VALUE / BASELINE. GOAL is the bound for RATIO, or for
VALUE where there is no baseline, and MET says whether it was reached. SPREAD is the
range over the RUNS, divided by the median. The same columns are keys of --json.`,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "holdfast bench"},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	cmd.AddCommand(newBenchStorage(), newBenchCut(), newBenchMPI(), newBenchGPU(), newBenchRemote(), newBenchApps(),
		newBenchPeers(), newBenchC(), newBenchOpenCL(), newBenchPlot(), newBenchWorker(), newMan())
	cmd.SetHelpCommand(&cobra.Command{Hidden: true}) // holdfast help bench has come here
	return cmd
}

// workers are the processes that suites measure in, by suite.
var workers = map[string]func(ctx context.Context, setup string, in io.Reader, out io.Writer) error{
	"apps":        worker(apps.Work),
	"cut":         worker(cut.Work),
	"gpu":         worker(gpu.Work),
	"gpumessages": worker(gpu.WorkMessages),
	"mpi":         worker(mpi.Work),
	"storage":     worker(storage.Work),
}

// worker reads the setup of a worker.
func worker[Setup any](work func(context.Context, Setup, io.Reader, io.Writer) error) func(context.Context, string,
	io.Reader, io.Writer) error {
	return func(ctx context.Context, text string, in io.Reader, out io.Writer) error {
		var s Setup
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return fmt.Errorf("setup %q: %w", text, err)
		}
		return work(ctx, s, in, out)
	}
}

// newBenchWorker returns how suites start their processes: bench.Runner.Worker.
func newBenchWorker() *cobra.Command {
	return &cobra.Command{
		Use: "worker SUITE SETUP", Short: "one process of a suite", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			work, ok := workers[args[0]]
			if !ok {
				return fmt.Errorf("suite %q has no workers", args[0])
			}
			return work(cmd.Context(), args[1], cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// newMan writes the pages of the suites: for holdfast man.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "write the manual pages", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pages := map[string]string{}
			cli.AddPages(pages, cmd.Root(), func(*cli.Page) {})
			files, err := cli.WritePages(args[0], pages)
			if err != nil {
				return err
			}
			return cli.JSONLines(cmd.OutOrStdout(), files)
		},
	}
}
