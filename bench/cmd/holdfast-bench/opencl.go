package main

import (
	"github.com/holdfast-hpc/holdfast/bench/opencl"
	"github.com/spf13/cobra"
)

func newBenchOpenCL() *cobra.Command {
	s := &benchSuite{}
	o := opencl.Options{}
	var quick bool
	cmd := s.command(&cobra.Command{
		Use:   "opencl",
		Short: "measure what libholdfast-opencl costs an OpenCL program",
	}, func(cmd *cobra.Command) error {
		if quick {
			o.MiB, o.Seconds, s.Runs = 16, 0.05, 1
		}
		return opencl.Run(cmd.Context(), &s.Runner, o)
	})
	f := cmd.Flags()
	f.BoolVar(&quick, "quick", false, "up to 16 MiB, 1 run: some seconds")
	f.StringVar(&o.Lib, "lib", "", "directory of libholdfast-opencl.so")
	f.StringVar(&o.Program, "program", "", "the program, compiled on another machine from "+
		"bench/opencl/driver/driver.c")
	f.StringVar(&o.Vendors, "vendors", "", "OCL_ICD_VENDORS of the device's own library (default: the environment's)")
	f.StringVar(&o.Device, "device", "", "device: a word of its platform's name or version that also selects it at a "+
		"server, such as pocl or nvidia (default: the first)")
	f.IntVar(&o.MiB, "mib", 256, "MiB of the largest transfer")
	f.Float64Var(&o.Seconds, "seconds", 0.3, "time for each figure")
	f.IntVar(&s.Runs, "runs", 5, "runs of each library after one to warm up")
	return cmd
}
