package verb

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/spf13/cobra"
)

// Dirs returns the directories that a command is given, otherwise those that the configuration in force gives a job,
// that of all nodes first: a user in the job's working directory need not name them. That of a node is left out where
// no job has used it.
func Dirs(cmd *cobra.Command, dirs []string) ([]string, error) {
	if len(dirs) > 0 {
		return dirs, nil
	}
	o := coordinated.FromEnv()
	if o.Global != "" {
		dirs = append(dirs, o.Global)
	}
	_, err := os.Stat(filepath.Join(o.Local, "holdfast.job"))
	if o.Local != "" && (err == nil || len(dirs) == 0) {
		dirs = append(dirs, o.Local)
	}
	switch {
	case len(dirs) > 0:
		return dirs, nil
	case o.Off() != "":
		return nil, fmt.Errorf("%s: there are no checkpoints to look at, since programs run without them here: %s; "+
			"give DIR for those of another run", cmd.CommandPath(), o.Off())
	}
	return nil, fmt.Errorf("%s needs a directory: give DIR, or set HOLDFAST_GLOBAL or HOLDFAST_LOCAL; usage: %s",
		cmd.CommandPath(), cmd.UseLine())
}

// Dir is Dirs for a command that takes one.
func Dir(cmd *cobra.Command, dirs []string) (string, error) {
	dirs, err := Dirs(cmd, dirs)
	if err != nil {
		return "", err
	}
	return dirs[0], nil
}
