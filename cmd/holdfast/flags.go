package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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

// mayBeZero are the numbers of the suites of bench that need not be more than 0.
var mayBeZero = []string{"windows", "start", "blocked"}

// checkRequired names the flags that a command cannot do without, and its usage.
func checkRequired(cmd *cobra.Command) error {
	var missing []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, needed := f.Annotations[cobra.BashCompOneRequiredFlag]; needed && !f.Changed {
			missing = append(missing, "--"+f.Name)
		}
	})
	if missing == nil {
		return nil
	}
	return fmt.Errorf("%s needs %s; usage: %s", cmd.CommandPath(), strings.Join(missing, " and "), cmd.UseLine())
}

// checkNumbers refuses counts and times below 0, which mean nothing to any command, and
// 0 where a command needs some: waits and pauses, and what a suite measures.
func checkNumbers(cmd *cobra.Command) error {
	var errs []error
	suite := cmd.HasParent() && cmd.Parent().Name() == "bench"
	cmd.Flags().Visit(func(f *pflag.Flag) {
		some := suite && !slices.Contains(mayBeZero, f.Name) || f.Name == "jobs"
		switch f.Value.Type() {
		case "int", "int64", "float64":
		case "duration":
			some = some || (f.Name == "every" || f.Name == "timeout") && f.DefValue != "0s"
		case "intSlice", "float64Slice":
			if !some {
				return
			}
		default:
			return
		}
		want := map[bool]string{true: "more than 0", false: "0 or more"}[some]
		for text := range strings.SplitSeq(strings.Trim(f.Value.String(), "[]"), ",") {
			v, err := strconv.ParseFloat(text, 64)
			if d, derr := time.ParseDuration(text); err != nil && derr == nil {
				v = d.Seconds()
			}
			if !(v >= 0) || some && v == 0 {
				errs = append(errs,
					fmt.Errorf("--%s %s: want %s; see %s --help", f.Name, text, want, cmd.CommandPath()))
			}
		}
	})
	return errors.Join(errs...)
}
