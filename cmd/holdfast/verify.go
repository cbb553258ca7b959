package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/spf13/cobra"
)

// verifyRow is one line of verify: something that is wrong, or one epoch that
// is good (Fault is empty then).
type verifyRow struct {
	Epoch  uint64   `json:"epoch"`
	Level  string   `json:"level,omitempty"`
	Dir    string   `json:"dir,omitempty"`
	Rank   *int     `json:"rank,omitempty"` // absent: the manifest
	Fault  string   `json:"fault,omitempty"`
	GoodAt []string `json:"good_at,omitempty"` // directories, or levels
	Levels []string `json:"good_levels,omitempty"`
	Lost   bool     `json:"lost,omitempty"`
	Absent bool     `json:"absent,omitempty"` // may be in a directory that was not given
	Good   bool     `json:"good"`
}

func newVerify() *cobra.Command {
	var asJSON, complete bool
	var epoch string
	cmd := &cobra.Command{
		Use:   "verify DIR...",
		Short: "read everything and say what is damaged",
		Long: `verify reads every byte of the committed epochs in the checkpoint directories
of a job and compares it with the checksums. For each fault it says where a good
copy of the shard is, if one of the directories has it: give the local and the
global directories together. A shard that is in none of them may be on a node
whose directory was not given; with --complete it counts as missing.

` + exitCodeDoc,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			rows, err := verifyDirs(cmd, dirs, epoch)
			if err != nil {
				return err
			}
			return printVerify(cmd, rows, asJSON, complete)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line")
	cmd.Flags().BoolVar(&complete, "complete", false, "the directories given are all there are")
	cmd.Flags().StringVarP(&epoch, "epoch", "e", "", `number of one epoch, or "newest" (default all)`)
	return cmd
}

func verifyDirs(cmd *cobra.Command, dirs []string, epoch string) ([]verifyRow, error) {
	var seen tally
	v, err := storage.OpenView(seen.fs(), dirs...)
	if err != nil {
		return nil, err
	}
	list, err := v.Epochs(cmd.Context())
	if err != nil {
		return nil, err
	}
	var only storage.Epoch
	if epoch != "" {
		if only, err = pickEpoch(epoch, list); err != nil {
			return nil, err
		}
	}
	levels := map[string]string{}
	for _, d := range v.Dirs() {
		levels[d.Dir] = d.Level
	}
	var rows []verifyRow
	var total int64
	for _, info := range list {
		if only == 0 || info.Epoch == only {
			total += hereBytes(info)
		}
	}
	defer showBar(cmd, "verifying", total, seen.read.Load, sizeText)()
	done := map[storage.Epoch]bool{}
	for _, info := range list {
		e := info.Epoch
		if done[e] || !info.Committed || (only != 0 && e != only) {
			continue
		}
		done[e] = true
		found, err := v.Verify(cmd.Context(), e)
		if err != nil {
			return nil, err
		}
		rows = append(rows, verifyRows(e, found, levels)...)
	}
	return rows, nil
}

// hereBytes is how long the shards of an epoch are in one directory.
func hereBytes(info storage.EpochInfo) int64 {
	var n int64
	for _, r := range info.Here {
		if r < len(info.Shards) {
			n += info.Shards[r].ShardBytes
		}
	}
	return n
}

// verifyRows makes rows; levels are those of the directories.
func verifyRows(e storage.Epoch, found []storage.Finding, levels map[string]string) []verifyRow {
	if len(found) == 0 {
		return []verifyRow{{Epoch: uint64(e), Good: true}}
	}
	var rows []verifyRow
	for _, f := range found {
		r := verifyRow{Epoch: uint64(e), Level: f.Dir.Level, Dir: f.Dir.Dir,
			Fault: f.Err.Error(), GoodAt: f.GoodAt, Lost: f.Lost, Absent: f.Absent}
		if f.Rank >= 0 {
			r.Rank = &f.Rank
		}
		for _, at := range f.GoodAt {
			r.Levels = append(r.Levels, cmp.Or(levels[at], at))
		}
		rows = append(rows, r)
	}
	return rows
}

func printVerify(cmd *cobra.Command, rows []verifyRow, asJSON, complete bool) error {
	var err error
	if asJSON {
		err = jsonLines(cmd.OutOrStdout(), rows)
	} else {
		err = table(cmd.OutOrStdout(), verifyTable(rows))
	}
	for _, r := range rows {
		if !r.Good && (complete || !r.Absent) && err == nil {
			return errBad
		}
	}
	return err
}

// goodCopies lists levels, with the directories where there are any.
func goodCopies(r *verifyRow) string {
	var out []string
	for i, at := range r.GoodAt {
		if at != r.Levels[i] {
			at = r.Levels[i] + " " + at
		}
		out = append(out, at)
	}
	return strings.Join(out, ", ")
}

func verifyTable(rows []verifyRow) [][]string {
	out := [][]string{{"EPOCH", "LEVEL", "RANK", "GOOD COPY", "FAULT"}}
	for _, r := range rows {
		if r.Good {
			out = append(out, []string{fmt.Sprint(r.Epoch), "all", "all", "-", "none"})
			continue
		}
		rank, good := "manifest", "-"
		if r.Rank != nil {
			rank = fmt.Sprint(*r.Rank)
		}
		switch {
		case len(r.GoodAt) > 0:
			good = goodCopies(&r)
		case r.Lost:
			good = "none"
		case r.Absent:
			good = "elsewhere?"
		}
		out = append(out, []string{fmt.Sprint(r.Epoch), r.Level, rank, good, r.Fault})
	}
	return out
}
