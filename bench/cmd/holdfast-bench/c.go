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
		Long: `c compiles a small program in C against libholdfast, and starts it under a node daemon.
The program takes checkpoints of its memory, kills itself, and restarts from the
memory of the daemon. Its times are compared with what it needs in the same run to
copy the same bytes in memory, and to write and fsync them to a file in --dir.
What it restores is compared byte by byte.

VeloC's own library is measured in the same way where it is installed (VELOC_HOME,
/usr, /usr/local, /opt); see holdfast bench peers. libholdfast is that of --lib, or
lies beside this command in ../lib. --dir needs room for four times the data.` + suiteCodes,
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
