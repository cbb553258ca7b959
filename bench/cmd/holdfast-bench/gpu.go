package main

import (
	"os"

	"github.com/holdfast-hpc/holdfast/bench/gpu"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/spf13/cobra"
)

func newBenchGPU() *cobra.Command {
	s := &benchSuite{}
	var device string
	var gib []float64
	var messages bool
	var mib []int
	o := gpu.Options{}
	cmd := s.command(&cobra.Command{
		Use:   "gpu",
		Short: "measure capture, restore and recording on a device",
	}, func(cmd *cobra.Command) (err error) {
		if o.Select, err = gpustate.ParseSelect(device); err != nil {
			return err
		}
		if messages {
			return gpu.Messages(cmd.Context(), &s.Runner, device, mib)
		}
		for _, g := range gib {
			o.Sizes = append(o.Sizes, int64(g*(1<<30)))
		}
		return gpu.Run(cmd.Context(), &s.Runner, o)
	})
	f := cmd.Flags()
	f.StringVar(&device, "device", os.Getenv(gpustate.DeviceEnv), "device, such as cuda:0 or pocl (default: the best "+
		"there is)")
	f.Float64SliceVar(&gib, "gib", nil, "sizes of the state in GiB (default: 4,16,48 on a GPU, 0.25 on a CPU)")
	f.BoolVar(&messages, "messages", false, "measure messages of device memory between two ranks instead")
	f.IntSliceVar(&mib, "mib", []int{1, 4, 16, 64}, "lengths of messages in MiB, with --messages")
	f.IntVar(&s.Runs, "runs", 3, "runs of each figure")
	return cmd
}
