package main

import (
	"context"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/spf13/cobra"
)

func newRequest() *cobra.Command {
	var stop, wait, asJSON bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "request [DIR]",
		Short: "ask a running job for a checkpoint",
		Long: `request asks a running job for a checkpoint. DIR is the job's HOLDFAST_GLOBAL or, if
it has none, its HOLDFAST_LOCAL on the node of rank 0. Only the job's owner can ask.
With --wait, request returns when the epoch is at all levels.

Exit codes: 0 asked, and with --wait durable; 2 no such job, no answer within
--timeout, or the checkpoint failed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := orDirOfJob(cmd, args)
			if err != nil {
				return err
			}
			return withJob(cmd, dir, timeout, asJSON,
				func(ctx context.Context, c *job.Client) (*job.Status, error) {
					return c.Request(ctx, stop, wait)
				})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&stop, "stop", false, "make it the final checkpoint: the program ends after it")
	f.BoolVar(&wait, "wait", false, "wait until the epoch is at all levels")
	f.BoolVar(&asJSON, "json", false, "write the job's status as one JSON object")
	f.DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait for the answer, with --wait for the epoch")
	return cmd
}

// withJob connects, asks and prints the answer.
func withJob(cmd *cobra.Command, dir string, timeout time.Duration, asJSON bool,
	ask func(context.Context, *job.Client) (*job.Status, error)) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	c, err := job.DialJob(ctx, dir)
	if err != nil {
		return err
	}
	defer c.Close()
	st, err := ask(ctx, c)
	if err != nil {
		return err
	}
	if asJSON {
		return jsonLines(cmd.OutOrStdout(), []*job.Status{st})
	}
	return printEpochs(cmd.OutOrStdout(), st)
}
