package epochs

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
)

// flushRow is the line of flush: the epoch that it copied.
type flushRow struct {
	Epoch uint64 `json:"epoch"` // number of the epoch that was copied; 0: there was nothing to do
	To    string `json:"to"`    // directory or object store that received it
}

func newFlush() *cobra.Command {
	var to, salvage string
	var jobs int
	cmd := newVerb("flush DIR... --to GLOBAL", "copy the newest epoch of a dead job to its global directory",
		cobra.MinimumNArgs(1), func(cmd *cobra.Command, dirs []string) error {
			if cmd.Flags().Changed("salvage") && salvage == "" {
				return errors.New("--salvage needs a name, the same on all nodes and new for each job")
			}
			_, _ = openView(cmd.Context(), cmd, dirs) // it warns; Flush reports the fault
			var seen ioCounts
			stop := cli.ShowBar(cmd, "copying", 0, seen.written.Load)
			e, err := storage.Epoch(0), error(nil)
			if cmd.Flags().Changed("salvage") {
				e, err = checkpoints.Salvage(seen.over(cmd.Context()), salvage, dirs, to, jobs)
			} else {
				e, err = checkpoints.Flush(seen.over(cmd.Context()), dirs, to, jobs)
			}
			stop()
			if err != nil {
				return ofTarget(err, to)
			}
			if cli.AsJSON(cmd) {
				return cli.JSONLines(cmd.OutOrStdout(), []flushRow{{uint64(e), to}})
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
		})
	cli.JSON(cmd.Flags(), "write one JSON object", flushRow{})
	cmd.Flags().StringVar(&to, "to", "", "the job's global directory, `GLOBAL`")
	cmd.Flags().StringVar(&salvage, "salvage", "", "copy this node's shards: run on every node, with the same `NAME`")
	addJobs(cmd, &jobs)
	cobra.CheckErr(cmd.MarkFlagRequired("to"))
	return cmd
}

func addJobs(cmd *cobra.Command, jobs *int) {
	cmd.Flags().IntVarP(jobs, "jobs", "j", 4, "number of shards to work on at once")
}
