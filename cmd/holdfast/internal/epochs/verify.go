package epochs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// faultRow is something that is wrong, as verify and repair print it.
type faultRow struct {
	Epoch  uint64           `json:"epoch,omitempty"`   // number of the epoch; absent: the fault is the directory's
	Level  string           `json:"level,omitempty"`   // level of the directory: local, partner or global
	Dir    string           `json:"dir,omitempty"`     // directory or object store with the fault
	Rank   *int             `json:"rank,omitempty"`    // rank whose shard it is; absent: the manifest's, or see file
	File   string           `json:"file,omitempty"`    // file, if it is neither a shard nor the manifest
	Kind   checkpoints.Kind `json:"kind,omitempty"`    // class of the fault
	Fault  string           `json:"fault,omitempty"`   // the fault, for people
	GoodAt []string         `json:"good_at,omitempty"` // directories, or levels, that have good data
}

func faultRowOf(f *checkpoints.Finding) faultRow {
	row := faultRow{Epoch: uint64(f.Epoch), Level: f.Dir.Level, Dir: f.Dir.Dir, File: f.Part, Kind: f.Kind,
		Fault: f.Err.Error(), GoodAt: f.GoodAt}
	if f.Rank >= 0 {
		row.Rank = &f.Rank
	}
	return row
}

// place names the faulty part: the epoch, with the name of its checkpoints if it has one, and the file.
func (r *faultRow) place(name string) (epoch, what string) {
	epoch, what = "-", "manifest"
	switch {
	case r.Rank != nil:
		what = fmt.Sprint("rank ", *r.Rank)
	case r.File != "":
		what = r.File
	case r.Epoch == 0:
		what = "directory"
	}
	if r.Epoch > 0 {
		epoch = epochOf(name, r.Epoch)
	}
	return epoch, what
}

// verifyRow is one line of verify: a fault, or an epoch without one.
type verifyRow struct {
	faultRow
	Levels []string `json:"good_levels,omitempty"` // levels of the directories that have good data
	Lost   bool     `json:"lost,omitempty"`        // no directory has good data: it cannot be restored
	Absent bool     `json:"absent,omitempty"`      // it may be in a directory that was not given
	InPart bool     `json:"in_part,omitempty"`     // what is kept is good, but some data is gone: it cannot be restored
	Good   bool     `json:"good"`                  // nothing is wrong with the epoch
	Of     string   `json:"checkpoint,omitempty"`  // name that the program gave to hf_checkpoint
}

// Exit codes of verify, beside those of all verbs.
const (
	exitMissing      = cli.Code(3)
	exitNotRedundant = cli.Code(4)
)

func newVerify() *cobra.Command {
	var complete bool
	var epoch string
	cmd := newVerb("verify [DIR...]", "read all checkpoints and report what is damaged or missing", cobra.ArbitraryArgs,
		func(cmd *cobra.Command, dirs []string) error {
			dirs, err := verb.Dirs(cmd, dirs)
			if err != nil {
				return err
			}
			rows, err := verifyNamed(cmd, dirs, epoch, complete)
			if err != nil {
				return err
			}
			if err := cli.Rows(cmd, rows, verifyTable); err != nil {
				return err
			}
			return verdict(rows)
		})
	cli.JSON(cmd.Flags(), "write one JSON object per line, errors too", verifyRow{})
	cmd.Flags().BoolVar(&complete, "complete", false, "the directories given are all that the job has")
	cmd.Flags().StringVarP(&epoch, "epoch", "e", "", "verify only `EPOCH`: its number, or \"newest\" (default: all)")
	return cmd
}

// verifyNamed is verifyDirs of the directories and, unless it is for one epoch, of the checkpoints with a name below
// them.
func verifyNamed(cmd *cobra.Command, dirs []string, epoch string, complete bool) (rows []verifyRow, err error) {
	if epoch == "" {
		err = ofNames(dirs, func(name string, dirs []string) error {
			more, err := verifyDirs(cmd, dirs, "", complete)
			for i := range more {
				more[i].Of = name
			}
			rows = append(rows, more...)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	own, err := verifyDirs(cmd, dirs, epoch, complete)
	rows = append(own, rows...)
	none := func(r verifyRow) bool { return r.Fault == noneCommitted }
	if slices.ContainsFunc(rows, func(r verifyRow) bool { return !none(r) }) {
		// A program may take checkpoints with names only, or ask for a name that has none yet.
		rows = slices.DeleteFunc(rows, none)
	}
	return rows, err
}

// kindNone and noneCommitted are for directories that no epoch was ever committed to.
const (
	kindNone      = checkpoints.Kind("no epoch")
	noneCommitted = "no checkpoint has been committed here so far; 'holdfast request' asks a running job for one"
)

func verifyDirs(cmd *cobra.Command, dirs []string, epoch string, complete bool) ([]verifyRow, error) {
	var seen ioCounts
	s, err := inspectAll(seen.over(cmd.Context()), dirs, epoch)
	if err != nil {
		return nil, err
	}
	v := s.view
	v.Complete = complete
	levels := map[string]string{}
	for _, d := range v.Dirs() {
		levels[d.Dir] = d.Level
	}
	defer cli.ShowBar(cmd, "verifying", s.bytes, seen.read.Load)()
	var rows []verifyRow
	if found := v.VerifyDirs(); len(found) > 0 {
		rows = verifyRows(0, found, levels)
	}
	for _, e := range s.expected {
		found, err := v.Verify(cmd.Context(), e)
		if err != nil {
			return nil, err
		}
		more := verifyRows(e, found, levels)
		more[0].InPart = more[0].Good && !slices.ContainsFunc(s.list, func(i checkpoints.EpochInfo) bool {
			return i.Epoch == e && !i.InPart
		})
		rows = append(rows, more...)
	}
	if len(s.expected) == 0 {
		rows = append(rows, verifyRow{faultRow: faultRow{Kind: kindNone, Fault: noneCommitted}})
	}
	return rows, nil
}

// verifyRows makes rows; levels are those of the directories.
func verifyRows(e storage.Epoch, found []checkpoints.Finding, levels map[string]string) []verifyRow {
	if len(found) == 0 {
		return []verifyRow{{faultRow: faultRow{Epoch: uint64(e)}, Good: true}}
	}
	var rows []verifyRow
	for i := range found {
		f := &found[i]
		r := verifyRow{faultRow: faultRowOf(f), Lost: f.Lost, Absent: f.Absent}
		for _, at := range f.GoodAt {
			r.Levels = append(r.Levels, cmp.Or(levels[at], at))
		}
		rows = append(rows, r)
	}
	return rows
}

// verdict returns the exit code of the findings, the worst first.
func verdict(rows []verifyRow) error {
	have := map[checkpoints.Kind]bool{}
	for _, r := range rows {
		have[r.Kind] = true
	}
	switch {
	case have[checkpoints.Damaged]:
		return cli.ErrBad
	case have[checkpoints.Newer]:
		return cli.ErrFailed
	case have[checkpoints.Missing], have[kindNone]:
		return exitMissing
	case have[checkpoints.NotRedundant], have[checkpoints.OtherRun]:
		return exitNotRedundant
	}
	return nil
}

// goodCopies lists levels, with the directories if there are any.
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
	out := [][]string{{"EPOCH", "LEVEL", "WHAT", "STATE", "GOOD COPY", "FAULT"}}
	for _, r := range rows {
		if r.Good {
			what := "all"
			if r.InPart {
				what = "what is kept"
			}
			out = append(out, []string{epochOf(r.Of, r.Epoch), "all", what, "good", "-", "none"})
			continue
		}
		epoch, what := r.place(r.Of)
		good := "-"
		if r.Kind == kindNone {
			what = "-"
		}
		switch {
		case len(r.GoodAt) > 0:
			good = goodCopies(&r)
		case r.Lost:
			good = "none"
		case r.Absent:
			good = "elsewhere?"
		}
		out = append(out, []string{epoch, cli.Dash(r.Level), what, string(r.Kind), good, r.Fault})
	}
	return out
}
