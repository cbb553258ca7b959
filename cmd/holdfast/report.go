package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/report"
	"github.com/spf13/cobra"
)

func newReport() *cobra.Command {
	var out, trace string
	var asJSON bool
	var starts int
	cmd := &cobra.Command{
		Use:   "report DIR...",
		Short: "show what a job did, as one page",
		Long: `report merges the event logs that the ranks of a job wrote into one page: a
timeline with a row per rank, a table of all checkpoints and restarts, where the
time went and what was lost. The page needs no network and no other file. The
job may be running, finished or dead.

Give the job's HOLDFAST_GLOBAL or, if it has none, the HOLDFAST_LOCAL of every
node; or the directory that HOLDFAST_EVENTS gave.

--trace writes the timeline for chrome://tracing or ui.perfetto.dev, --json the
figures of the tables as one object: durations in seconds, times in
microseconds since the first start.

Exit codes: 0 written; 2 no event logs, or not of one job, or an I/O error.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			if starts < 0 {
				return fmt.Errorf("--starts %d: want 0 or more", starts)
			}
			r, err := report.Load(time.Now(), starts, dirs...)
			if err != nil {
				return err
			}
			for _, n := range r.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "holdfast: note:", n)
			}
			if trace != "" {
				if err := toFile(cmd, trace, r.WriteTrace); err != nil {
					return err
				}
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
			}
			if trace != "" && !cmd.Flags().Changed("output") {
				return nil
			}
			return toFile(cmd, out, r.WriteHTML)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "holdfast-report.html", `file for the page; "-" is standard output`)
	f.IntVar(&starts, "starts", 0, "only the newest so many starts of the job; 0: all")
	f.StringVar(&trace, "trace", "", "write a Chrome trace to this `file`, and the page only with --output")
	f.BoolVar(&asJSON, "json", false, "write the figures as one JSON object to standard output instead of a page")
	return cmd
}

// toFile writes a file, whole or not at all, and says so. A device or a pipe is
// written to as it is.
func toFile(cmd *cobra.Command, name string, write func(io.Writer) error) error {
	if name == "-" {
		return write(cmd.OutOrStdout())
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".holdfast-report-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone after the rename
	err = write(f)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.ErrOrStderr(), "wrote", name)
	return err
}
