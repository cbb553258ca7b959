package epochs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// pruneRow is one line of prune: an epoch that was removed, or would be.
type pruneRow struct {
	Epoch   uint64 `json:"epoch"`   // number of the epoch
	Dir     string `json:"dir"`     // directory or object store that it was in
	Removed bool   `json:"removed"` // it was removed; false with --dry-run
}

// pruneStay is an epoch that stays though --keep does not cover it.
type pruneStay struct {
	epoch    storage.Epoch
	dir, why string
}

func newPrune() *cobra.Command {
	var rules checkpoints.PruneRules
	cmd := newVerb("prune DIR...", "remove old epochs", cobra.MinimumNArgs(1),
		func(cmd *cobra.Command, dirs []string) error {
			var stays []pruneStay
			rules.Stays = func(e storage.Epoch, dir, why string) { stays = append(stays, pruneStay{e, dir, why}) }
			_, _ = openView(cmd.Context(), cmd, dirs) // Prune reports the fault
			gone, err := checkpoints.Prune(cmd.Context(), dirs, rules)
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
			slices.SortStableFunc(stays, func(a, b pruneStay) int { return cmp.Compare(b.epoch, a.epoch) })
			for _, s := range stays {
				fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: epoch %d stays in %s: %s\n", s.epoch, s.dir, s.why)
			}
			if werr := cli.Rows(cmd, rows, pruneTable); werr != nil {
				return errors.Join(err, werr)
			}
			if err != nil && cmd.Context().Err() == nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "holdfast:", err)
				return cli.ErrBad
			}
			return err
		})
	f := cmd.Flags()
	cli.JSON(f, "write one JSON object per line", pruneRow{})
	f.IntVar(&rules.Keep, "keep", 2, "number of the newest epochs to keep in each directory")
	f.IntVar(&rules.KeepEvery, "keep-every", 0, "also keep the epochs whose numbers are multiples of this; 0: none")
	f.BoolVarP(&rules.DryRun, "dry-run", "n", false, "remove nothing, only list what would go")
	return cmd
}

func pruneTable(rows []pruneRow) [][]string {
	out := [][]string{{"EPOCH", "STATE", "DIRECTORY"}}
	for _, r := range rows {
		state := "removed"
		if !r.Removed {
			state = "would go"
		}
		out = append(out, []string{fmt.Sprint(r.Epoch), state, r.Dir})
	}
	return out
}
