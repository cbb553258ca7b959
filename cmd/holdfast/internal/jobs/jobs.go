// Package jobs has the verbs of holdfast that start programs, and that ask and show what running jobs do.
package jobs

import (
	"embed"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/spf13/cobra"
)

//go:embed help
var texts embed.FS

var help = verb.Help(texts)

// Commands are the verbs.
func Commands() []*cobra.Command {
	return []*cobra.Command{newRun(), newGuard(), newStartRank(), newNode(), newRequest(), newStatus(), newReport()}
}
