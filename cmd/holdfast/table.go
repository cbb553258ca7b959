package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
)

// table writes rows of cells in columns, the first row being the heading.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

// write writes rows as JSON, or as the table that cells makes of them.
func write[T any](cmd *cobra.Command, asJSON bool, rows []T, cells func([]T) [][]string) error {
	if asJSON {
		return cli.JSONLines(cmd.OutOrStdout(), rows)
	}
	return table(cmd.OutOrStdout(), cells(rows))
}

// ranksText writes ascending ranks as ranges: 0-3,7.
func ranksText(ranks []int) string {
	if len(ranks) == 0 {
		return "none"
	}
	var out []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		s := strconv.Itoa(ranks[i])
		if j > i {
			s += "-" + strconv.Itoa(ranks[j])
		}
		out = append(out, s)
		i = j + 1
	}
	return strings.Join(out, ",")
}

func idText(id [16]byte) string { return hex.EncodeToString(id[:]) }

// pickEpoch parses an epoch argument: a number, or "newest" for the newest
// committed one.
func pickEpoch(arg string, list []checkpoints.EpochInfo) (storage.Epoch, error) {
	if arg == "newest" {
		i := slices.IndexFunc(list, func(e checkpoints.EpochInfo) bool { return e.Committed })
		if i < 0 {
			return 0, fmt.Errorf("no epoch is committed")
		}
		return list[i].Epoch, nil
	}
	n, err := strconv.ParseUint(arg, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("epoch %q is neither a number nor \"newest\"", arg)
	}
	e := storage.Epoch(n)
	if !slices.ContainsFunc(list, func(i checkpoints.EpochInfo) bool { return i.Epoch == e }) {
		return 0, fmt.Errorf("there is no epoch %d in these directories", e)
	}
	return e, nil
}
