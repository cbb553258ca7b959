package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Exit codes of holdfast run beside those of all verbs.
const exitStopped = 75 // EX_TEMPFAIL: the program stopped after a final checkpoint

// exitCode is an error that says nothing but the code to end with.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// runFlags are the flags of holdfast run.
type runFlags struct {
	spares, minNodes, maxRestarts int
	requeue, asJSON               bool
	lead, grace                   time.Duration
	backoff                       time.Duration
	startTimeout, endTimeout      time.Duration
	stall, waitNodes, beginAnew   time.Duration
	iface, localIn                string
}

func newRun() *cobra.Command {
	var f runFlags
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
			c, err := parseCommand(args)
			if err != nil {
				return err
			}
			r := &runner{flags: f, cmd: c, stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(),
				signals: make(chan os.Signal, 16)}
			signal.Notify(r.signals, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
			defer signal.Stop(r.signals)
			// A signal is to be passed on, it does not end this command.
			code, err := r.run(context.WithoutCancel(cmd.Context()))
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
	fs.IntVar(&f.spares, "spares", 0, "nodes of the allocation to keep for when others die")
	fs.IntVar(&f.minNodes, "min-nodes", 1, "give up, or requeue, when fewer nodes than this are left")
	fs.IntVar(&f.maxRestarts, "max-restarts", 10, "start again at most so often")
	fs.DurationVar(&f.backoff, "backoff", time.Second, "wait before starting again after a run without progress, "+
		"doubled each time up to a minute")
	fs.BoolVar(&f.requeue, "requeue", false, "put the Slurm job back into the queue after a final checkpoint, or "+
		"when too few nodes are left")
	fs.StringVar(&f.localIn, "local-in", "", "make a directory of the job's own in this one on each node, and set "+
		"HOLDFAST_LOCAL to it, unless that is set")
	fs.DurationVar(&f.lead, "lead", 0, "ask for the final checkpoint so long before the job's time limit; 0 = as "+
		"sbatch --signal says, else a minute with --requeue")
	fs.DurationVar(&f.grace, "grace", 0, "time from TERM to the kill; 0 = Slurm's KillWait")
	fs.DurationVar(&f.startTimeout, "start-timeout", 0, "end a start whose ranks have not come to Open by then, "+
		"though its nodes are well; 0 = never the first, a restart after five times what that took and 10s more, "+
		"doubled each time")
	fs.DurationVar(&f.endTimeout, "end-timeout", 10*time.Minute, "end a launcher that still runs so long after all "+
		"ranks have closed; 0 = never")
	fs.DurationVar(&f.stall, "stall", 0, "end a run in which rank 0 passes no Point for so long; 0 = never")
	fs.DurationVar(&f.waitNodes, "wait-nodes", 10*time.Minute, "wait so long for a dead node to come back when the "+
		"checkpoints cannot be read without its disk; 0 = do not wait")
	fs.DurationVar(&f.beginAnew, "begin-anew", 0, "begin anew a job whose checkpoints all went with its nodes, if "+
		"none was ever at global and no more than so much work is lost; 0 = never, end and say what is missing")
	fs.BoolVar(&f.asJSON, "json", false, "write each decision as one JSON object")
	fs.StringVar(&f.iface, "interface", os.Getenv("HOLDFAST_CONTROL_INTERFACE"),
		"interface or address on which the program reaches this command")
	return cmd
}
