package epochs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
)

// arrayRow is one line of show: a global array or a replicated value.
type arrayRow struct {
	Epoch        uint64     `json:"epoch"`
	Array        string     `json:"array"`
	Kind         string     `json:"kind"`
	Type         string     `json:"type"`
	Dims         []int64    `json:"dims"`
	Distribution string     `json:"distribution"`
	Bytes        int64      `json:"bytes"`
	Owners       []ownerRow `json:"owners"` // that store parts of it
}

// ownerRow is what one rank owns of an array.
type ownerRow struct {
	Rank  int      `json:"rank"`
	Boxes []string `json:"boxes"` // as NumPy writes them; "2:4 every 8, 3 times" in a dimension: several runs
	Elems int64    `json:"elements"`
	Bytes int64    `json:"bytes"`
}

// countsRow says who can restore an epoch.
type countsRow struct {
	Epoch      uint64   `json:"epoch"`
	AnyCount   bool     `json:"any_count"`
	Size       int      `json:"size"`
	Undeclared []int    `json:"undeclared,omitempty"` // ranks that wrote it without Options.Elastic
	PerRank    []int    `json:"per_rank,omitempty"`   // ranks with state that is protected per rank
	Names      []string `json:"per_rank_names,omitempty"`
	NotQuiet   []int    `json:"in_flight,omitempty"` // ranks that messages were on their way to
}

// printArrays writes what the epoch has of global arrays, and who can restore it.
func printArrays(cmd *cobra.Command, v *checkpoints.View, e storage.Epoch, list []checkpoints.EpochInfo,
	asJSON bool) error {
	i := slices.IndexFunc(list, func(i checkpoints.EpochInfo) bool { return i.Epoch == e && i.Size > 0 })
	if i < 0 {
		return nil // it is not committed, or no manifest can be read
	}
	rows, counts := arrayRows(&list[i]), countsOf(cmd, v, &list[i])
	if asJSON {
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

// printOwners writes what each rank owns of an array.
func printOwners(cmd *cobra.Command, e storage.Epoch, list []checkpoints.EpochInfo, name string, asJSON bool) error {
	i := slices.IndexFunc(list, func(i checkpoints.EpochInfo) bool { return i.Epoch == e && i.Size > 0 })
	if i < 0 {
		return fmt.Errorf("no manifest of epoch %d can be read", e)
	}
	rows := arrayRows(&list[i])
	var names []string
	for _, r := range rows {
		if names = append(names, r.Array); r.Array != name {
			continue
		}
		if asJSON {
			return cli.JSONLines(cmd.OutOrStdout(), []arrayRow{r})
		}
		return cli.Table(cmd.OutOrStdout(), ownerTable(r.Owners))
	}
	if len(names) == 0 {
		return fmt.Errorf("epoch %d has no global array and no replicated value", e)
	}
	return fmt.Errorf("epoch %d has no array %q; it has %s", e, name, strings.Join(names, ", "))
}

// arrayRows lists the arrays of an epoch in the order in which ranks declared them.
func arrayRows(info *checkpoints.EpochInfo) (rows []arrayRow) {
	owned := map[string][]layout.Owned{}
	var names []string
	for r := range info.Shards {
		l := info.Shards[r].Layout
		for k := 0; l != nil && k < len(l.Arrays); k++ {
			x := &l.Arrays[k]
			if owned[x.Name] == nil {
				names = append(names, x.Name)
			}
			whole := *x
			whole.Parts = layout.Join(x.Parts) // as the program declared them
			owned[x.Name] = append(owned[x.Name], layout.Owned{Rank: r, Local: &whole})
		}
	}
	for _, name := range names {
		all := owned[name]
		a := &all[0].Array
		r := arrayRow{Epoch: uint64(info.Epoch), Array: name, Kind: a.Kind.String(), Type: a.Type, Dims: a.Dims,
			Distribution: layout.Distribution(all, info.Size), Bytes: a.Elem, Owners: []ownerRow{}}
		for _, d := range a.Dims {
			r.Bytes *= d
		}
		if a.Keyed() {
			r.Bytes = 0
		}
		for i := range all {
			switch o := &all[i]; {
			case len(o.Items) > 0:
				n := o.Elems() * o.Elem
				r.Bytes += n
				r.Owners = append(r.Owners, ownerRow{o.Rank, []string{fmt.Sprintf("%d items, %s to %s", len(o.Items),
					o.KeyText(o.Items[0].Key), o.KeyText(o.Items[len(o.Items)-1].Key))}, o.Elems(), n})
			case len(o.Parts) > 0:
				r.Owners = append(r.Owners, ownerRow{o.Rank, boxesOf(o.Parts), o.Elems(), o.Elems() * o.Elem})
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// boxesOf writes parts for people.
func boxesOf(parts []layout.Part) (out []string) {
	for i := range parts {
		var dims []string
		for _, list := range parts[i].Spans {
			var runs []string
			for _, s := range list {
				run := fmt.Sprintf("%d:%d", s.Start, s.Start+s.Count)
				if s.Times > 1 {
					run += fmt.Sprintf(" every %d, %d times", s.Stride, s.Times)
				}
				runs = append(runs, run)
			}
			dims = append(dims, strings.Join(runs, " and "))
		}
		out = append(out, "["+strings.Join(dims, ", ")+"]")
	}
	return out
}

func arrayTable(rows []arrayRow) [][]string {
	out := [][]string{{"ARRAY", "TYPE", "DIMENSIONS", "DIVIDED", "OWNERS", "BYTES"}}
	for _, r := range rows {
		var ranks []int
		for _, o := range r.Owners {
			ranks = append(ranks, o.Rank)
		}
		dims := strings.ReplaceAll(strings.Trim(fmt.Sprint(r.Dims), "[]"), " ", " x ")
		if len(r.Dims) == 0 || r.Kind == layout.Replicated.String() {
			dims = "-"
		}
		out = append(out, []string{r.Array, r.Type, dims, r.Distribution, cli.Ranges(ranks), units.Bytes(r.Bytes)})
	}
	return out
}

func ownerTable(rows []ownerRow) [][]string {
	out := [][]string{{"RANK", "OWNS", "ELEMENTS", "BYTES"}}
	for _, r := range rows {
		for i, box := range r.Boxes {
			if i == 0 {
				out = append(out, []string{fmt.Sprint(r.Rank), box, fmt.Sprint(r.Elems), units.Bytes(r.Bytes)})
			} else {
				out = append(out, []string{"", box, "", ""})
			}
		}
	}
	return out
}

// countsOf says who can restore an epoch. What is protected per rank it looks up in one shard, if that can be read.
func countsOf(cmd *cobra.Command, v *checkpoints.View, info *checkpoints.EpochInfo) countsRow {
	c := info.Counts()
	row := countsRow{Epoch: uint64(info.Epoch), AnyCount: c.Any(), Size: info.Size, Undeclared: c.Undeclared,
		PerRank: c.PerRank, NotQuiet: c.NotQuiet}
	if len(c.PerRank) == 0 {
		return row
	}
	sh, err := v.Fetch(cmd.Context(), info.Epoch, c.PerRank[0])
	if err != nil {
		return row // verify says what is wrong with it
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

// text is one sentence.
func (r *countsRow) text() string {
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
