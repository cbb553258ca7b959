// Package devices has the verbs of holdfast that serve devices to programs, that move programs between them, and that
// have programs give them up for a time.
package devices

import (
	"embed"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
	"github.com/spf13/cobra"
)

//go:embed help
var texts embed.FS

var newVerb = verb.New(texts)

// Commands returns the verbs.
func Commands() []*cobra.Command {
	worker := verb.Hidden(workerVerb, "serve one program for holdfast gpud, which starts it", cobra.NoArgs,
		func(*cobra.Command, []string) error { return gpud.RunWorker() })
	return []*cobra.Command{newGpud(), worker, newMigrate(), newPause(), newResume(), newBalance(), newOpenCL()}
}

func keyFile(cmd *cobra.Command) (string, error) {
	c, err := verb.Settings(cmd)
	if err != nil {
		return "", err
	}
	if file := verb.Value(c, "gpud.key"); file != "" {
		return file, nil
	}
	return gpustate.DefaultKeyFile()
}
