package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// plain says of a flag's value that cannot be read which values it takes, without words of Go.
func plain(err error) error {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	want := map[string]string{
		"int": "a whole number", "int64": "a whole number", "uint64": "a whole number", "float64": "a number",
		"duration": "a time with its unit, such as 30s, 5m or 2h", "bool": "true or false",
		"intSlice": "whole numbers with commas between them", "float64Slice": "numbers with commas between them",
	}[bad.GetFlag().Value.Type()]
	if want == "" {
		return fmt.Errorf("--%s: %w", bad.GetFlag().Name, errors.Unwrap(bad))
	}
	return fmt.Errorf("--%s %s: want %s", bad.GetFlag().Name, bad.GetValue(), want)
}

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
// 0 where a command needs some: waits and pauses, epochs to keep, and the sizes of a suite.
func checkNumbers(cmd *cobra.Command) error {
	var errs []error
	suite := cmd.HasParent() && cmd.Parent().Name() == "bench"
	cmd.Flags().Visit(func(f *pflag.Flag) {
		some := suite && f.Name != "windows" || f.Name == "jobs" || f.Name == "keep"
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

// JSONFlag is the value of --json. It holds a value of each type that the command then writes.
type JSONFlag struct {
	pflag.Value
	Writes []any
}

// JSON adds --json to a command that then writes values of these types, or a [Failure], one on each line. docs/schemas
// describes them.
func JSON(f *pflag.FlagSet, usage string, writes ...any) {
	f.Bool("json", false, usage)
	flag := f.Lookup("json")
	flag.Value = &JSONFlag{flag.Value, writes}
}

// AsJSON reports whether a command was given --json.
func AsJSON(cmd *cobra.Command) bool {
	on, _ := cmd.Flags().GetBool("json")
	return on
}
