package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-hpc/holdfast/internal/bench/apps"
	"github.com/holdfast-hpc/holdfast/internal/bench/cut"
	"github.com/holdfast-hpc/holdfast/internal/bench/gpu"
	"github.com/holdfast-hpc/holdfast/internal/bench/mpi"
	"github.com/holdfast-hpc/holdfast/internal/bench/storage"
	"github.com/spf13/cobra"
)

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure what checkpoints cost on this machine",
		Long: `Each suite prints one row for each figure. VALUE and BASELINE are in UNIT and were
measured in the same run; RATIO is VALUE / BASELINE. GOAL is the bound for RATIO, or for
VALUE where there is no baseline, and MET says whether it was reached. SPREAD is the
range over the RUNS, divided by the median. The same columns are keys of --json.`,
	}
	cmd.AddCommand(newBenchStorage(), newBenchCut(), newBenchMPI(), newBenchGPU(), newBenchRemote(), newBenchApps(),
		newBenchPeers(), newBenchC(), newBenchOpenCL(), newBenchModel(), newBenchPlot(),
		newBenchWorker())
	return cmd
}

func newBenchStorage() *cobra.Command {
	s := &benchSuite{}
	var quick bool
	var simulated []int
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

With --ranks it takes no times. It counts what one epoch and one restart of so many
ranks ask of the global directory: operations by kind, bytes, the largest file. The
ranks of two nodes (8 ranks each) are real and the others vote as they do. --dir then
needs 500 bytes for each rank.

With --resize N it measures how N simulated ranks' epoch of --mib MiB in all is restored
by as many, half as many and twice as many ranks: the time, and the bytes read, for arrays
that are divided by rows, by blocks of rows in turn, and by columns.` + suiteCodes,
	}, func(cmd *cobra.Command) error {
		if len(simulated) > 0 {
			return storage.Scale(cmd.Context(), &s.Runner, o.Dir, simulated)
		}
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
	f.IntSliceVar(&simulated, "ranks", nil, "count file operations of so many simulated ranks instead, such as "+
		"1,100,10000,100000")
	f.IntVar(&resize.Ranks, "resize", 0, "measure restarts on half and on twice this number of ranks instead")
	f.IntSliceVar(&o.MiB, "mib", []int{64, 256}, "MiB per process")
	f.IntVar(&s.Runs, "runs", 5, "runs of each case after one to warm up")
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

// newBenchWorker is how suites start their processes: bench.Runner.Worker.
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
