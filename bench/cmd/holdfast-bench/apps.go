package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/bench/apps"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/spf13/cobra"
)

func newBenchApps() *cobra.Command {
	s := &benchSuite{}
	o := apps.Options{Ranks: 2, MTBF: 24 * time.Hour, Windows: []int{2, 5, 10, 20}}
	cmd := s.command(&cobra.Command{
		Use:   "apps",
		Short: "measure what the library costs applications",
		Long: `apps runs matmul, nbody, smithwaterman and transpose under mpirun: without the
library, with it armed, with checkpoints at an interval, with several command
windows, and through a restart. In the same run the same ranks write, read and upload
as many bytes and build the same kernels without the library, for comparison.

apps times the steps of a run, without the start of MPI. Each round runs every case
once, the next round in the reversed order. The cost of arming is the median over the
rounds of armed / not armed, with its 95 % confidence interval (sign test, from 6
rounds on); the goal is judged only where it lies outside that interval. Other cases
are compared by their fastest run. The cost of a checkpoint is the time by which it
lengthens a run, and at least the time that the program waits for it; at the Daly
interval for --mtbf it is paid once per interval. --whole also runs each application
for a whole such interval. A restart and its baseline are listed part by part.

Cases: ` + strings.Join(apps.Cases, ", ") + `. Long measurements, and
one that fits into four minutes:

  holdfast bench apps --cases armed --runs 12 --seconds 3
  holdfast bench apps --cases restart --runs 5
  holdfast bench apps --cases armed,checkpoint,restart --runs 8 --time 4m

With --moves only restarts are timed. Each application stops at a checkpoint and
restarts at every place given: "same", "swap" (the GPUs in reversed order) or a
device. Its result must equal that of a run without a stop byte for byte, or differ
by no more than rounding allows on another kind of device.

Sizes depend on the device: matrices of 1024 (matmul) and 2048 (transpose) and 4096
bodies on a CPU, 8192 and 131072 on a GPU. --seconds sets how long the steps of a run
take.` + suiteCodes,
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
	f.StringVar(&o.BLAS, "blas", "", "what matmul multiplies with: cublas, or its own kernel (default)")
	f.StringVar(&o.MPI, "mpi", "", "openmpi or mpich (default: the first that is installed)")
	f.IntVar(&o.Ranks, "ranks", o.Ranks, "number of ranks; they share the devices")
	f.IntVar(&s.Runs, "runs", 2, "number of rounds; each runs every case once")
	f.Float64Var(&o.Seconds, "seconds", 0.5, "about how long the steps of a run take")
	f.StringVar(&o.Size, "size", "", "small or big (default: as the device is)")
	f.IntSliceVar(&o.Windows, "windows", o.Windows, fmt.Sprintf("command windows besides the default, %d, and none",
		gpustate.DefaultWindow))
	f.DurationVar(&o.MTBF, "mtbf", o.MTBF, "mean time between failures for the Daly interval")
	f.StringSliceVar(&o.Moves, "moves", nil, "restart at these places and compare results, such as same,swap,pocl")
	f.StringSliceVar(&o.Cases, "cases", nil, "parts of the suite (default: all)")
	f.DurationVar(&s.Budget, "time", 0, "how long all of it may take, such as 4m; rounds that do not fit are left out")
	f.StringVar(&o.Bind, "bind", "", "what mpirun binds each rank to, such as core or numa (default: nothing)")
	f.BoolVar(&o.Whole, "whole", false, "also run each application for a whole Daly interval")
	return cmd
}
