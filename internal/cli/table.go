package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// Table writes rows of cells in columns, the first row being the heading.
func Table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

// Rows writes rows as JSON with --json, else as the table that cells makes of them.
func Rows[T any](cmd *cobra.Command, rows []T, cells func([]T) [][]string) error {
	if AsJSON(cmd) {
		return JSONLines(cmd.OutOrStdout(), rows)
	}
	return Table(cmd.OutOrStdout(), cells(rows))
}

// Ranges writes ascending ranks as ranges: 0-3,7.
func Ranges(ranks []int) string {
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

// Dash returns a cell of a table, which is never empty.
func Dash(s string) string { return cmp.Or(s, "-") }
