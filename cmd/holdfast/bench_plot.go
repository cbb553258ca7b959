package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/spf13/cobra"
)

func newBenchPlot() *cobra.Command {
	var out benchOutput
	cmd := &cobra.Command{
		Use:   "plot FILE... --plot DIR",
		Short: "show and plot results that were kept as JSON",
		Long: `plot reads what the suites wrote with --json, on this machine or another, prints
the table and draws the plots. The file - is standard input.

Exit codes: 0 done (with --strict: and all goals met); 1 a goal is not met;
2 a file could not be read, or is not what a suite writes.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			var lines []bench.Line
			for _, name := range files {
				more, err := readResults(cmd.InOrStdin(), name)
				if err != nil {
					return err
				}
				lines = append(lines, more...)
			}
			return out.finish(cmd, lines, nil)
		},
	}
	out.flags(cmd)
	return cmd
}

// readResults reads a file of results; "-" is stdin.
func readResults(stdin io.Reader, name string) ([]bench.Line, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	var lines []bench.Line
	s := bufio.NewScanner(in)
	for at := 1; s.Scan(); at++ {
		var l bench.Line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, at, err)
		}
		if l.Suite == "" || l.Metric == "" {
			return nil, fmt.Errorf("%s, line %d: not a result of holdfast bench --json", name, at)
		}
		lines = append(lines, l)
	}
	return lines, s.Err()
}
