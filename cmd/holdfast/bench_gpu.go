package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpubench"
	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/spf13/cobra"
)

func newBenchGPU() *cobra.Command {
	var out benchOutput
	var device string
	var gib []float64
	o := gpubench.Options{}
	cmd := &cobra.Command{
		Use:   "gpu",
		Short: "measure capture, restore and recording on a device",
		Long: `gpu measures how long a capture of a device's memory keeps a program waiting and
how long it takes in all, how fast a restore is, what recording adds to a call,
and what a command window costs, beside pinned copies, copies within the device
and the driver's own checkpoint in the same run.

Exit codes: 0 measured (with --strict: and all goals met); 1 a goal is not met;
2 could not measure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sel, err := gpustate.ParseSelect(device)
			if err != nil {
				return err
			}
			o.Select = sel
			if o.Self, err = self("bench", "gpu-worker"); err != nil {
				return err
			}
			for _, g := range gib {
				o.Sizes = append(o.Sizes, int64(g*(1<<30)))
			}
			var lines []bench.Line
			begin := out.note(cmd, 0)
			begin("the first figure")
			err = gpubench.Run(cmd.Context(), o, func(r gpubench.Result) {
				lines = append(lines, gpuLine(r))
				begin(fmt.Sprintf("figure %d, after %s: %s", len(lines)+1, r.Case, r.Metric))
			})
			return out.finish(cmd, lines, err)
		},
	}
	out.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&device, "device", os.Getenv(gpustate.DeviceEnv), "device, such as cuda:0 or pocl (default: the best there is)")
	f.Float64SliceVar(&gib, "gib", nil, "sizes of the state (default: 4,16,48 on a GPU, 0.25 on a CPU)")
	f.IntVar(&o.Runs, "runs", 3, "runs of each figure")
	return cmd
}

// gpuLine is a figure as a line of the table.
func gpuLine(r gpubench.Result) bench.Line {
	l := bench.Line{Suite: r.Suite, Case: r.Case, Metric: r.Metric, Value: r.Value, Unit: r.Unit,
		Goal: r.Goal, Met: r.Met, Runs: r.Runs, Spread: r.Spread}
	if r.Baseline != 0 {
		l.Baseline, l.Ratio = &r.Baseline, &r.Ratio
	}
	if r.Skipped != "" {
		return bench.Skip(l, errors.New(r.Skipped))
	}
	return l
}

// newBenchGPUWorker is the process that the CUDA driver checkpoints.
func newBenchGPUWorker() *cobra.Command {
	return &cobra.Command{
		Use: "gpu-worker", Short: "hold device memory for bench gpu", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			gpubench.Hold()
			return errors.New("gpu-worker is started by bench gpu")
		},
	}
}
