// Package cli has the common parts of this module's commands: exit codes, errors in one form, flags that are checked,
// tables and files, bars on a terminal, and manual pages.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Exit codes. Scripts rely on them.
const (
	Good   = 0 // looked, and all is well
	Bad    = 1 // looked, and something is corrupt, missing or unmet
	NoLook = 2 // could not look: bad arguments, no such directory, I/O error
)

// ErrBad ends a verb with Bad after it has reported the faults on stdout.
var ErrBad = errors.New("found something bad")

// ErrFailed ends a verb with NoLook after it has reported the failure on stdout.
var ErrFailed = errors.New("failed")

// Code is an error that says nothing but the code to end with.
type Code int

func (c Code) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// sameSignal is how long a signal may come twice and mean one: timeout(1) and scancel send it to the process and to its
// group.
const sameSignal = 100 * time.Millisecond

// Main is the main function of a program, which ends with the exit code of run. SIGINT and SIGTERM end its context.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		time.Sleep(sameSignal)
		stop() // a second signal ends the process if the first could not
	})
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run runs a command with arguments and returns its exit code.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		return errors.Join(checkNumbers(cmd), checkRequired(cmd))
	}
	told := root.FlagErrorFunc()
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", plain(told(cmd, err)), cmd.CommandPath())
	})
	args = slices.Clone(args)
	for i := range min(2, len(args)) { // as the applications do; later ones may be a program's own
		if args[i] == "-help" {
			args[i] = "--help"
		}
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	setHelp(root) // when the output is set: the completion command keeps the one that it finds
	checkArgs(root)
	cmd, err := root.ExecuteContextC(ctx)
	var code Code
	switch {
	case errors.As(err, &code):
		return int(code)
	case err == nil:
		return Good
	case errors.Is(err, ErrBad):
		return Bad
	case errors.Is(err, ErrFailed):
		return NoLook
	case ctx.Err() != nil:
		// A failure then comes from the interruption.
		err = errors.New("interrupted")
	}
	if AsJSON(cmd) {
		_ = JSONLines(stdout, []Failure{{err.Error()}})
	}
	text := err.Error()
	if !strings.HasPrefix(text, "holdfast ") { // which names the command already
		text = "holdfast: " + text
	}
	fmt.Fprintln(stderr, text)
	return NoLook
}

// Said returns an error's text for people: a context that a signal has ended is an interruption.
func Said(err error) string {
	return strings.ReplaceAll(err.Error(), context.Canceled.Error(), "interrupted")
}

// Failure is the last line of a command with --json that could not look.
type Failure struct {
	Error string `json:"error"` // error message
}

// JSONLines writes one object per line.
func JSONLines[T any](w io.Writer, list []T) error {
	enc := json.NewEncoder(w)
	for _, v := range list {
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
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
				hint = " (do you mean " + strings.Join(near, " or ") + "?)"
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
			return fmt.Errorf("%s does not take %d %s; usage: %s", c.CommandPath(), len(args),
				map[bool]string{true: "argument", false: "arguments"}[len(args) == 1], c.UseLine())
		}
	}
}
