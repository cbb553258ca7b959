package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"text/tabwriter"
)

// stats are what the library logged of one checkpoint or restore; empty where it logged nothing.
type stats struct{ bytes, blocked, durable, restored string }

var (
	takenLine    = regexp.MustCompile(`committed rank=0 epoch=\d+ level=global bytes=(\d+) blocked=(\S+) durable=(\S+)`)
	restoredLine = regexp.MustCompile(`restored rank=0 ranks=\d+ epoch=\d+ level=.+ bytes=(\d+) took=(\S+)`)
)

// read takes the last account of each kind from the program's output.
func (s *stats) read(output string) {
	if all := takenLine.FindAllStringSubmatch(output, -1); len(all) > 0 {
		last := all[len(all)-1]
		s.bytes, s.blocked, s.durable = perRank(last[1]), last[2], last[3]
	}
	if all := restoredLine.FindAllStringSubmatch(output, -1); len(all) > 0 {
		last := all[len(all)-1]
		s.bytes, s.restored = perRank(last[1]), last[2]
	}
}

// perRank writes a number of bytes of the log for people.
func perRank(bytes string) string {
	n, err := strconv.ParseFloat(bytes, 64)
	if err != nil {
		return bytes
	}
	return fmt.Sprintf("%.1f kB a rank", n/1e3)
}

// report prints the table and returns an error if a verdict is bad.
func (d *demo) report(stages ...*stage) error {
	d.say("done")
	fmt.Println()
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "stage\tbytes\tblocked\tdurable after\trestored in\tverdict")
	var bad []error
	for _, s := range stages {
		verdict := "ok: " + s.verdict
		if s.err != nil {
			verdict = "BAD: " + s.verdict
			bad = append(bad, fmt.Errorf("%s: %w", s.name, s.err))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", s.name, dash(s.stats.bytes), dash(s.stats.blocked),
			dash(s.stats.durable), dash(s.stats.restored), verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return errors.Join(bad...)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// isEmpty reports whether a directory has no entries.
func isEmpty(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	return len(entries) == 0, err
}
