package epochs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/image"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
)

// lsRow is one line of ls: an epoch in a directory.
type lsRow struct {
	Epoch     uint64    `json:"epoch"`                   // number of the epoch
	Level     string    `json:"level"`                   // level of the directory: local, partner or global
	Dir       string    `json:"dir"`                     // directory or object store, as it was given
	Job       string    `json:"job"`                     // name of the job
	Size      int       `json:"size"`                    // number of ranks that wrote the epoch; 0: not known
	Committed bool      `json:"committed"`               // the epoch has a manifest here
	InPart    bool      `json:"in_part,omitempty"`       // some of its data is gone: it cannot be restored from here
	Time      time.Time `json:"time"`                    // when it was committed
	Ranks     []int     `json:"ranks"`                   // ranks whose shards lie here
	Bytes     int64     `json:"bytes"`                   // protected bytes of all ranks
	Stored    int64     `json:"stored"`                  // bytes on disk in this directory
	ID        string    `json:"id,omitempty"`            // identity of the epoch
	Run       string    `json:"run,omitempty"`           // identity of the run that wrote it
	OtherRun  bool      `json:"other_run,omitempty"`     // not the directory's run: no restart takes it
	Kept      bool      `json:"kept,omitempty"`          // it is kept until it is released: see holdfast keep
	Name      string    `json:"name,omitempty"`          // name under which it is kept
	Of        string    `json:"checkpoint,omitempty"`    // name that the program gave to hf_checkpoint
	Error     string    `json:"error,omitempty"`         // why the manifest cannot be read
	Newer     bool      `json:"newer_version,omitempty"` // it cannot be read because a later release wrote it

	// Whether any number of ranks can restore it. Absent if the manifest cannot be read.
	AnyCount *bool  `json:"any_count,omitempty"`
	WhyNot   string `json:"why_not_any_count,omitempty"` // why only as many ranks as wrote it can restore it
}

func newLs() *cobra.Command {
	var epoch string
	cmd := newVerb("ls [DIR...]", "list the epochs in checkpoint directories", cobra.ArbitraryArgs,
		func(cmd *cobra.Command, dirs []string) error {
			dirs, err := verb.Dirs(cmd, dirs)
			if err != nil {
				return err
			}
			_, list, err := inspect(cmd, dirs)
			if err != nil {
				return err
			}
			if epoch != "" {
				e, err := pickEpoch(epoch, list)
				if err != nil {
					return err
				}
				list = slices.DeleteFunc(list, func(i checkpoints.EpochInfo) bool { return i.Epoch != e })
				return printLs(cmd, lsRows(list))
			}
			rows := lsRows(list)
			if err := ofNames(dirs, func(name string, dirs []string) error {
				_, list, err := inspect(cmd, dirs)
				more := lsRows(list)
				for i := range more {
					more[i].Of = name
				}
				rows = append(rows, more...)
				return err
			}); err != nil {
				return err
			}
			return printLs(cmd, rows)
		})
	cli.JSON(cmd.Flags(), "write one JSON object per line, errors too", lsRow{})
	cmd.Flags().StringVarP(&epoch, "epoch", "e", "", "list only `EPOCH`: a number, or \"newest\" (default: all)")
	return cmd
}

func lsRows(list []checkpoints.EpochInfo) []lsRow {
	rows := make([]lsRow, 0, len(list))
	for _, e := range list {
		r := lsRow{
			Epoch: uint64(e.Epoch), Level: e.Dir.Level, Dir: e.Dir.Dir, Job: e.Dir.Job,
			Size: cmp.Or(e.Size, e.Dir.Size), Committed: e.Committed, InPart: e.InPart, Time: e.Time, Ranks: e.Here,
			Run: e.Run.Short(), OtherRun: e.OtherRun,
		}
		for _, s := range e.Shards {
			r.Bytes += s.Bytes
		}
		if e.Shards != nil {
			r.Stored, r.ID = e.Disk, idText(e.ID)
			c := e.Counts()
			any := c.Any()
			r.AnyCount, r.WhyNot = &any, c.Short()
			if image.IsJob(e.Dir.Job) {
				r.WhyNot = "image"
			}
		}
		if e.Pin != nil {
			r.Kept, r.Name = true, e.Pin.Name
		}
		if e.Err != nil {
			r.Error = e.Err.Error()
			r.Newer = errors.As(e.Err, new(*storage.VersionError))
		}
		rows = append(rows, r)
	}
	return rows
}

func printLs(cmd *cobra.Command, rows []lsRow) error {
	if len(rows) == 0 && !cli.AsJSON(cmd) {
		fmt.Fprintln(cmd.ErrOrStderr(), "holdfast: there is no epoch in these directories; "+
			"'holdfast request' asks a running job for one")
		return nil
	}
	if err := cli.Rows(cmd, rows, lsTable); err != nil {
		return err
	}
	return unread(rows, func(r lsRow) (bool, bool) { return r.Error != "", r.Newer })
}

// unread returns the exit code of rows of which some could not be read: because of damage, or because a later release
// has written them.
func unread[T any](rows []T, is func(T) (bad, newer bool)) (err error) {
	for _, r := range rows {
		switch bad, newer := is(r); {
		case bad && !newer:
			return cli.ErrBad
		case bad:
			err = cli.ErrFailed
		}
	}
	return err
}

func lsTable(rows []lsRow) [][]string {
	out := [][]string{{"EPOCH", "LEVEL", "STATE", "RANKS HERE", "BYTES", "STORED", "ON OTHER COUNTS", "WRITTEN",
		"DIRECTORY"}}
	for _, r := range rows {
		state, here, bytes, stored, counts := "uncommitted", "-", "-", "-", "-"
		switch {
		case r.Newer:
			state = "newer version, upgrade"
		case r.OtherRun:
			state = strings.TrimSpace("other run " + r.Run)
		case r.Error != "":
			state = "corrupt manifest"
		case r.Committed:
			state = "committed"
			if r.InPart {
				state = "in part"
			}
			here = fmt.Sprintf("%s of %d", cli.Ranges(r.Ranks), r.Size)
			bytes, stored = units.Bytes(r.Bytes), units.Bytes(r.Stored)
			counts = "yes"
			if r.WhyNot != "" {
				counts = "no: " + r.WhyNot
			}
		}
		if r.Kept {
			state += ", kept"
		}
		if r.Name != "" {
			state += " as " + r.Name
		}
		out = append(out, []string{epochOf(r.Of, r.Epoch), r.Level, state, here, bytes, stored, counts,
			r.Time.Format(time.DateTime), r.Dir})
	}
	return out
}

// epochOf returns an epoch in a table, of the checkpoints with a name if it has one.
func epochOf(name string, epoch uint64) string {
	if name == "" {
		return fmt.Sprint(epoch)
	}
	return fmt.Sprintf("%s %d", name, epoch)
}
