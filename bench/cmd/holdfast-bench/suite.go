package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/spf13/cobra"
)

// benchSuite is the common part of all suites' commands: the runner, and the form of its rows.
type benchSuite struct {
	bench.Runner
	json, strict bool
	plot         string
}

// helpTexts describe the suites.
//
//go:embed help
var helpTexts embed.FS

// suiteCodes ends the description of a suite.
const suiteCodes = `

Exit codes: 0 measured, and with --strict all goals met; 1 with --strict, a goal is
not met; 2 nothing could be measured.`

// command makes cmd run a suite, and gives it the flags that all have.
func (s *benchSuite) command(cmd *cobra.Command, run func(cmd *cobra.Command) error) *cobra.Command {
	text, err := helpTexts.ReadFile("help/" + cmd.Name() + ".txt")
	if err != nil {
		panic(err) // every suite has one
	}
	if cmd.Long = strings.TrimSpace(string(text)); !strings.Contains(cmd.Long, "Exit codes: ") {
		cmd.Long += suiteCodes
	}
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		if s.Self, err = os.Executable(); err != nil {
			return err
		}
		return s.check()
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		note, stop := showSteps(cmd, "measuring")
		s.Note = note
		err := run(cmd)
		stop()
		return s.finish(cmd, err)
	}
	f := cmd.Flags()
	f.BoolVar(&s.json, "json", false, "write one JSON object per line")
	f.BoolVar(&s.strict, "strict", false, "end with exit code 1 when a goal is not met")
	f.StringVar(&s.plot, "plot", "", "directory to write the results to as well: JSON lines, and a chart of "+
		"the ratios as SVG")
	return cmd
}

// check returns an error before anything is measured if the results could not be kept.
func (s *benchSuite) check() error {
	if s.plot == "" {
		return nil
	}
	if err := os.MkdirAll(s.plot, 0o755); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	f, err := os.CreateTemp(s.plot, ".check-*")
	if err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// finish writes the measured rows, if there are any, even if err ended the suite early.
func (s *benchSuite) finish(cmd *cobra.Command, err error) error {
	if len(s.Rows) == 0 {
		return err
	}
	if werr := bench.Write(cmd.OutOrStdout(), s.Rows, s.json); err == nil {
		err = werr
	}
	if noise := bench.Noise(s.Rows); noise != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), noise)
	}
	if perr := s.draw(cmd); err == nil {
		err = perr
	}
	if err == nil && s.strict && !bench.AllMet(s.Rows) {
		err = cli.ErrBad
	}
	return err
}

// draw keeps the results and draws the chart, if that was asked for.
func (s *benchSuite) draw(cmd *cobra.Command) error {
	if s.plot == "" {
		return nil
	}
	var text bytes.Buffer
	if err := bench.Write(&text, s.Rows, true); err != nil {
		return err
	}
	name := filepath.Join(s.plot, s.Rows[0].Suite)
	if err := os.WriteFile(name+".jsonl", text.Bytes(), 0o644); err != nil {
		return err
	}
	chart := bench.Chart(s.Rows)
	if chart == nil {
		return nil
	}
	if err := os.WriteFile(name+"-ratios.svg", chart, 0o644); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "plotted", name+"-ratios.svg")
	return nil
}

// appDir returns the absolute path of dir, by default of where this program is: the applications are installed beside
// it.
func appDir(dir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	program, err := os.Executable()
	return filepath.Dir(program), err
}
