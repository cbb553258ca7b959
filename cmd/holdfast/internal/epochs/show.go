package epochs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
)

// showRow is one line of show: a rank's shard at a level.
type showRow struct {
	Epoch   uint64   `json:"epoch"`                   // number of the epoch
	Level   string   `json:"level"`                   // level of the directory: local, partner or global
	Dir     string   `json:"dir"`                     // directory or object store, as it was given
	Rank    int      `json:"rank"`                    // rank that wrote the shard
	Node    string   `json:"node"`                    // host name of the rank's node
	Bytes   int64    `json:"bytes"`                   // protected bytes of the rank
	Stored  int64    `json:"stored"`                  // bytes that were written for them, after compression
	Shard   int64    `json:"shard_bytes"`             // size of the shard's file in bytes
	Here    bool     `json:"here"`                    // the shard's file lies in this directory
	Origins []uint64 `json:"origins,omitempty"`       // earlier epochs that hold some of its chunks
	Digest  string   `json:"digest,omitempty"`        // checksum of the shard
	Error   string   `json:"error,omitempty"`         // why the manifest cannot be read; the shards are not known then
	Newer   bool     `json:"newer_version,omitempty"` // it cannot be read because a later release wrote it
}

func newShow() *cobra.Command {
	var epoch string
	cmd := newVerb("show [DIR...]", "show the shards of one epoch", cobra.ArbitraryArgs,
		func(cmd *cobra.Command, dirs []string) error {
			dirs, err := verb.Dirs(cmd, dirs)
			if err != nil {
				return err
			}
			v, list, err := inspect(cmd, dirs)
			if err != nil {
				return err
			}
			e, err := pickEpoch(epoch, list)
			if err != nil {
				return err
			}
			err = printShow(cmd, e, list)
			return errors.Join(printArrays(cmd, v, e, list), err)
		})
	cli.JSON(cmd.Flags(), "write one JSON object per line, errors too", showRow{}, arrayRow{}, countsRow{})
	cmd.Flags().StringVarP(&epoch, "epoch", "e", "newest", "`EPOCH` to show: its number, or \"newest\"")
	return cmd
}

func printShow(cmd *cobra.Command, e storage.Epoch, list []checkpoints.EpochInfo) error {
	var rows, bad []showRow
	for _, info := range list {
		if info.Epoch != e {
			continue
		}
		rows = append(rows, showRows(info)...)
		if info.Err != nil {
			bad = append(bad, showRow{Epoch: uint64(info.Epoch), Level: info.Dir.Level, Dir: info.Dir.Dir,
				Error: info.Err.Error(), Newer: errors.As(info.Err, new(*storage.VersionError))})
			if cli.AsJSON(cmd) {
				rows = append(rows, bad[len(bad)-1])
				continue
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "holdfast:", info.Err)
		}
	}
	if err := cli.Rows(cmd, rows, showTable); err != nil {
		return err
	}
	return unread(bad, func(r showRow) (bool, bool) { return true, r.Newer })
}

func showRows(info checkpoints.EpochInfo) []showRow {
	var rows []showRow
	for _, s := range info.Shards {
		r := showRow{
			Epoch: uint64(info.Epoch), Level: info.Dir.Level, Dir: info.Dir.Dir,
			Rank: s.Rank, Node: s.Node, Bytes: s.Bytes, Stored: s.Stored, Shard: s.ShardBytes,
			Here: slices.Contains(info.Here, s.Rank), Digest: idText(s.Digest),
		}
		for _, o := range s.Origins {
			r.Origins = append(r.Origins, uint64(o))
		}
		rows = append(rows, r)
	}
	return rows
}

func showTable(rows []showRow) [][]string {
	out := [][]string{{"EPOCH", "LEVEL", "RANK", "NODE", "BYTES", "STORED", "SAVED", "REFERS TO", "FILE", "DIRECTORY"}}
	for _, r := range rows {
		file, saved, refers := "elsewhere", "-", "-"
		if r.Here {
			file = "here"
		}
		if r.Bytes > 0 {
			saved = fmt.Sprintf("%.0f %%", 100*(1-float64(r.Stored)/float64(r.Bytes)))
		}
		if len(r.Origins) > 0 {
			refers = strings.Trim(fmt.Sprint(r.Origins), "[]")
		}
		out = append(out, []string{fmt.Sprint(r.Epoch), r.Level, fmt.Sprint(r.Rank), cli.Dash(r.Node),
			units.Bytes(r.Bytes), units.Bytes(r.Stored), saved, refers, file, r.Dir})
	}
	return out
}
