package main

import (
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/bench/apps"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/spf13/cobra"
)

func newBenchApps() *cobra.Command {
	s := &benchSuite{}
	o := apps.Options{Ranks: 2, MTBF: 24 * time.Hour}
	cmd := s.command(&cobra.Command{
		Use:   "apps",
		Short: "measure what the library costs applications",
	}, func(cmd *cobra.Command) (err error) {
		if o.BinDir, err = appDir(o.BinDir); err != nil {
			return err
		}
		return apps.Run(cmd.Context(), &s.Runner, o)
	})
	f := cmd.Flags()
	f.StringVar(&o.BinDir, "bin-dir", "", "directory of the applications (default: where holdfast is)")
	f.StringVar(&o.Dir, "dir", os.TempDir(), "directory to write in")
	f.StringSliceVar(&o.Apps, "apps", nil, "applications (default: all)")
	f.StringVar(&o.Device, "device", os.Getenv(gpustate.DeviceEnv), "device, such as cuda:0 or pocl (default: the "+
		"best there is)")
	f.StringVar(&o.MPI, "mpi", "", "openmpi or mpich (default: the first that is installed)")
	f.IntVar(&o.Ranks, "ranks", o.Ranks, "number of ranks; they share the devices")
	f.IntVar(&s.Runs, "runs", 2, "number of rounds; each runs every case once")
	f.Float64Var(&o.Seconds, "seconds", 0.5, "about how long the steps of a run take")
	f.StringVar(&o.Size, "size", "", "small or big (default: as the device is)")
	f.DurationVar(&o.MTBF, "mtbf", o.MTBF, "mean time between failures for the Daly interval")
	f.StringSliceVar(&o.Moves, "moves", nil, "restart at these places and compare results, such as same,swap,pocl")
	f.StringSliceVar(&o.Cases, "cases", nil, "parts of the suite (default: all)")
	f.DurationVar(&s.Budget, "time", 0, "how long all of it may take, such as 4m; rounds that do not fit are left out")
	f.StringVar(&o.Bind, "bind", "", "what mpirun binds each rank to, such as core or numa (default: nothing)")
	return cmd
}
