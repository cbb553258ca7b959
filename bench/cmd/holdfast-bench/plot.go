package main

import (
	"os"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/spf13/cobra"
)

func newBenchPlot() *cobra.Command {
	s := &benchSuite{}
	return s.command(&cobra.Command{
		Use:   "plot FILE... --plot DIR",
		Short: "show and plot results that were kept as JSON",
		Long: `plot reads what the suites wrote with --json on any machine, prints the table and
draws the plots. The file - is standard input.

Exit codes: 0 done, and with --strict all goals met; 1 with --strict, a goal is not
met; 2 a file could not be read, or does not hold results of a suite.`,
		Args: cobra.MinimumNArgs(1),
	}, func(cmd *cobra.Command) error {
		for _, name := range cmd.Flags().Args() {
			rows, err := readResults(cmd, name)
			if err != nil {
				s.Rows = nil
				return err
			}
			s.Rows = append(s.Rows, rows...)
		}
		return nil
	})
}

// readResults reads a file of results; "-" is stdin.
func readResults(cmd *cobra.Command, name string) ([]bench.Row, error) {
	if name == "-" {
		return bench.Read(cmd.InOrStdin(), name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bench.Read(f, name)
}
