package job

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	_ "github.com/holdfast-hpc/holdfast/storage/parity" // for redundancy: parity:D+P
	_ "github.com/holdfast-hpc/holdfast/storage/s3"     // for -global s3://bucket/prefix
)

// Options are the flags that every application has.
type Options struct {
	// Ranks is 1 for a run without MPI; 0 takes the ranks that the MPI launcher
	// started.
	Ranks int
	// Device selects the device; empty takes HOLDFAST_DEVICE, device in the
	// configuration file, or the best there is.
	Device string
	// Job, Local and Global override HOLDFAST_JOB, HOLDFAST_LOCAL and
	// HOLDFAST_GLOBAL if they are not empty.
	Job, Local, Global string
	// Fresh starts over: the run does not continue from a checkpoint.
	Fresh bool
	// Window is that of the queue on the device: 0 is gpustate.DefaultWindow, below
	// 0 no bound.
	Window int
	// StopAfter takes a final checkpoint after so many steps of this start; 0 is
	// none.
	StopAfter int
	// Elastic takes checkpoints that any number of ranks can continue from. Flags has one for it if
	// CanBeElastic is set: the program then gives its arrays to Restore.
	Elastic, CanBeElastic bool
	// Out is the result file, empty for none.
	Out string
	// Progress is the time from one line about the steps to the next; 0: no lines.
	Progress time.Duration
	// Times is a file for Times, empty for none.
	Times string
	// Verbose logs all that the library does.
	Verbose bool
}

// Usage is the part of the help of an application on checkpoints.
const Usage = `With -local or -global the program takes checkpoints. USR1 to any rank takes one,
and the program continues; USR2 or TERM takes one, and the program stops. Start it
again with the same flags, and it continues from the newest checkpoint: on any nodes
and devices, under any MPI, with the same number of ranks; with
-elastic, where a program has it, with any number. HOLDFAST_INTERVAL=10m takes
checkpoints by the clock; such variables and the file holdfast.yaml set all of this
and more: 'holdfast config' lists the keys.
Without a directory the same program runs without checkpoints.
`

// Flags returns the flags that every application has, to which it adds its own. result is the help
// of -out. Help is printed to w, after the text usage.
func (o *Options) Flags(name, usage, result string, w io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(w)
	fs.Usage = func() {
		fmt.Fprint(w, usage)
		fs.PrintDefaults()
	}
	fs.StringVar(&o.Out, "out", "", result)
	fs.IntVar(&o.Ranks, "ranks", 0,
		"1 runs without MPI on one rank; 0 takes the ranks that mpirun or srun started")
	fs.StringVar(&o.Device, "device", "",
		"device, such as cuda:0, pocl or rusticl; default HOLDFAST_DEVICE, else the best there is")
	fs.StringVar(&o.Job, "job", "", "name of the job that checkpoints belong to; default HOLDFAST_JOB")
	fs.StringVar(&o.Local, "local", "", "node-local `directory` for checkpoints; default HOLDFAST_LOCAL")
	fs.StringVar(&o.Global, "global", "", "shared `directory` or s3://bucket/prefix for checkpoints; default "+
		"HOLDFAST_GLOBAL")
	fs.BoolVar(&o.Fresh, "fresh", false, "start over: do not continue from a checkpoint")
	fs.IntVar(&o.Window, "window", 0,
		fmt.Sprintf("unfinished commands that the device may have, which bounds how long a checkpoint waits; 0: %d, "+
			"-1: no bound",
			gpustate.DefaultWindow))
	fs.StringVar(&o.Times, "times", "", "JSON `file` for the times of build, restore, steps and checkpoints")
	fs.IntVar(&o.StopAfter, "stop-after", 0,
		"take a checkpoint after so many steps of this start, and stop: to try a restart")
	if o.CanBeElastic {
		fs.BoolVar(&o.Elastic, "elastic", false, "take checkpoints that any number of ranks can continue from; a "+
			"checkpoint without it needs the same number")
	}
	fs.DurationVar(&o.Progress, "progress", time.Minute, "`time` from one line about the steps to the next; 0: none")
	fs.BoolVar(&o.Verbose, "v", false, "log all that the checkpoint library does")
	return fs
}

// Parse parses args, of which no further ones are allowed. flag.ErrHelp means that help was asked
// for and printed.
func Parse(fs *flag.FlagSet, args []string) error {
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see %s -help", fs.Arg(0), fs.Name())
	}
	return nil
}

// World returns the communicator of all ranks and a function that ends it. With Ranks 1 it is a
// world of one simulated rank, which needs no MPI.
func (o *Options) World() (*mpiwrap.Comm, func() error, error) {
	switch o.Ranks {
	case 0:
		world, err := mpiwrap.Init(mpiwrap.Options{})
		return world, mpiwrap.Finalize, err
	case 1:
		for _, name := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"} {
			if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 1 {
				return nil, nil, fmt.Errorf("-ranks 1 under a launcher of %d ranks: each would do all the work "+
					"alone; leave -ranks out", n)
			}
		}
		return mpiwrap.Single(), func() error { return nil }, nil
	}
	return nil, nil, fmt.Errorf("-ranks %d: want 0 or 1; start more ranks with mpirun -np %d", o.Ranks, o.Ranks)
}

// OpenCheckpoints opens the checkpoints. It is collective over world. Without a directory it returns
// Checkpoints that do nothing.
func (o *Options) OpenCheckpoints(ctx context.Context, world *mpiwrap.Comm) (*Checkpoints, error) {
	config, err := o.readConfig()
	if err != nil {
		return nil, err
	}
	opts := config.Options()
	if config.Err() == nil && opts.Local == "" && opts.Global == "" {
		if o.StopAfter > 0 || o.Fresh {
			return nil, errors.New("-stop-after or -fresh without a directory for checkpoints; give -local, -global " +
				"or both")
		}
		return &Checkpoints{}, nil
	}
	opts.Elastic = opts.Elastic || o.Elastic
	if o.Verbose {
		opts.LogLevel = slog.LevelDebug
	}
	ck, err := coordinated.Open(ctx, world, opts)
	if err != nil {
		return nil, err
	}
	c := &Checkpoints{ck: ck}
	if world.Rank() == 0 {
		c.stopAfter = o.StopAfter
	}
	return c, nil
}

// readConfig reads file and environment, and lets the flags win.
func (o *Options) readConfig() (*coordinated.Config, error) {
	c := coordinated.ReadConfig("")
	fresh := ""
	if o.Fresh {
		fresh = "true"
	}
	for _, a := range [][2]string{{"job", o.Job}, {"local", o.Local}, {"global", o.Global}, {"device", o.Device},
		{"fresh", fresh}} {
		if key, text := a[0], a[1]; text != "" {
			if err := c.Set(key, text, "-"+key); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}
