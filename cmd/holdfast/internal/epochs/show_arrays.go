package epochs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/image"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
)

// arrayRow is one line of show: a global array or a replicated value.
type arrayRow struct {
	Epoch  uint64  `json:"epoch"`  // number of the epoch
	Array  string  `json:"array"`  // name of the global array or replicated value
	Kind   string  `json:"kind"`   // how its elements are spread over the ranks
	Type   string  `json:"type"`   // type of its elements
	Dims   []int64 `json:"dims"`   // global extent of each dimension, in elements
	Bytes  int64   `json:"bytes"`  // size of all its elements in bytes
	Owners []int   `json:"owners"` // ranks that store parts of it
}

// countsRow is the last line of show: the numbers of ranks that can restore the epoch.
type countsRow struct {
	Epoch      uint64   `json:"epoch"`                    // number of the epoch
	AnyCount   bool     `json:"any_count"`                // any number of ranks can restore it
	Size       int      `json:"size"`                     // number of ranks that wrote it
	Undeclared []int    `json:"undeclared,omitempty"`     // ranks that wrote it without Options.Elastic
	PerRank    []int    `json:"per_rank,omitempty"`       // ranks with state that is protected per rank
	Names      []string `json:"per_rank_names,omitempty"` // names of that state, at one of these ranks
	NotQuiet   []int    `json:"in_flight,omitempty"`      // ranks with messages or receives in flight
	Image      string   `json:"image,omitempty"`          // process that the epoch is an image of
}

func printArrays(cmd *cobra.Command, v *checkpoints.View, e storage.Epoch, list []checkpoints.EpochInfo) error {
	i := slices.IndexFunc(list, func(i checkpoints.EpochInfo) bool { return i.Epoch == e && i.Size > 0 })
	if i < 0 {
		return nil // it is not committed, or no manifest can be read
	}
	rows, counts := arrayRows(&list[i]), countsOf(cmd, v, &list[i])
	if cli.AsJSON(cmd) {
		if err := cli.JSONLines(cmd.OutOrStdout(), rows); err != nil {
			return err
		}
		return cli.JSONLines(cmd.OutOrStdout(), []countsRow{counts})
	}
	if len(rows) > 0 {
		fmt.Fprintln(cmd.OutOrStdout())
		if err := cli.Table(cmd.OutOrStdout(), arrayTable(rows)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", counts.text())
	return err
}

// arrayRows lists the arrays of an epoch in the order in which ranks declared them.
func arrayRows(info *checkpoints.EpochInfo) (rows []arrayRow) {
	for rank := range info.Shards {
		l := info.Shards[rank].Layout
		for k := 0; l != nil && k < len(l.Arrays); k++ {
			x := &l.Arrays[k]
			i := slices.IndexFunc(rows, func(r arrayRow) bool { return r.Array == x.Name })
			if i < 0 {
				i = len(rows)
				rows = append(rows, arrayRow{Epoch: uint64(info.Epoch), Array: x.Name, Kind: x.Kind.String(),
					Type: x.Type, Dims: x.Dims, Owners: []int{}})
			}
			r := &rows[i]
			if len(x.Items) > 0 || len(x.Parts) > 0 {
				r.Owners = append(r.Owners, rank)
				r.Bytes += x.Elems() * x.Elem
			}
			if x.Kind == layout.Replicated {
				r.Bytes = x.Dims[0] * x.Elem // at however many ranks
			}
		}
	}
	return rows
}

func arrayTable(rows []arrayRow) [][]string {
	out := [][]string{{"ARRAY", "TYPE", "DIMENSIONS", "KIND", "OWNERS", "BYTES"}}
	for _, r := range rows {
		dims := strings.ReplaceAll(strings.Trim(fmt.Sprint(r.Dims), "[]"), " ", " x ")
		if r.Kind == layout.Replicated.String() {
			dims = ""
		}
		out = append(out, []string{r.Array, r.Type, cli.Dash(dims), r.Kind, cli.Ranges(r.Owners), units.Bytes(r.Bytes)})
	}
	return out
}

// countsOf returns the numbers of ranks that can restore an epoch. It looks up per-rank state in one shard, if that can
// be read.
func countsOf(cmd *cobra.Command, v *checkpoints.View, info *checkpoints.EpochInfo) countsRow {
	c := info.Counts()
	row := countsRow{Epoch: uint64(info.Epoch), AnyCount: c.Any(), Size: info.Size, Undeclared: c.Undeclared,
		PerRank: c.PerRank, NotQuiet: c.NotQuiet}
	one := append(slices.Clone(c.PerRank), c.Undeclared...)
	if len(c.PerRank) == 0 && info.Size > 1 || len(one) == 0 {
		return row
	}
	sh, err := v.Fetch(cmd.Context(), info.Epoch, one[0])
	if err != nil {
		return row // verify reports its fault
	}
	if row.Image = image.Describe(cmd.Context(), sh); row.Image != "" || len(c.PerRank) == 0 {
		_ = sh.Close() // it was read
		return row
	}
	items, err := coordinated.ListSaved(cmd.Context(), sh)
	if cerr := sh.Close(); err != nil || cerr != nil {
		return row
	}
	for i := range items {
		if k := items[i].Kind; k != "" && k != "table" && k != "messages" && k != "device objects" {
			row.Names = append(row.Names, items[i].Name)
		}
	}
	return row
}

func (r *countsRow) text() string {
	if r.Image != "" {
		return fmt.Sprintf("Epoch %d is an image of %s: holdfast image --restore starts it.", r.Epoch, r.Image)
	}
	var why []string
	if len(r.Undeclared) > 0 {
		why = append(why, fmt.Sprintf("rank(s) %s wrote it without being elastic (hf_elastic, elastic=True "+
			"in Python, Options.Elastic in Go)", cli.Ranges(r.Undeclared)))
	}
	if len(r.PerRank) > 0 {
		what := "something"
		if len(r.Names) > 0 {
			what = strings.Join(r.Names, ", ")
		}
		why = append(why, fmt.Sprintf("rank(s) %s have %s protected per rank", cli.Ranges(r.PerRank), what))
	}
	if len(r.NotQuiet) > 0 {
		why = append(why, fmt.Sprintf("rank(s) %s had messages on their way to them or receives pending",
			cli.Ranges(r.NotQuiet)))
	}
	if len(why) == 0 {
		return fmt.Sprintf("Epoch %d, of %d rank(s), can be restored by any number of ranks.", r.Epoch, r.Size)
	}
	return fmt.Sprintf("Epoch %d can be restored by %d rank(s) only: %s.", r.Epoch, r.Size, strings.Join(why, "; "))
}
