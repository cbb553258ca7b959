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
		Short: "show and draw results that were kept as JSON",
		Args:  cobra.MinimumNArgs(1),
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
