package main

import (
	"errors"
	"os"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpubench"
	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/spf13/cobra"
)

func newBenchGPU() *cobra.Command {
	s := &benchSuite{}
	var device string
	var gib []float64
	o := gpubench.Options{}
	cmd := s.command(&cobra.Command{
		Use:   "gpu",
		Short: "measure capture, restore and recording on a device",
		Long: `gpu measures how long a capture of a device's memory keeps a program waiting and
how long it takes in all, how fast a restore is, what recording adds to a call,
and what a command window costs, beside pinned copies, copies within the device
and the driver's own checkpoint in the same run.` + suiteCodes,
	}, func(cmd *cobra.Command) (err error) {
		if o.Select, err = gpustate.ParseSelect(device); err != nil {
			return err
		}
		for _, g := range gib {
			o.Sizes = append(o.Sizes, int64(g*(1<<30)))
		}
		o.Runs, o.Self = s.Runs, append(s.Self, "bench", "gpu-worker")
		s.Start("gpu", 0)
		s.Step("the first figure")
		return gpubench.Run(cmd.Context(), o, func(r gpubench.Result) {
			s.Add(gpuRow(r))
			s.Step("figure %d, after %s: %s", len(s.Rows)+1, r.Case, r.Metric)
		})
	})
	f := cmd.Flags()
	f.StringVar(&device, "device", os.Getenv(gpustate.DeviceEnv), "device, such as cuda:0 or pocl (default: the best there is)")
	f.Float64SliceVar(&gib, "gib", nil, "sizes of the state (default: 4,16,48 on a GPU, 0.25 on a CPU)")
	f.IntVar(&s.Runs, "runs", 3, "runs of each figure")
	return cmd
}

// gpuRow is a figure as a row of the table.
func gpuRow(r gpubench.Result) bench.Row {
	row := bench.Row{Suite: r.Suite, Case: r.Case, Metric: r.Metric, Value: r.Value, Unit: r.Unit,
		Goal: r.Goal, Met: r.Met, Runs: r.Runs, Spread: r.Spread, Skipped: r.Skipped}
	if r.Baseline != 0 {
		row.Baseline, row.Ratio = &r.Baseline, &r.Ratio
	}
	return row
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
