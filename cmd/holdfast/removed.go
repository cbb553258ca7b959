package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// removedFlags has the flags of earlier releases by verb and name, each with its replacement.
var removedFlags = map[string]string{
	"doctor --bytes":   "divide what a node writes in an epoch by the rate that doctor measures",
	"doctor --ranks":   "doctor no longer estimates how long an epoch takes",
	"export --box":     "export the whole array; numpy.load(FILE, mmap_mode=\"r\") reads a part of it",
	"prune --every":    "use --keep-every",
	"run --backoff":    "the pause before a restart without progress begins with 1 s",
	"run --grace":      "set HOLDFAST_GRACE",
	"show --array":     "show --json lists the ranks that own parts of an array",
	"run --keep-every": "set HOLDFAST_KEEP_EVERY",
}

// removedFlag names the replacement of a flag that err does not know. A flag of run behind the launcher is the
// launcher's.
func removedFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	if before := cmd.Flags().Args(); cmd.Name() == "run" && len(before) > 0 {
		return fmt.Errorf("%w: write -- before %s: holdfast run [flags] -- %s [arguments]", err, before[0], before[0])
	}
	name := unknown.GetSpecifiedName()
	if instead := removedFlags[cmd.Name()+" --"+name]; instead != "" {
		return fmt.Errorf("--%s: this flag is gone: %s", name, instead)
	}
	if gone := config.Removed("gpud." + strings.ReplaceAll(name, "-", "_")); gone != "" {
		return fmt.Errorf("--%s: %s", name, gone)
	}
	return err
}
