package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes. Scripts rely on them.
const (
	exitGood    = 0 // looked, and all is well
	exitBad     = 1 // looked, and something is corrupt, missing or unmet
	exitNoLook  = 2 // could not look: bad arguments, no such directory, I/O error
	exitCodeDoc = `Exit codes: 0 all is well; 1 something is corrupt or missing; 2 nothing could be
read (bad arguments, not a checkpoint directory, I/O error).`
)

// errBad ends a verb with exitBad after it has said on stdout what is bad.
var errBad = errors.New("found something bad")

// errFailed ends a verb with exitNoLook after it has said on stdout what failed.
var errFailed = errors.New("failed")

// Run runs holdfast with arguments and returns its exit code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(longHelp(args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.InitDefaultCompletionCmd() // it writes to where root did when it was made
	checkArgs(root)
	cmd, err := root.ExecuteContextC(ctx)
	var code exitCode
	switch {
	case errors.As(err, &code):
		return int(code)
	case err == nil:
		return exitGood
	case errors.Is(err, errBad):
		return exitBad
	case errors.Is(err, errFailed):
		return exitNoLook
	case ctx.Err() != nil:
		// What fails then is what was interrupted.
		err = errors.New("interrupted")
	}
	if f := cmd.Flags().Lookup("json"); f != nil && f.Changed && f.Value.String() == "true" {
		_ = jsonLines(stdout, []jsonError{{err.Error()}})
	}
	fmt.Fprintln(stderr, "holdfast:", err)
	return exitNoLook
}

// jsonError is the last line of a verb that failed and was to write JSON.
type jsonError struct {
	Error string `json:"error"`
}

// longHelp takes -help for --help, as the applications do, at the start of the line: what
// comes later may be a program's own.
func longHelp(args []string) []string {
	out := slices.Clone(args)
	for i := range min(2, len(out)) {
		if out[i] == "-help" {
			out[i] = "--help"
		}
	}
	return out
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "look after the checkpoints of MPI programs on GPUs",
		Long: "holdfast looks after the checkpoints of MPI programs on GPUs. It starts programs and\n" +
			"restarts them when nodes die, asks running jobs for checkpoints, lists, checks and\n" +
			"removes them, and measures what they cost.\n\n" +
			"Where ls, show, verify, keep, export, request, status or report is given no directory,\n" +
			"it takes the job's: HOLDFAST_GLOBAL and HOLDFAST_LOCAL, or those of holdfast.yaml.\n\n" + exitCodeDoc,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(checkNumbers(cmd), checkRequired(cmd))
		},
	}
	root.AddCommand(newRun(), newLs(), newShow(), newVerify(), newRepair(), newPrune(), newKeep(), newFlush(),
		newCopy(), newExport(), newRequest(), newStatus(),
		newReport(), newBench(), newConfig(), newDoctor(), newDoctorRank(), newDoctorNode(), newMan(), newGuard(),
		newStartRank(), newNode(), newVersion())
	root.AddCommand(newGpud(), newGpudWorker(), newMigrate(), newBalance(), newOpenCL())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) {
			name := unknown.GetSpecifiedName()
			if gone := config.Removed("gpud." + strings.ReplaceAll(name, "-", "_")); gone != "" {
				err = fmt.Errorf("--%s: %s", name, gone)
			}
		}
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	})
	return root
}

// checkArgs lets every command say how it is used when it gets other arguments
// than it takes, and those that only have commands below them refuse a word that
// is none of these.
func checkArgs(c *cobra.Command) {
	for _, sub := range c.Commands() {
		checkArgs(sub)
	}
	if c.HasSubCommands() {
		c.Args = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			c.SuggestionsMinimumDistance = 2
			hint := ""
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				hint = ", do you mean " + strings.Join(near, " or ") + "?"
			}
			return fmt.Errorf("%s has no command %q%s; see %s --help", c.CommandPath(), args[0], hint, c.CommandPath())
		}
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		return
	}
	if takes := c.Args; takes != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if takes(c, args) == nil {
				return nil
			}
			if len(args) == 0 {
				return fmt.Errorf("%s needs an argument; usage: %s", c.CommandPath(), c.UseLine())
			}
			return fmt.Errorf("%s does not take %d argument(s); usage: %s", c.CommandPath(), len(args), c.UseLine())
		}
	}
}

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "say which version this is",
		Long:  "version says which version of Holdfast this is, and with which Go it was built.\n\n" + exitCodeDoc,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return jsonLines(cmd.OutOrStdout(), []map[string]string{{"version": version()}})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "holdfast version %s\n", version())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write a JSON object")
	return cmd
}

// version is what the build knows of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v = s.Value
		}
	}
	return fmt.Sprintf("%s, %s", v, info.GoVersion)
}
