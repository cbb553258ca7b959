package epochs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// pruneRow is one line of prune: an epoch that went, or would go.
type pruneRow struct {
	Epoch   uint64 `json:"epoch"`
	Dir     string `json:"dir"`
	Removed bool   `json:"removed"`
}

func newPrune() *cobra.Command {
	var asJSON bool
	var rules checkpoints.PruneRules
	cmd := &cobra.Command{
		Use:   "prune DIR...",
		Short: "remove old epochs",
		Long:  help("prune"),
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			var seen ioCounts
			stop := cli.ShowBar(cmd, "removing", 0, seen.removed.Load, cli.InFiles)
			_, _ = openView(seen.over(cmd.Context()), cmd, dirs) // Prune says what is wrong
			gone, err := checkpoints.Prune(seen.over(cmd.Context()), dirs, rules)
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
			sayWhatStays(cmd, dirs, gone, &rules)
			if werr := cli.Rows(cmd, asJSON, rows, pruneTable); werr != nil {
				return errors.Join(err, werr)
			}
			if err != nil && cmd.Context().Err() == nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "holdfast:", err)
				return cli.ErrBad
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "write one JSON object per line")
	f.IntVar(&rules.Keep, "keep", 2, "number of the newest epochs to keep in each directory")
	f.IntVar(&rules.KeepEvery, "keep-every", 0, "also keep the epochs whose number this one divides; 0: none")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "every" { // as it was called first
			name = "keep-every"
		}
		return pflag.NormalizedName(name)
	})
	f.BoolVarP(&rules.DryRun, "dry-run", "n", false, "remove nothing, only list what would go")
	return cmd
}

// sayWhatStays says why epochs stay that --keep does not cover.
func sayWhatStays(cmd *cobra.Command, dirs []string, gone map[string][]storage.Epoch, rules *checkpoints.PruneRules) {
	v, err := checkpoints.Inspect(cmd.Context(), dirs...)
	if err != nil {
		return // Prune has said it
	}
	list, err := v.Epochs(cmd.Context())
	if err != nil {
		return
	}
	slices.SortStableFunc(list, func(a, b checkpoints.EpochInfo) int { return cmp.Compare(b.Epoch, a.Epoch) })
	refers := map[string]map[storage.Epoch]storage.Epoch{} // by directory: to an epoch, the newest that refers to it
	newest := map[string]int{}
	for _, e := range list {
		dir := e.Dir.Dir
		if refers[dir] == nil {
			refers[dir] = map[storage.Epoch]storage.Epoch{}
		}
		if newest[dir]++; e.Committed && newest[dir] > rules.Keep && !slices.Contains(gone[dir], e.Epoch) {
			why := ""
			if by, referred := refers[dir][e.Epoch]; e.Kept != nil {
				why = "it is kept (holdfast keep)"
			} else if referred {
				why = fmt.Sprintf("epoch %d refers to it", by)
			}
			if why != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: epoch %d stays in %s: %s\n", e.Epoch, dir, why)
			}
		}
		for _, s := range e.Shards {
			for _, o := range s.Origins {
				if _, known := refers[dir][o]; !known && !slices.Contains(gone[dir], e.Epoch) {
					refers[dir][o] = e.Epoch
				}
			}
		}
	}
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
