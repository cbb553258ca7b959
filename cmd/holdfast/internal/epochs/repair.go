package epochs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// repairRow is one line of repair: a fault, and whether it was repaired.
type repairRow struct {
	faultRow
	Repaired bool   `json:"repaired"`          // it was repaired
	Can      bool   `json:"can_be_repaired"`   // with --dry-run: it could be repaired
	Why      string `json:"why_not,omitempty"` // why it was not repaired, or could not be
}

func newRepair() *cobra.Command {
	var epoch string
	var rules checkpoints.RepairRules
	cmd := newVerb("repair DIR...", "rewrite what verify finds damaged or missing", cobra.MinimumNArgs(1),
		func(cmd *cobra.Command, dirs []string) error {
			list, err := repairDirs(cmd, dirs, epoch, &rules)
			if err != nil && list == nil {
				return err
			}
			if werr := printRepairs(cmd, list, rules.DryRun); werr != nil || err == nil {
				return werr
			}
			return err
		})
	f := cmd.Flags()
	cli.JSON(f, "write one JSON object per line, errors too", repairRow{})
	f.BoolVarP(&rules.DryRun, "dry-run", "n", false, "write nothing, only say what could be repaired")
	f.BoolVar(&rules.Complete, "complete", false, "the directories given are all that the job has")
	f.StringVarP(&epoch, "epoch", "e", "", "repair only `EPOCH`: its number, or \"newest\" (default: all)")
	addJobs(cmd, &rules.Jobs)
	return cmd
}

func repairDirs(cmd *cobra.Command, dirs []string, epoch string, rules *checkpoints.RepairRules) (
	[]checkpoints.Repaired, error) {
	var seen ioCounts
	ctx := seen.over(cmd.Context())
	s, err := inspectAll(ctx, dirs, epoch)
	if err != nil {
		return nil, err
	}
	if epoch != "" {
		rules.Epoch = s.expected[0]
	}
	stop := cli.ShowBar(cmd, "repairing", s.bytes, seen.read.Load)
	defer stop()
	out, err := checkpoints.Repair(ctx, dirs, *rules)
	stop()
	aside, aerr := checkpoints.SetAside(cmd.Context(), dirs...)
	for _, path := range aside {
		fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: %s was set aside by a repair; remove it when you have looked at it\n",
			path)
	}
	return out, cmp.Or(err, aerr)
}

func printRepairs(cmd *cobra.Command, list []checkpoints.Repaired, dry bool) error {
	rows := make([]repairRow, 0, len(list))
	for i := range list {
		r := &list[i]
		row := repairRow{faultRow: faultRowOf(&r.Finding), Repaired: r.Done, Can: dry && r.Err == nil}
		if r.Err != nil {
			row.Why = r.Err.Error()
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 && !cli.AsJSON(cmd) {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "nothing is damaged or missing")
		return err
	}
	cells := func(rows []repairRow) [][]string { return repairTable(rows, dry) }
	if err := cli.Rows(cmd, rows, cells); err != nil {
		return err
	}
	if slices.ContainsFunc(rows, func(r repairRow) bool { return r.Why != "" }) {
		return cli.ErrBad
	}
	return nil
}

func repairTable(rows []repairRow, dry bool) [][]string {
	out := [][]string{{"EPOCH", "LEVEL", "WHAT", "WAS", "NOW", "DIRECTORY", "FAULT"}}
	for _, r := range rows {
		epoch, what := r.place("")
		if r.File != "" {
			what = r.File
		}
		state, fault := "repaired", r.Fault
		switch {
		case r.Why != "":
			state, fault = "not repaired", strings.ReplaceAll(r.Why, "\n", "; ")
			if dry {
				state = "cannot be repaired"
			}
		case dry:
			state = "can be repaired"
		}
		out = append(out, []string{epoch, cli.Dash(r.Level), what, string(r.Kind), state, cli.Dash(r.Dir), fault})
	}
	return out
}
