package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/holdfast-hpc/holdfast/internal/bench/plot"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// benchOutput is what all suites have in common: how results are written.
type benchOutput struct {
	json, strict bool
	plot         string
	stop         func() // of the progress; nil if there is none
}

func (o *benchOutput) flags(cmd *cobra.Command) {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return errors.Join(positive(cmd.Flags()), o.check()) }
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "write one JSON object per line")
	f.BoolVar(&o.strict, "strict", false, "exit code 1 when a goal is not met")
	f.StringVar(&o.plot, "plot", "", "directory to keep the results in, too: JSON lines and plots, SVG and PNG")
}

// mayBeZero are the numbers of the suites that need not be more than 0.
var mayBeZero = []string{"windows", "start", "blocked"}

// positive refuses counts, sizes and times of which nothing can be measured.
func positive(flags *pflag.FlagSet) error {
	var errs []error
	flags.Visit(func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "int", "intSlice", "float64", "float64Slice", "duration":
		default:
			return
		}
		for text := range strings.SplitSeq(strings.Trim(f.Value.String(), "[]"), ",") {
			v, err := strconv.ParseFloat(text, 64)
			if d, derr := time.ParseDuration(text); err != nil && derr == nil {
				v = d.Seconds()
			}
			if !(v > 0) && !slices.Contains(mayBeZero, f.Name) {
				errs = append(errs, fmt.Errorf("--%s %s: want more than 0", f.Name, text))
			}
		}
	})
	return errors.Join(errs...)
}

// check is an error before anything is measured if the results could not be kept.
func (o *benchOutput) check() error {
	if o.plot == "" {
		return nil
	}
	if err := os.MkdirAll(o.plot, 0o755); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	f, err := os.CreateTemp(o.plot, ".check-*")
	if err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
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
	files, err := plot.Write(o.plot, lines)
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
	more, err := plot.Windows(o.plot, lines)
	for _, name := range append(files, more...) {
		fmt.Fprintln(cmd.ErrOrStderr(), "plotted", name)
	}
	return err
}
