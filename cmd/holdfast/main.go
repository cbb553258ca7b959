// Command holdfast looks after the checkpoints of a job: it lists, verifies and prunes them, asks a running job for
// one, and measures their cost.
//
// Results go to standard output, everything else to standard error. Reading
// verbs never write.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/devices"
	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/epochs"
	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/images"
	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/jobs"
	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() { cli.Main(Run) }

// Run runs holdfast with arguments and returns its exit code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, newRoot(), forBench(args), stdout, stderr)
}

func newRoot() *cobra.Command {
	root := newVerb("holdfast", "look after the checkpoints of MPI programs", nil, nil)
	root.Version = version()
	addGroup(root, "Programs", jobs.Commands()...)
	addGroup(root, "Checkpoints", epochs.Commands()...)
	addGroup(root, "GPUs and OpenCL", append(devices.Commands(), images.Commands()...)...)
	rank, node := doctorParts()
	addGroup(root, "This machine", newDoctor(), rank, node, newConfig(), newBench(), newMan())
	root.SetHelpCommandGroupID("This machine")
	root.SetCompletionCommandGroupID("This machine")
	root.SetFlagErrorFunc(removedFlag)
	return root
}

func addGroup(root *cobra.Command, heading string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: heading, Title: heading + ":"})
	for _, c := range commands {
		c.GroupID = heading
	}
	root.AddCommand(commands...)
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

var newVerb = verb.New(texts)

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
