// Package jobs has the verbs of holdfast that start programs, and that show the state of running jobs.
package jobs

import (
	"embed"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/spf13/cobra"
)

//go:embed help
var texts embed.FS

var newVerb = verb.New(texts)

// Commands returns the verbs.
func Commands() []*cobra.Command {
	guard, startRank := runParts()
	return []*cobra.Command{newRun(), guard, startRank, newNode(), newRequest(), newStatus(), newReport()}
}
