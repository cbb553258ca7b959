package jobs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/supervise"
)

func newRun() *cobra.Command {
	var opt supervise.Options
	var messages bool
	cmd := &cobra.Command{
		Use:   "run [flags] -- srun|mpirun|mpiexec ... PROGRAM ...",
		Short: "start a program, and restart it on the remaining nodes when one dies",
		Long:  help("run"),
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o := coordinated.FromEnv(); o.Off() != "" && !opt.Watch {
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
			opt.Command, opt.Self, opt.Stdout, opt.Stderr = args, self, cmd.OutOrStdout(), cmd.ErrOrStderr()
			start := supervise.Run
			if opt.Watch {
				start = supervise.Watch
			}
			code, err := start(cmd.Context(), opt)
			if err != nil {
				return err
			}
			if code != cli.Good {
				return cli.Code(code)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&messages, "messages", true, "put libholdfast-mpi before the MPI of a program in C, C++, "+
		"Fortran or Python, which keeps its messages in flight; false: the program promises that there are none at "+
		"its points")
	runFlags(cmd.Flags(), &opt)
	return cmd
}

func runFlags(fs *pflag.FlagSet, opt *supervise.Options) {
	fs.IntVar(&opt.Spares, "spares", 0, "nodes of the allocation to keep idle until others die")
	fs.IntVar(&opt.MinNodes, "min-nodes", 1, "fewest nodes to start the program on; with fewer left, give up or, with "+
		"--requeue, requeue the job")
	fs.IntVar(&opt.MinRanks, "min-ranks", 0, "fewest ranks to run the program on: with too few nodes left, each "+
		"keeps its number of ranks and the program gets fewer, down to this; all of them again when nodes are back or "+
		"after a requeue; the program must protect its arrays with their layouts; 0: always the same number of ranks")
	fs.IntVar(&opt.MaxRestarts, "max-restarts", 10, "number of restarts after which to give up")
	fs.BoolVar(&opt.Requeue, "requeue", false, "put the Slurm job back into the queue after a final checkpoint, or "+
		"when too few nodes are left or --max-restarts is reached; take a final checkpoint before the time limit")
	fs.StringVar(&opt.LocalIn, "local-in", "", "directory on each node's own disk: make a directory for the Slurm job "+
		"in it and set HOLDFAST_LOCAL to that; if HOLDFAST_LOCAL is set, only make the directory that it names")
	fs.DurationVar(&opt.Lead, "lead", 0, "time before the job's time limit at which to ask for the final checkpoint; "+
		"0: with --requeue that of sbatch --signal, or 1m without one; without --requeue never")
	fs.DurationVar(&opt.StartTimeout, "start-timeout", 0, "time in which all ranks must come to Open, or the start is "+
		"ended; 0: no limit for the first start, and for a restart five times what the first took plus 10s, doubled "+
		"after each that was too slow")
	fs.DurationVar(&opt.EndTimeout, "end-timeout", 10*time.Minute, "time after which to end a launcher that still "+
		"runs although all ranks have closed; 0: never")
	fs.DurationVar(&opt.Stall, "stall", 0, "time after which to end a start in which rank 0 passes no Point; 0: never")
	fs.DurationVar(&opt.WaitNodes, "wait-nodes", 10*time.Minute, "how long to wait for a dead node to come back when "+
		"the checkpoints cannot be read without its disk; 0: do not wait")
	fs.DurationVar(&opt.BeginAnew, "begin-anew", 0, "start over when the checkpoints were lost with "+
		"their nodes, none ever reached global, and the job has computed for no longer than this; 0: never, end "+
		"with a message that says what is missing")
	fs.BoolVar(&opt.Daemons, "daemons", false, "start holdfast node on each node of the job, in a step of its own, "+
		"for a program that uses libholdfast: the daemons outlive a crash of the program, and end with this command")
	fs.BoolVar(&opt.Watch, "watch", false, "start any MPI program once, without checkpoints of its own: say what its "+
		"ranks wait for (holdfast status), name deadlocks, and say at the end what a checkpoint would have met")
	fs.BoolVar(&opt.CUDA, "cuda", false, "put libholdfast-cuda before CUDA's driver in the ranks, so that holdfast "+
		"pause and holdfast migrate can be used with them; the program need not be changed")
	cli.JSON(fs, &opt.JSON, "write each decision as one JSON object", supervise.Decision{})
	fs.StringVar(&opt.Interface, "interface", "", "network interface or address at which the ranks reach this "+
		"command (default: the setting control.interface, else the first that is up, a fast network last)")
}

// become starts a command in the place of this process. It returns only an error.
func become(args []string) error {
	path, err := exec.LookPath(args[0])
	if err == nil {
		err = syscall.Exec(path, args, os.Environ())
	}
	return fmt.Errorf("start %s: %w", args[0], err)
}

// newGuard is the process that holdfast run starts on another node than its own.
func newGuard() *cobra.Command {
	return &cobra.Command{
		Use: "guard", Short: "watch over holdfast run from another node of its job", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return supervise.Requeuer(cmd.Context(), cmd.ErrOrStderr())
		},
	}
}

// newStartRank stands before the program on srun's command line.
func newStartRank() *cobra.Command {
	return &cobra.Command{
		Use: "start-rank PROGRAM [ARGUMENTS]", Short: "start a rank under holdfast run", Hidden: true,
		DisableFlagParsing: true,
		Args:               cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return supervise.StartRank(cmd.Context(), args)
		},
	}
}
