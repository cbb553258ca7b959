package main

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/spf13/cobra"
)

// benchOutput is what all suites have in common: how results are written.
type benchOutput struct {
	json, strict bool
}

func (o *benchOutput) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "write one JSON object per line")
	f.BoolVar(&o.strict, "strict", false, "exit code 1 when a goal is not met")
}

// note tells of progress on standard error.
func (o *benchOutput) note(cmd *cobra.Command) func(string) {
	return func(s string) { fmt.Fprintln(cmd.ErrOrStderr(), "measuring", s) }
}

// finish writes what was measured, also when err ended it early.
func (o *benchOutput) finish(cmd *cobra.Command, lines []bench.Line, err error) error {
	if werr := bench.Write(cmd.OutOrStdout(), lines, o.json); err == nil {
		err = werr
	}
	if err == nil && o.strict && !bench.AllMet(lines) {
		err = errBad
	}
	return err
}
