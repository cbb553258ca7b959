package main

import (
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
)

// lsRow is one line of ls: an epoch in a directory.
type lsRow struct {
	Epoch     uint64    `json:"epoch"`
	Level     string    `json:"level"`
	Dir       string    `json:"dir"`
	Job       string    `json:"job"`
	Size      int       `json:"size"`
	Committed bool      `json:"committed"`
	Time      time.Time `json:"time"`
	Ranks     []int     `json:"ranks"`  // whose shards lie here
	Bytes     int64     `json:"bytes"`  // protected, of all ranks
	Stored    int64     `json:"stored"` // in this directory
	ID        string    `json:"id,omitempty"`
	Kept      bool      `json:"kept,omitempty"` // it stays until somebody says otherwise
	Name      string    `json:"name,omitempty"` // under which it is kept
	Error     string    `json:"error,omitempty"`
}

func newLs() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls DIR...",
		Short: "list the epochs in checkpoint directories",
		Long: `ls lists the epochs in the checkpoint directories of a job, newest first, with
one line for each directory that has something of the epoch.

An epoch without a manifest is "uncommitted": it is being written, or was given up.
One that stays until somebody says otherwise is "kept" (see holdfast keep).
BYTES is the size of the state of all ranks. STORED is what the epoch takes in this
directory: less than BYTES when chunks are compressed, refer to an earlier epoch, or
lie in another directory.

` + exitCodeDoc,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			list, err := inspect(cmd, dirs)
			if err != nil {
				return err
			}
			return printLs(cmd, lsRows(list), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per line, errors too")
	return cmd
}

func lsRows(list []checkpoints.EpochInfo) []lsRow {
	rows := make([]lsRow, 0, len(list))
	for _, e := range list {
		r := lsRow{
			Epoch: uint64(e.Epoch), Level: e.Dir.Level, Dir: e.Dir.Dir, Job: e.Dir.Job, Size: e.Dir.Size,
			Committed: e.Committed, Time: e.Time, Ranks: e.Here,
		}
		for _, s := range e.Shards {
			r.Bytes += s.Bytes
		}
		if e.Shards != nil {
			r.Stored, r.ID = e.Disk, idText(e.ID)
		}
		if e.Kept != nil {
			r.Kept, r.Name = true, e.Kept.Name
		}
		if e.Err != nil {
			r.Error = e.Err.Error()
		}
		rows = append(rows, r)
	}
	return rows
}

func printLs(cmd *cobra.Command, rows []lsRow, asJSON bool) error {
	err := write(cmd, asJSON, rows, lsTable)
	for _, r := range rows {
		if r.Error != "" && err == nil {
			return errBad
		}
	}
	return err
}

func lsTable(rows []lsRow) [][]string {
	out := [][]string{{"EPOCH", "LEVEL", "STATE", "RANKS HERE", "BYTES", "STORED", "WRITTEN", "DIRECTORY"}}
	for _, r := range rows {
		state, here, bytes, stored := "uncommitted", "-", "-", "-"
		switch {
		case r.Error != "":
			state = "corrupt manifest"
		case r.Committed:
			state = "committed"
			here = fmt.Sprintf("%s of %d", ranksText(r.Ranks), r.Size)
			bytes, stored = units.Bytes(r.Bytes), units.Bytes(r.Stored)
		}
		if r.Kept {
			state += ", kept"
		}
		if r.Name != "" {
			state += " as " + r.Name
		}
		out = append(out, []string{fmt.Sprint(r.Epoch), r.Level, state, here, bytes, stored,
			r.Time.Format(time.DateTime), r.Dir})
	}
	return out
}
