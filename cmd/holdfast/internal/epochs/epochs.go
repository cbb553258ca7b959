// Package epochs has the verbs of holdfast that look after the epochs in checkpoint directories. Reading verbs never
// write.
package epochs

import (
	"embed"
	"strconv"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/spf13/cobra"
)

//go:embed help
var texts embed.FS

var newVerb = verb.New(texts)

// Commands returns the verbs. The file system of their contexts trusts the user.
func Commands() []*cobra.Command {
	list := []*cobra.Command{newLs(), newShow(), newVerify(), newRepair(), newPrune(), newKeep(), newFlush(), newCopy(),
		newExport()}
	for _, c := range list {
		c.PreRun = func(cmd *cobra.Command, _ []string) {
			allow, _ := strconv.ParseBool(verb.Value(coordinated.ReadConfig(""), "allow_foreign"))
			cmd.SetContext(vfs.With(cmd.Context(), vfs.OS{AllowForeign: allow}))
		}
	}
	return list
}
