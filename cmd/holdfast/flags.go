package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// checkNumbers refuses counts and times below 0, which mean nothing to any command, and
// waits and pauses of 0 where a command needs some.
func checkNumbers(cmd *cobra.Command) error {
	var bad error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "int", "int64", "float64", "duration":
		default:
			return
		}
		needed := (f.Name == "every" || f.Name == "timeout") && f.Value.Type() == "duration" && f.DefValue != "0s"
		if v := f.Value.String(); strings.HasPrefix(v, "-") || needed && v == "0s" {
			bad = fmt.Errorf("--%s %s: want more than 0; see %s --help", f.Name, v, cmd.CommandPath())
			if f.DefValue == "0" || f.DefValue == "0s" {
				bad = fmt.Errorf("--%s %s: want 0 or more; see %s --help", f.Name, v, cmd.CommandPath())
			}
		}
	})
	return bad
}
