package jobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/spf13/cobra"
)

func newRequest() *cobra.Command {
	var stop, wait, now bool
	var timeout time.Duration
	cmd := newVerb("request [DIR]", "ask a running job for a checkpoint", cobra.MaximumNArgs(1),
		func(cmd *cobra.Command, args []string) error {
			dir, err := verb.Dir(cmd, args)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			c, err := dialOrAwait(ctx, cmd, dir, now)
			if err != nil {
				return within(ctx, timeout, err)
			}
			defer c.Close()
			st, err := c.Request(ctx, stop, wait)
			if err != nil {
				return within(ctx, timeout, err)
			}
			if cli.AsJSON(cmd) {
				return cli.JSONLines(cmd.OutOrStdout(), []*job.Status{st})
			}
			return printEpochs(cmd.OutOrStdout(), st)
		})
	f := cmd.Flags()
	f.BoolVar(&stop, "stop", false, "make it the final checkpoint: the program ends after it")
	f.BoolVar(&wait, "wait", false, "wait until the epoch is at all levels")
	cli.JSON(f, "write the job's status as one JSON object", job.Status{})
	f.BoolVar(&now, "now", false, "do not wait for a job to start")
	f.DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait in all: for the job, its answer and, with "+
		"--wait, the epoch")
	return cmd
}

// dialOrAwait connects to the job of a directory, which has to run if now is set.
func dialOrAwait(ctx context.Context, cmd *cobra.Command, dir string, now bool) (*job.Client, error) {
	dial := func() (*job.Client, error) { return job.DialJob(ctx, dir) }
	if now {
		return dial()
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: there is no such directory; give the job's HOLDFAST_GLOBAL or, if it has none, "+
			"its HOLDFAST_LOCAL on the node of rank 0", dir)
	} else if err != nil {
		return nil, err
	}
	return awaitJob(ctx, cmd.ErrOrStderr(), dir, dial, 100*time.Millisecond)
}

// within says of an error that the time was up.
func within(ctx context.Context, timeout time.Duration, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("within --timeout %v: %w", timeout, err)
	}
	return err
}
