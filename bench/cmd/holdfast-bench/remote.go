package main

import (
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/bench/remote"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/spf13/cobra"
)

func newBenchRemote() *cobra.Command {
	s := &benchSuite{}
	var quick bool
	var o remote.Options
	cmd := s.command(&cobra.Command{
		Use:   "remote",
		Short: "compare devices behind holdfast gpud with the same devices without it",
	}, func(cmd *cobra.Command) (err error) {
		if o.BinDir, err = appDir(o.BinDir); err != nil {
			return err
		}
		if quick {
			s.Runs, o.Seconds = 2, 0.5
			if !cmd.Flags().Changed("time") {
				s.Budget = 5 * time.Minute
			}
		}
		return remote.Run(cmd.Context(), &s.Runner, o)
	})
	f := cmd.Flags()
	f.StringVar(&o.Device, "device", os.Getenv(gpustate.DeviceEnv), "device, such as cuda or pocl (default: the best "+
		"there is)")
	f.StringVar(&o.BinDir, "bin-dir", "", "directory of the applications (default: where holdfast is)")
	f.StringVar(&o.Dir, "dir", "", "directory to write in (default: the temporary one)")
	f.StringSliceVar(&o.Apps, "apps", nil, "applications (default: all)")
	f.StringSliceVar(&o.Cases, "cases", nil, "parts of the suite (default: all)")
	f.IntVar(&s.Runs, "runs", 5, "runs of each figure")
	f.Float64Var(&o.Seconds, "seconds", 2, "about how long an application runs")
	f.DurationVar(&s.Budget, "time", 0, "about how long all of it may take: no application is started after "+
		"that (default: no limit)")
	f.BoolVar(&quick, "quick", false, "2 runs, applications of half a second, at most 5 minutes")
	return cmd
}
