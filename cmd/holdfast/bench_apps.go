package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/bench/apps"
	"github.com/spf13/cobra"
)

func newBenchApps() *cobra.Command {
	s := &benchSuite{}
	o := apps.Options{Ranks: 2, MTBF: 24 * time.Hour, Windows: []int{2, 5, 10, 20}}
	cmd := s.command(&cobra.Command{
		Use:   "apps",
		Short: "measure what the library costs the applications",
		Long: `apps runs matmul, nbody, smithwaterman and transpose under mpirun: without the
library, with it armed, with checkpoints at an interval, with several command
windows, and through a restart. The same ranks write, read and upload as many
bytes and build the same kernels without the library, in the same run.

The steps of a run are timed, not the start of MPI. In each round every way to run
comes once, and in the reversed order in the next. What arming costs is the
median over the rounds of armed / not armed, with the interval that this median
has with a confidence of 95 % (sign test, from 6 rounds on); the goal is judged
only where that interval is on one side of it. Other runs are compared by their
fastest. The cost of a checkpoint is by how much a run with some gets longer, at
least what the program waits; at the Daly interval for --mtbf it is paid once an
interval. --whole makes a run of a whole such interval, too. What a restart and
its baseline are made of is listed part by part.

Cases: ` + strings.Join(apps.Cases, ", ") + `. A long measurement of
each, and one that fits into four minutes:

  holdfast bench apps --cases armed --runs 12 --seconds 3
  holdfast bench apps --cases restart --runs 5
  holdfast bench apps --cases armed,checkpoint,restart --runs 8 --time 4m

With --moves nothing is timed but restarts: each application is stopped at a
checkpoint and restarted at every place, "same", "swap" (the GPUs in reversed
order) or a device, and its result is compared with that of a run that nobody
stopped: the same bytes, or apart as rounding allows on another kind of device.

Sizes suit the device: matrices of 1024 (matmul) and 2048 (transpose) and 4096
bodies on a CPU, 8192 and 131072 on a GPU; --seconds sets how long the steps of a
run take.` + suiteCodes,
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
	f.IntVar(&o.Ranks, "ranks", o.Ranks, "number of ranks; they share out the devices")
	f.IntVar(&s.Runs, "runs", 2, "rounds; each runs every case once")
	f.Float64Var(&o.Seconds, "seconds", 0.5, "how long the steps of a run take, about")
	f.StringVar(&o.Size, "size", "", "small or big (default: as the device is)")
	f.IntSliceVar(&o.Windows, "windows", o.Windows, fmt.Sprintf("command windows besides the default, %d, and none",
		gpustate.DefaultWindow))
	f.DurationVar(&o.MTBF, "mtbf", o.MTBF, "mean time between failures for the Daly interval")
	f.StringSliceVar(&o.Moves, "moves", nil, "restart at these places and compare results, such as same,swap,pocl")
	f.StringSliceVar(&o.Cases, "cases", nil, "parts of the suite (default: all)")
	f.DurationVar(&s.Budget, "time", 0, "how long all of it may take, such as 4m: fewer rounds where they do not fit")
	f.StringVar(&o.Bind, "bind", "", "what mpirun binds each rank to, such as core or numa (default: nothing)")
	f.BoolVar(&o.Whole, "whole", false, "run each application for a whole Daly interval, too")
	return cmd
}
