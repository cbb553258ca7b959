package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/spf13/cobra"
)

// pruneRow is one line of prune: an epoch that went, or would go.
type pruneRow struct {
	Epoch   uint64 `json:"epoch"`
	Dir     string `json:"dir"`
	Removed bool   `json:"removed"`
}

func newPrune() *cobra.Command {
	var asJSON bool
	var rules storage.PruneRules
	cmd := &cobra.Command{
		Use:   "prune DIR...",
		Short: "remove old epochs",
		Long: `prune removes from each directory the epochs that no rule keeps, and what was
left of epochs that were never committed. It keeps the newest --keep epochs,
every --every-th, what these refer to, and what the last directory given does
not have yet: give the global directory last, and the local directories of all
nodes, so that an epoch that only some nodes have is not taken for one that can
be restored. It is for a job that is not running; a running one does this by itself,
and prune refuses its directories by the name of its process.

Exit codes: 0 all that was to go is gone; 1 something was left, which stderr
names: files that are no checkpoint's, manifests that cannot be read, files that
could not be removed; 2 could not look (bad arguments, not a checkpoint directory,
directories of a running job, I/O error).`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			var seen ioCounts
			stop := showBar(cmd, "removing", 0, seen.removed.Load, inFiles)
			_, _ = openView(cmd, seen.over(cmd.Context()), dirs) // PruneDirs says what is wrong
			gone, err := storage.PruneDirs(seen.over(cmd.Context()), dirs, rules)
			stop()
			var rows []pruneRow
			for _, dir := range dirs {
				for _, e := range gone[dir] {
					rows = append(rows, pruneRow{Epoch: uint64(e), Dir: dir, Removed: !rules.DryRun})
				}
			}
			slices.SortStableFunc(rows, func(a, b pruneRow) int { return int(a.Epoch) - int(b.Epoch) })
			if gone == nil && err != nil {
				return err
			}
			if werr := printPrune(cmd.OutOrStdout(), rows, asJSON); werr != nil {
				return errors.Join(err, werr)
			}
			if err != nil && cmd.Context().Err() == nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "holdfast:", err)
				return errBad
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "write one JSON object per line")
	f.IntVar(&rules.Keep, "keep", 2, "how many of the newest epochs to keep in each directory")
	f.IntVar(&rules.KeepEvery, "every", 0, "keep also the epochs that this number divides; 0: none")
	f.BoolVarP(&rules.DryRun, "dry-run", "n", false, "only say what would go")
	return cmd
}

func printPrune(w io.Writer, rows []pruneRow, asJSON bool) error {
	if asJSON {
		return jsonLines(w, rows)
	}
	out := [][]string{{"EPOCH", "STATE", "DIRECTORY"}}
	for _, r := range rows {
		state := "removed"
		if !r.Removed {
			state = "would go"
		}
		out = append(out, []string{fmt.Sprint(r.Epoch), state, r.Dir})
	}
	return table(w, out)
}
