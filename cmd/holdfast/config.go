package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/spf13/cobra"
)

func newConfig() *cobra.Command {
	var all, example bool
	cmd := newVerb("config [KEY...]", "print the settings in force and where they come from", cobra.ArbitraryArgs,
		func(cmd *cobra.Command, names []string) error {
			c := coordinated.ReadConfig("")
			values, others, err := explain(c, names)
			if err != nil {
				return err
			}
			text := ""
			switch {
			case example:
				text = config.Example(c.Values())
			case all:
				text = config.ExplainAll(c.Values())
			case len(names) == 0:
				values, text = c.Values(), config.InForce(c.Values())
			}
			for _, v := range values {
				if len(names) > 0 {
					text += v.Explain()
				}
			}
			for _, v := range others {
				text += v.Explain()
			}
			if cli.AsJSON(cmd) {
				err = cli.JSONLines(cmd.OutOrStdout(), values)
			} else {
				_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			}
			if err != nil || example || len(names) > 0 {
				return err
			}
			for _, stray := range c.Stray(os.Environ()) {
				fmt.Fprintln(cmd.ErrOrStderr(), "holdfast:", stray)
			}
			if bad := c.Check(); bad != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "holdfast:", bad)
				return cli.ErrBad
			}
			return nil
		})
	f := cmd.Flags()
	cli.JSON(f, "write one JSON object per key", config.Value{})
	f.BoolVar(&all, "all", false, "explain every key")
	f.BoolVar(&example, "example", false, "write a holdfast.yaml in which every key is a comment")
	cmd.MarkFlagsMutuallyExclusive("json", "all", "example")
	return cmd
}

// explain has the values of keys, which may be named by their variables, and describes names that are no keys.
func explain(c *coordinated.Config, names []string) (keys []config.Value, others []config.Variable, err error) {
	all := c.Values()
	for _, name := range names {
		i := slices.IndexFunc(all, func(v config.Value) bool { return v.Key == name || v.Env == name })
		j := slices.IndexFunc(config.Variables, func(v config.Variable) bool { return v.Name == name })
		switch {
		case i >= 0:
			keys = append(keys, all[i])
		case j >= 0:
			others = append(others, config.Variables[j])
		default:
			name = strings.ToLower(strings.TrimPrefix(name, "HOLDFAST_"))
			err = errors.Join(err, c.Set(name, "", "the command line")) // none: this names the one that was meant
		}
	}
	return keys, others, err
}
