package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// keyHelp is the help of --key of all verbs for servers of devices.
const keyHelp = "file with the servers' key (default: gpud.key of the configuration, " + gpustate.KeyEnv +
	", otherwise holdfast/gpud.key in the configuration directory)"

// moveKeyHelp is the help of --move-key of all verbs that move programs.
const moveKeyHelp = "file with the servers' key for moving programs (default: beside the key, gpud-move.key for " +
	"gpud.key)"

// gpudConfig gives flags that were not set what the configuration has for them:
// gpud.max_clients for --max-clients and so on.
func gpudConfig(cmd *cobra.Command) error {
	c := coordinated.ReadConfig("")
	if err := c.Err(); err != nil {
		return err
	}
	for _, v := range c.Values() {
		name, ours := strings.CutPrefix(v.Key, "gpud.")
		f := cmd.Flags().Lookup(strings.ReplaceAll(name, "_", "-"))
		if !ours || f == nil || f.Changed || v.Value == "" {
			continue
		}
		items := []string{v.Value}
		if _, list := f.Value.(pflag.SliceValue); list {
			items = strings.Split(v.Value, ",")
		}
		for _, item := range items {
			if err := cmd.Flags().Set(f.Name, item); err != nil {
				return fmt.Errorf("configuration: %s: %s: %w", v.Key, v.Source, err)
			}
		}
	}
	key := cmd.Flags().Lookup("key")
	if key.Value.String() == "" {
		file, err := gpustate.DefaultKeyFile()
		if err != nil {
			return err
		}
		if err := key.Value.Set(file); err != nil {
			return err
		}
	}
	if f := cmd.Flags().Lookup("move-key"); f.Value.String() == "" {
		return f.Value.Set(gpud.MoveKeyFile(key.Value.String()))
	}
	return nil
}

// dial is gpud.DialStatus or gpud.DialAdmin.
type dial func(ctx context.Context, addr, keyFile string) (*gpud.Admin, error)

// withServer asks the server at addr for its state and calls do with both.
func withServer(ctx context.Context, dial dial, addr, keyFile string, do func(*gpud.Admin, gpud.Status) error) error {
	a, err := dial(ctx, addr, keyFile)
	if err != nil {
		return err
	}
	defer a.Close()
	st, err := a.Status(ctx)
	if err != nil {
		return err
	}
	return do(a, st)
}
