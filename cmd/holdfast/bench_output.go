package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/holdfast-hpc/holdfast/internal/benchplot"
	"github.com/spf13/cobra"
)

// benchOutput is what all suites have in common: how results are written.
type benchOutput struct {
	json, strict bool
	plot         string
	stop         func() // of the progress; nil if there is none
}

func (o *benchOutput) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "write one JSON object per line")
	f.BoolVar(&o.strict, "strict", false, "exit code 1 when a goal is not met")
	f.StringVar(&o.plot, "plot", "", "directory to keep the results in, too: JSON lines and plots, SVG and PNG")
}

// note shows progress on a terminal: which of about so many steps is under way, 0
// if nobody knows how many there are. finish ends it.
func (o *benchOutput) note(cmd *cobra.Command, total int) (begin func(string)) {
	begin, o.stop = steps(cmd, "measuring", total)
	return begin
}

// finish writes what was measured, also when err ended it early.
func (o *benchOutput) finish(cmd *cobra.Command, lines []bench.Line, err error) error {
	if o.stop != nil {
		o.stop()
	}
	if len(lines) == 0 && err != nil {
		return err
	}
	if werr := bench.Write(cmd.OutOrStdout(), lines, o.json); err == nil {
		err = werr
	}
	if perr := o.draw(cmd, lines); err == nil {
		err = perr
	}
	if err == nil && o.strict && !bench.AllMet(lines) {
		err = errBad
	}
	return err
}

// draw keeps the results and writes the plots that were asked for.
func (o *benchOutput) draw(cmd *cobra.Command, lines []bench.Line) error {
	if o.plot == "" || len(lines) == 0 {
		return nil
	}
	files, err := benchplot.Write(o.plot, lines)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := bench.Write(&text, lines, true); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.plot, lines[0].Suite+".jsonl"), text.Bytes(), 0o644); err != nil {
		return err
	}
	more, err := benchplot.Windows(o.plot, lines)
	for _, name := range append(files, more...) {
		fmt.Fprintln(cmd.ErrOrStderr(), "plotted", name)
	}
	return err
}
