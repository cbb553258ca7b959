// Command holdfast looks after the checkpoints of a job: it lists, verifies and
// prunes them, asks a running job for one, and measures what they cost.
//
// Results go to standard output, everything else to standard error. Reading
// verbs never write.
package main

import (
	"context"
	"embed"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/devices"
	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/epochs"
	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/images"
	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/jobs"
	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/spf13/cobra"
)

func main() { cli.Main(Run) }

const exitCodeDoc = `Exit codes: 0 all is well; 1 something is corrupt or missing; 2 nothing could be
read (bad arguments, not a checkpoint directory, I/O error).`

// Run runs holdfast with arguments and returns its exit code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, newRoot(), forBench(args), stdout, stderr)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "look after the checkpoints of MPI programs",
		Long: "holdfast looks after the checkpoints of MPI programs, with and without GPUs. It starts\n" +
			"programs and restarts them when nodes die, asks running jobs for checkpoints, lists,\n" +
			"checks and removes them, and measures what they cost.\n\n" +
			"Where ls, show, verify, keep, export, request, status or report is given no directory,\n" +
			"it takes the job's: HOLDFAST_GLOBAL and HOLDFAST_LOCAL, or those of holdfast.yaml.\n\n" + exitCodeDoc,
		Version: version(),
	}
	root.AddCommand(epochs.Commands()...)
	root.AddCommand(jobs.Commands()...)
	root.AddCommand(devices.Commands()...)
	root.AddCommand(images.Commands()...)
	root.AddCommand(newBench(), newConfig(), newDoctor(), newDoctorRank(), newDoctorNode(), newMan())
	root.SetFlagErrorFunc(removedFlag)
	return root
}

// release is the version of lib/holdfast.h.
const release = "0.2.0"

// version returns the release, and the commit and compiler of the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v = s.Value
		}
	}
	return fmt.Sprintf("%s (%s, %s)", release, v, info.GoVersion)
}

//go:embed help
var texts embed.FS

var help = verb.Help(texts)
