package slurm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
)

// Client runs Slurm's commands. Its zero value is ready to use, with the defaults. Errors of its calls match ErrNoSlurm
// if Slurm is not installed, and ErrTimeout if the command took too long.
type Client struct {
	// Timeout bounds each command; 0 means 10 s.
	Timeout time.Duration

	// run replaces the execution in tests.
	run func(ctx context.Context, args []string) (stdout, stderr []byte, err error)
}

const defaultTimeout = 10 * time.Second

// CommandError names a failed command, the cause, and the command's own text.
type CommandError struct {
	Args   []string
	Stderr string
	Err    error
}

// Error gives the command line, the cause, and the command's output.
func (e *CommandError) Error() string {
	s := fmt.Sprintf("slurm: %s: %v", strings.Join(e.Args, " "), e.Err)
	if e.Stderr != "" {
		s += ": " + e.Stderr
	}
	return s
}

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.Err }

// ErrNoSlurm is in the error of every command if Slurm is not installed.
var ErrNoSlurm = errors.New("no Slurm commands in PATH")

// ErrTimeout is in the error of a command that did not end within Client.Timeout: as a rule the controller does not
// answer.
var ErrTimeout = errors.New("no answer in time")

// maxOutput bounds the part of a command's output that is kept.
const maxOutput = 64 << 20

func (c *Client) output(ctx context.Context, args ...string) (string, error) {
	timeout := cmp.Or(c.Timeout, defaultTimeout)
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	run := c.run
	if run == nil {
		run = execute
	}
	out, stderr, err := run(bounded, args)
	if err == nil {
		return string(out), nil
	}
	switch {
	case errors.Is(err, exec.ErrNotFound):
		err = ErrNoSlurm
	case bounded.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("%w (%v)", ErrTimeout, timeout)
	}
	return "", &CommandError{Args: args, Stderr: oneLine(stderr), Err: err}
}

// interruptions is how often ask runs a command again: Slurm sends a few signals at the end of a
// step, and users some.
const interruptions = 8

// ask is output for commands that change nothing. Slurm sends signals to all processes of a
// step, and so to the commands that its ranks run: one that a signal has ended is run again.
func (c *Client) ask(ctx context.Context, args ...string) (out string, err error) {
	for range 1 + interruptions {
		if out, err = c.output(ctx, args...); !interrupted(err) || ctx.Err() != nil {
			break
		}
	}
	return out, err
}

// interrupted reports whether a command was ended by somebody's signal.
func interrupted(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && !exit.Exited() && !errors.Is(err, ErrTimeout)
}

func execute(ctx context.Context, args []string) (stdout, stderr []byte, err error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &child.Capped{To: &out, Left: maxOutput}, &child.Capped{To: &errs, Left: 64 << 10}
	cmd.Env = Environ(os.Environ())
	cmd.WaitDelay = time.Second // a child of the command may hold the pipe
	err = cmd.Run()
	return out.Bytes(), errs.Bytes(), err
}

func oneLine(b []byte) string {
	lines := strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	const most = 1000
	s := strings.Join(lines, "; ")
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}

// The variables of Slurm that its commands need here: the cluster, the job, and the proof of the user. All others that
// begin so change a command's question or the form of the answer, as options do: SLURM_TIME_FORMAT, SINFO_PARTITION,
// SCANCEL_INTERACTIVE and many more. They are the user's own, for the user's commands.
var needed = []string{"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_JOB_ID", "SLURM_JOBID"}

// steering are the beginnings of the names of variables that Slurm's commands obey.
var steering = []string{"SLURM_", "SRUN_", "SQUEUE_", "SINFO_", "SCONTROL_", "SCANCEL_", "SACCT_"}

// Environ returns the environment of a command of Slurm whose output a program reads: env without the user's settings
// for their own commands, times as in ISO 8601, messages in English.
func Environ(env []string) []string {
	var out []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		steers := slices.ContainsFunc(steering, func(p string) bool { return strings.HasPrefix(name, p) })
		if steers && !slices.Contains(needed, name) || name == "LANG" || name == "LANGUAGE" ||
			strings.HasPrefix(name, "LC_") {
			continue
		}
		out = append(out, v)
	}
	return append(out, "LC_ALL=C", "SLURM_TIME_FORMAT=standard")
}
