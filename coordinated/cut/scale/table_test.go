package scale

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// WriteTable prints results as a table in Markdown.
func WriteTable(out io.Writer, results []Result) error {
	t := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| program\t| R0\t| ranks\t| depth\t| messages/rank\t| busiest rank\t| bytes/rank\t| busiest "+
		"rank\t| coordinator\t| rounds\t| releases/rank\t| iteration\t| request to cut\t|")
	fmt.Fprintln(t, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, r := range results {
		fmt.Fprintf(t, "| %s\t| %s\t| %d\t| %d\t| %.1f\t| %d\t| %d\t| %s\t| %s\t| %d\t| %.2f\t| %v\t| %v\t|\n", r.Shape,
			hint(r), r.Ranks, r.Depth,
			r.PerRank(), r.Busiest, r.Bytes/int64(r.Ranks), kib(r.PeakBytes), kib(r.RootHeap), r.Rounds,
			float64(r.Releases)/float64(r.Ranks), r.Iteration, r.Cut.Round(10*time.Microsecond))
	}
	return t.Flush()
}

func kib(n int64) string { return fmt.Sprintf("%.1f KiB", float64(n)/1024) }

func hint(r Result) string {
	if r.NoHint {
		return "off"
	}
	return "on"
}
