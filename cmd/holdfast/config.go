package main

import (
	"fmt"
	"os"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/spf13/cobra"
)

func newConfig() *cobra.Command {
	var asJSON, all bool
	var file string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "print the configuration in force and where it comes from",
		Long: `config prints the values that a job started here would use, and where each comes
from. A program's own flags override HOLDFAST_ variables, which override the file,
which overrides the defaults. The file is the one that --file or HOLDFAST_CONFIG
names, otherwise holdfast.yaml in the working directory. It is YAML; keys with a dot
may be nested:

  local: /scratch/me/ckpt
  global: /lustre/me/ckpt
  mtbf: 24h
  control:
    interface: ib0

--all explains every key and lists the values it may have.

Exit codes: 0 a job can start with this configuration; 1 it cannot: a key is unknown,
a value is not allowed, or no directory is set for checkpoints; 2 bad arguments.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := coordinated.ReadConfig(file)
			cells := configTable
			if all {
				cells = settingsTable
			}
			if err := write(cmd, asJSON, c.Values(), cells); err != nil {
				return err
			}
			for _, stray := range c.Stray(os.Environ()) {
				fmt.Fprintln(cmd.ErrOrStderr(), "holdfast:", stray)
			}
			if bad := c.Check(); bad != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "holdfast:", bad)
				return errBad
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "write one JSON object per key")
	f.BoolVar(&all, "all", false, "explain every key")
	f.StringVar(&file, "file", "", "configuration file (default: HOLDFAST_CONFIG, otherwise holdfast.yaml)")
	cmd.MarkFlagsMutuallyExclusive("json", "all")
	return cmd
}

func configTable(values []config.Value) [][]string {
	out := [][]string{{"KEY", "VALUE", "FROM"}}
	for _, v := range values {
		value := v.Value
		if value == "" || v.Source == "default" {
			value = v.Default
		}
		out = append(out, []string{v.Key, value, v.Source})
	}
	return out
}

func settingsTable(values []config.Value) [][]string {
	out := [][]string{{"KEY", "VARIABLE", "DEFAULT", "WHAT IT IS", "MAY BE"}}
	for _, v := range values {
		out = append(out, []string{v.Key, v.Env, v.Default, v.Help, v.Allowed})
	}
	return out
}
