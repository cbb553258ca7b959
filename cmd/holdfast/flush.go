package main

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
)

// flushRow is what flush did; epoch 0: there was nothing to do.
type flushRow struct {
	Epoch uint64 `json:"epoch"`
	To    string `json:"to"`
}

func newFlush() *cobra.Command {
	var asJSON bool
	var to, salvage string
	var jobs int
	cmd := &cobra.Command{
		Use:   "flush DIR... --to GLOBAL",
		Short: "copy the newest epoch of a dead job to its global directory",
		Long: `flush copies the newest epoch that is whole in the given local or partner
directories to the global directory and commits it there, unless it is there
already. Use it for a job that died before its last flush was done and that will
not be started again soon: the next start would complete the flush, too. flush
refuses the directories of a running job. It copies the shards of --jobs ranks at once.

Give the parity directories of the nodes, too, and flush computes the shards of nodes
that are lost:

  holdfast flush /nodes/*/ckpt /nodes/*/ckpt/parity --to /lustre/me/ckpt

With --salvage NAME, run flush on every node of a job whose nodes do not see each
other's directories. Each copies what its own directories have of the two newest
epochs, and the one that brings the last shard commits the epoch. Directories that
do not exist are skipped. NAME must be the same on all nodes and new for each job,
such as the job's number.

With --json, epoch 0 says that there was nothing to do.

Exit codes: 0 copied, or nothing to do; 2 no epoch could be copied (a shard is
missing or damaged, not a checkpoint directory, I/O error).`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			var seen ioCounts
			stop := showBar(cmd, "copying", flushBytes(cmd, dirs), seen.written.Load, inBytes)
			e, err := storage.Epoch(0), error(nil)
			if cmd.Flags().Changed("salvage") {
				e, err = checkpoints.Salvage(seen.over(cmd.Context()), salvage, dirs, to, jobs)
			} else {
				e, err = checkpoints.Flush(seen.over(cmd.Context()), dirs, to, jobs)
			}
			stop()
			if err != nil {
				return err
			}
			if asJSON {
				return jsonLines(cmd.OutOrStdout(), []flushRow{{uint64(e), to}})
			}
			if e == 0 && salvage != "" {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "no epoch is whole in %s yet, or none is newer than what "+
					"it has\n", to)
			} else if e == 0 {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s has the newest epoch already\n", to)
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "epoch %d is now committed in %s\n", e, to)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object")
	cmd.Flags().StringVar(&to, "to", "", "the job's global directory")
	cmd.Flags().StringVar(&salvage, "salvage", "", "name under which all nodes of the job copy what each of them has")
	addJobs(cmd, &jobs)
	cobra.CheckErr(cmd.MarkFlagRequired("to"))
	return cmd
}

// addJobs adds the flag that says how many shards a command works on at once.
func addJobs(cmd *cobra.Command, jobs *int) {
	cmd.Flags().IntVarP(jobs, "jobs", "j", 4, "number of shards to work on at once")
}

// flushBytes is about how much flush has to copy: the newest committed epoch. It
// is for the bar alone.
func flushBytes(cmd *cobra.Command, dirs []string) int64 {
	v, err := openView(cmd, vfs.With(cmd.Context(), osFS()), dirs)
	if err != nil {
		return 0 // flush will say why
	}
	list, err := v.Epochs(cmd.Context())
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
