package main

import (
	"fmt"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/supervise"
	"github.com/spf13/cobra"
)

// exitCode is an error that says nothing but the code to end with.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func newRun() *cobra.Command {
	var opt supervise.Options
	cmd := &cobra.Command{
		Use:   "run [flags] -- srun|mpirun|mpiexec ... PROGRAM ...",
		Short: "start a program, and start it again on what is left when a node dies",
		Long: `run starts a program that uses Holdfast and watches over it. When a rank crashes,
a node dies or falls silent, it ends what is left, finds the nodes that are alive
and starts the program again on them; it goes on from its newest checkpoint.

Under Slurm, submit the job with --no-kill, or Slurm ends all of it with the node,
and keep nodes to spare: sbatch -N5, holdfast run --spares 1 -- srun -N4 .... With
mpirun the machines are those of --host or --hostfile, or of the Slurm job.

TERM and INT, and the signals that mean stop to the program
(HOLDFAST_SIGNALS_STOP), ask for a final checkpoint. So does the signal that
sbatch --signal=B:... announces the end with, and a preemption. With --requeue
the job is then put back into the queue. USR1 and USR2 otherwise go to every rank.

Each decision is one line on standard error that begins with "holdfast run:".

Exit codes: 0 the program ended well; 1 it failed, and was not or no more
started again; 2 nothing was started (bad arguments); 75 it stopped after a
checkpoint and goes on when started again; else the program's own code, when
all its ranks ended in order.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			opt.Command, opt.Self, opt.Stdout, opt.Stderr = args, self, cmd.OutOrStdout(), cmd.ErrOrStderr()
			code, err := supervise.Run(cmd.Context(), opt)
			if err != nil {
				return err
			}
			if code != exitGood {
				return exitCode(code)
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&opt.Spares, "spares", 0, "nodes of the allocation to keep for when others die")
	fs.IntVar(&opt.MinNodes, "min-nodes", 1, "give up, or requeue, when fewer nodes than this are left")
	fs.IntVar(&opt.MaxRestarts, "max-restarts", 10, "start again at most so often")
	fs.DurationVar(&opt.Backoff, "backoff", time.Second, "wait before starting again after a run without progress, "+
		"doubled each time up to a minute")
	fs.BoolVar(&opt.Requeue, "requeue", false, "put the Slurm job back into the queue after a final checkpoint, or "+
		"when too few nodes are left")
	fs.StringVar(&opt.LocalIn, "local-in", "", "make a directory of the job's own in this one on each node, and set "+
		"HOLDFAST_LOCAL to it, unless that is set")
	fs.DurationVar(&opt.Lead, "lead", 0, "ask for the final checkpoint so long before the job's time limit; 0 = as "+
		"sbatch --signal says, else a minute with --requeue")
	fs.DurationVar(&opt.Grace, "grace", 0, "time from TERM to the kill; 0 = Slurm's KillWait")
	fs.DurationVar(&opt.StartTimeout, "start-timeout", 0, "end a start whose ranks have not come to Open by then, "+
		"though its nodes are well; 0 = never the first, a restart after five times what that took and 10s more, "+
		"doubled each time")
	fs.DurationVar(&opt.EndTimeout, "end-timeout", 10*time.Minute, "end a launcher that still runs so long after all "+
		"ranks have closed; 0 = never")
	fs.DurationVar(&opt.Stall, "stall", 0, "end a run in which rank 0 passes no Point for so long; 0 = never")
	fs.DurationVar(&opt.WaitNodes, "wait-nodes", 10*time.Minute, "wait so long for a dead node to come back when the "+
		"checkpoints cannot be read without its disk; 0 = do not wait")
	fs.DurationVar(&opt.BeginAnew, "begin-anew", 0, "begin anew a job whose checkpoints all went with its nodes, if "+
		"none was ever at global and no more than so much work is lost; 0 = never, end and say what is missing")
	fs.BoolVar(&opt.JSON, "json", false, "write each decision as one JSON object")
	fs.StringVar(&opt.Interface, "interface", os.Getenv("HOLDFAST_CONTROL_INTERFACE"),
		"interface or address on which the program reaches this command")
	return cmd
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
