package jobs

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/report"
)

func newReport() *cobra.Command {
	var out string
	var starts int
	cmd := newVerb("report [DIR...]", "write a page that shows what a job did", cobra.ArbitraryArgs,
		func(cmd *cobra.Command, dirs []string) error {
			dirs, err := verb.Dirs(cmd, dirs)
			if err != nil {
				return err
			}
			r, err := report.Load(time.Now(), starts, dirs...)
			if err != nil {
				return err
			}
			for _, n := range r.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "holdfast: note:", n)
			}
			if cli.AsJSON(cmd) {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
			}
			if out == "-" {
				return r.WriteHTML(cmd.OutOrStdout())
			}
			if err := cli.WriteFile(out, true, func(f *os.File) error { return r.WriteHTML(f) }); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.ErrOrStderr(), "wrote", out)
			return err
		})
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "holdfast-report.html", "`FILE` for the page; \"-\": standard output")
	f.IntVar(&starts, "starts", 0, "number of the newest starts to show; 0: all")
	cli.JSON(f, "write the figures as one JSON object to standard output, and no page", report.Report{})
	return cmd
}
