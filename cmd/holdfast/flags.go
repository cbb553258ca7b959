package main

import (
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// keyOf is the annotation of a flag that sets a key of the configuration.
const keyOf = "holdfast_key"

// allKeys describes the keys of the configuration.
var allKeys = sync.OnceValue(func() []config.Value { return coordinated.ReadConfig("").Values() })

// value is that of a key as it was set, empty for the default. It does not need the other keys to be right.
func value(c *coordinated.Config, key string) string {
	for _, v := range c.Values() {
		if v.Key == key && v.Error == "" {
			return v.Value
		}
	}
	return ""
}

// keyFlag gives a command a flag for a key of the configuration, with the help and the default of the key.
func keyFlag(cmd *cobra.Command, name, key string) {
	for _, v := range allKeys() {
		if v.Key == key {
			cmd.Flags().String(name, "", fmt.Sprintf("%s (setting %s; default: %s)", v.Help, key, v.Default))
			_ = cmd.Flags().SetAnnotation(name, keyOf, []string{key}) // the flag exists
		}
	}
}

// settings reads the configuration for a command, whose flags for keys win.
func settings(cmd *cobra.Command) (*coordinated.Config, error) {
	c := coordinated.ReadConfig("")
	cmd.Flags().Visit(func(f *pflag.Flag) {
		for _, key := range f.Annotations[keyOf] {
			_ = c.Set(key, f.Value.String(), "--"+f.Name) // the key exists; Err has what is wrong with the value
		}
	})
	return c, c.Err()
}

// serverSettings reads those of servers of devices.
func serverSettings(cmd *cobra.Command) (s config.Server, err error) {
	c, err := settings(cmd)
	if err != nil {
		return s, err
	}
	s.Apply(c.Values())
	if s.Key == "" {
		s.Key, err = gpustate.DefaultKeyFile()
	}
	return s, err
}
