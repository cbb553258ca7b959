package main

import (
	"context"
	"fmt"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/spf13/cobra"
)

// flushRow is what flush did; epoch 0: there was nothing to do.
type flushRow struct {
	Epoch uint64 `json:"epoch"`
	To    string `json:"to"`
}

func newFlush() *cobra.Command {
	var asJSON bool
	var to string
	cmd := &cobra.Command{
		Use:   "flush DIR... --to GLOBAL",
		Short: "complete the flush of a dead job",
		Long: `flush copies the newest epoch that is whole in the local (or partner) directories
given to the global directory and commits it there, unless that has it already.
It is for a job that died before its last flush was done and will not be started
again soon; the next start completes it as well. Do not use it while the job runs.

Exit codes: 0 copied, or nothing to do; 2 no epoch could be copied (a shard is
missing or damaged, not a checkpoint directory, I/O error).`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			var seen tally
			stop := showBar(cmd, "copying", flushBytes(cmd.Context(), dirs), seen.written.Load, sizeText)
			e, err := storage.FlushDirs(cmd.Context(), seen.fs(), dirs, to)
			stop()
			if err != nil {
				return err
			}
			if asJSON {
				return jsonLines(cmd.OutOrStdout(), []flushRow{{uint64(e), to}})
			}
			if e == 0 {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s has the newest epoch already\n", to)
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "epoch %d is now committed in %s\n", e, to)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object")
	cmd.Flags().StringVar(&to, "to", "", "the job's global directory")
	cobra.CheckErr(cmd.MarkFlagRequired("to"))
	return cmd
}

// flushBytes is about how much flush has to copy: the newest committed epoch. It
// is for the bar alone.
func flushBytes(ctx context.Context, dirs []string) int64 {
	v, err := storage.OpenView(nil, dirs...)
	if err != nil {
		return 0 // flush will say why
	}
	list, err := v.Epochs(ctx)
	if err != nil {
		return 0
	}
	var e storage.Epoch
	var n int64
	for _, info := range list { // newest first
		if info.Committed && (e == 0 || info.Epoch == e) {
			e = info.Epoch
			n += hereBytes(info)
		}
	}
	return n
}
