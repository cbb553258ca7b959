package jobs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/image"
	"github.com/holdfast-hpc/holdfast/internal/supervise"
)

func newRun() *cobra.Command {
	var opt supervise.Options
	var messages bool
	var im imageFlags
	cmd := newVerb("run [flags] -- srun|mpirun|mpiexec ... PROGRAM ...",
		"start a program, and restart it on the remaining nodes when one dies", cobra.MinimumNArgs(1),
		func(cmd *cobra.Command, args []string) error {
			if o := coordinated.FromEnv(); o.Off() != "" && !opt.Watch && !im.on {
				fmt.Fprintf(cmd.ErrOrStderr(), "holdfast run: the program runs without checkpoints: %s; it is started "+
					"once, and not again when it dies\n", o.Off())
				return become(args)
			}
			self, err := os.Executable()
			if err := errors.Join(err, coordinated.ReadConfig("").Err()); err != nil {
				return err
			}
			if cmd.Flags().Changed("messages") {
				opt.Messages = supervise.MessagesOff
				if messages {
					opt.Messages = supervise.MessagesOn
				}
			}
			opt.JSON = cli.AsJSON(cmd)
			opt.Command, opt.Self, opt.Stdout, opt.Stderr = args, self, cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := im.into(cmd, &opt); err != nil {
				return err
			}
			start := supervise.Run
			if opt.Watch {
				start = supervise.Watch
			}
			code, err := start(cmd.Context(), opt)
			if err != nil {
				return plain(args[0], err)
			}
			if code != cli.Good {
				return cli.Code(code)
			}
			return nil
		})
	cmd.Flags().BoolVar(&messages, "messages", true, "put libholdfast-mpi before the MPI of a program in C, C++, "+
		"Fortran or Python, so that checkpoints have its messages in flight; false: the program promises to have none "+
		"at its points")
	runFlags(cmd.Flags(), &opt)
	im.add(cmd.Flags())
	cli.Group(cmd.Flags(), "The program", "messages", "daemons", "cuda", "watch")
	cli.Group(cmd.Flags(), "Images of the program", imageFlagNames...)
	cli.Group(cmd.Flags(), "Nodes and restarts", "spares", "min-nodes", "min-ranks", "max-restarts", "wait-nodes",
		"begin-anew")
	cli.Group(cmd.Flags(), "Time limits", "start-timeout", "stall", "end-timeout")
	cli.Group(cmd.Flags(), "Slurm", "requeue", "lead", "local-in")
	return cmd
}

// imageFlags are those of --image.
type imageFlags struct {
	on           bool
	criu, device string
	images       supervise.Images
}

var imageFlagNames = []string{"image", "dir", "device", "criu", "wait", "append"}

func (o *imageFlags) add(fs *pflag.FlagSet) {
	fs.BoolVar(&o.on, "image", false, "take images of an OpenCL or CUDA program that takes no checkpoints, and "+
		"restart it from the newest")
	fs.StringVar(&o.images.Dir, "dir", "", "directory `DIR` of the images")
	fs.StringVar(&o.device, "device", "", "`DEVICE` of the program, as HOLDFAST_DEVICE names it")
	fs.StringVar(&o.criu, "criu", "", "use `FILE` as the command criu (default: the one in PATH)")
	fs.DurationVar(&o.images.Wait, "wait", time.Minute, "how long an image waits for the program's commands to end")
	fs.BoolVar(&o.images.Append, "append", false, "in a restart, keep what has been written to files since the image, "+
		"and write behind it; otherwise it is cut off")
}

func (o *imageFlags) into(cmd *cobra.Command, opt *supervise.Options) (err error) {
	for _, name := range imageFlagNames {
		if cmd.Flags().Changed(name) && !o.on {
			return fmt.Errorf("--%s goes with --image", name)
		}
	}
	switch {
	case !o.on:
		return nil
	case o.images.Dir == "":
		return errors.New("--image needs the directory of the images: --dir DIR")
	case opt.Watch || opt.Daemons || opt.Stall > 0 || opt.Messages == supervise.MessagesOn:
		return errors.New("--watch, --daemons, --stall and --messages do not go with --image")
	}
	if _, err := gpustate.ParseSelect(o.device); err != nil {
		return err
	}
	criu, err := image.FindCRIU(cmd.Context(), o.criu)
	if err == nil && o.device != "" {
		err = os.Setenv(gpustate.DeviceEnv, o.device)
	}
	o.images.Starter = image.Starter{CRIU: criu, Self: opt.Self, Device: o.device}
	opt.Images = &o.images
	return err
}

func runFlags(fs *pflag.FlagSet, opt *supervise.Options) {
	fs.IntVar(&opt.Spares, "spares", 0, "nodes of the allocation to keep idle until another dies")
	fs.IntVar(&opt.MinNodes, "min-nodes", 1, "fewest nodes to start the program on; with fewer left, give up, or "+
		"requeue the job with --requeue")
	fs.IntVar(&opt.MinRanks, "min-ranks", 0, "fewest ranks to run the program on when nodes are missing; it gets "+
		"all ranks again when they are back or after a requeue. Only for elastic programs (docs/ELASTIC.md). 0: "+
		"always the same number")
	fs.IntVar(&opt.MaxRestarts, "max-restarts", 10, "give up after this number of restarts")
	fs.BoolVar(&opt.Requeue, "requeue", false, "put the Slurm job back into the queue: after a final checkpoint, "+
		"which is also taken before the time limit; when too few nodes are left; after --max-restarts")
	fs.StringVar(&opt.LocalIn, "local-in", "", "directory `DIR` on each node's own disk: make a directory for the "+
		"Slurm job in it, and set HOLDFAST_LOCAL to that. If HOLDFAST_LOCAL is set, make that one instead")
	fs.DurationVar(&opt.Lead, "lead", 0, "ask for the final checkpoint this long before the job's time limit; "+
		"0: with --requeue as sbatch --signal says, or 1m; without --requeue never")
	fs.DurationVar(&opt.StartTimeout, "start-timeout", 0, "end a start if not all ranks have called Open (hf_init) by "+
		"then; 0: no limit for the first start; for a restart five times as long as the first took plus 10s, doubled "+
		"after each that was too slow")
	fs.DurationVar(&opt.EndTimeout, "end-timeout", 10*time.Minute, "end a launcher that still runs this long after "+
		"all ranks have closed; 0: never")
	fs.DurationVar(&opt.Stall, "stall", 0, "end a start in which rank 0 passes no Point for this long; 0: never")
	fs.DurationVar(&opt.WaitNodes, "wait-nodes", 10*time.Minute, "wait this long for a dead node whose disk has "+
		"checkpoints that nothing else has; 0: do not wait")
	fs.DurationVar(&opt.BeginAnew, "begin-anew", 0, "start over if the checkpoints were lost with their nodes, "+
		"none ever reached global, and the job has computed for no longer than this; 0: never, end with a message "+
		"that names what is missing")
	fs.BoolVar(&opt.Daemons, "daemons", false, "start holdfast node on each node, for a program that uses "+
		"libholdfast: these daemons outlive a crash of the program, and end with this command")
	fs.BoolVar(&opt.Watch, "watch", false, "only watch: start any MPI program once and take no checkpoints")
	fs.BoolFunc("cuda", "put libholdfast-cuda before CUDA's driver, so that holdfast pause and migrate work with the "+
		"program, which need not be changed; audit: also if it opens the driver by a path", func(how string) error {
		opt.CUDA, opt.Audit = how != "false", how == "audit"
		if how != "true" && how != "false" && !opt.Audit {
			return errors.New("want --cuda or --cuda=audit")
		}
		return nil
	})
	cli.JSON(fs, "write each decision as one JSON object", supervise.Decision{})
	fs.StringVar(&opt.Interface, "interface", "", "`INTERFACE` or address at which the ranks reach this command "+
		"(default: setting control.interface, else the first interface that is up; fast networks come last)")
}

// plain says of a program that could not be started why, without the words of the system call.
func plain(program string, err error) error {
	switch {
	case !strings.HasPrefix(err.Error(), "start "+program+":"):
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("start %s: there is no such program in PATH", program)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("start %s: there is no such file", program)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("start %s: it is not an executable file", program)
	}
	return err
}

// become starts a command in the place of this process. It returns only an error.
func become(args []string) error {
	path, err := exec.LookPath(args[0])
	if err == nil {
		err = syscall.Exec(path, args, os.Environ())
	}
	return plain(args[0], fmt.Errorf("start %s: %w", args[0], err))
}

// runParts returns the process that holdfast run starts on another node than its own, and what stands before the
// program on srun's command line.
func runParts() (guard, startRank *cobra.Command) {
	guard = verb.Hidden("guard", "watch over holdfast run from another node of its job", cobra.NoArgs,
		func(cmd *cobra.Command, _ []string) error {
			return supervise.Requeuer(cmd.Context(), cmd.ErrOrStderr())
		})
	startRank = verb.Hidden("start-rank PROGRAM [ARGUMENTS]", "start a rank under holdfast run", cobra.MinimumNArgs(1),
		func(cmd *cobra.Command, args []string) error { return supervise.StartRank(cmd.Context(), args) })
	startRank.DisableFlagParsing = true
	return guard, startRank
}
