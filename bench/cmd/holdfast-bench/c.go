package main

import (
	"os"

	"github.com/holdfast-hpc/holdfast/bench/c"
	"github.com/spf13/cobra"
)

func newBenchC() *cobra.Command {
	s := &benchSuite{}
	o := c.Options{}
	var quick bool
	cmd := s.command(&cobra.Command{
		Use:   "c",
		Short: "measure what checkpoints cost a program in C",
	}, func(cmd *cobra.Command) error {
		if quick {
			o.MiB, s.Runs = 128, 3
		}
		return c.Run(cmd.Context(), &s.Runner, o)
	})
	f := cmd.Flags()
	f.BoolVar(&quick, "quick", false, "128 MiB, 3 runs: some seconds")
	f.StringVar(&o.Dir, "dir", os.TempDir(), "directory to write in")
	f.StringVar(&o.Lib, "lib", "", "directory of libholdfast.so")
	f.StringVar(&o.MPI, "mpi", "", "openmpi or mpich: the one that VeloC was built with (default: the first that is "+
		"installed)")
	f.IntVar(&o.MiB, "mib", 512, "MiB of state")
	f.IntVar(&s.Runs, "runs", 5, "runs of each case after one to warm up")
	return cmd
}
