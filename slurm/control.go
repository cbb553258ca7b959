package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Temporary reports whether the same call may succeed later: the controller or munge did not answer or was busy, or
// this machine could not run the command just now.
func Temporary(err error) bool {
	if errors.Is(err, ErrTimeout) {
		return true
	}
	var failed *CommandError
	if !errors.As(err, &failed) {
		return false
	}
	if interrupted(err) { // for memory, as a rule, or by a signal to the step
		return true
	}
	if slices.ContainsFunc(scarce, func(e error) bool { return errors.Is(failed.Err, e) }) {
		return true
	}
	return slices.ContainsFunc(passing, func(s string) bool { return strings.Contains(failed.Stderr, s) })
}

// passing are words of Slurm's messages about passing failures.
var passing = []string{"contact slurm controller", "timed out", "imeout", "Connection refused", "Connection reset",
	"No route to host",
	"Network is unreachable", "Zero Bytes", "ommunication", "ry again", "Transport endpoint", "error on socket",
	"in standby mode", "uthentication", "Munge ", "temporarily"}

// scarce are errors of a machine that cannot start one more process at the moment.
var scarce = []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE}

// Unknown reports whether a command failed because Slurm knows no such job any more.
func Unknown(err error) bool {
	var failed *CommandError
	return errors.As(err, &failed) && strings.Contains(failed.Stderr, "Invalid job id")
}

// Requeue ends a job and puts it back into the queue under the same number. restarts is the number of earlier requeues
// when the job started. The caller, if it runs in the job, is ended by it. An error that is not Temporary names the
// remedy.
func (c *Client) Requeue(ctx context.Context, id string, restarts int) error {
	_, err := c.output(ctx, "scontrol", "requeue", id)
	if interrupted(err) {
		// Slurm ends the processes of a job that it requeues, the command among them. It also
		// ends those of one whose time is over: only the count shows whether it was requeued.
		if j, serr := c.ShowJob(ctx, id); serr == nil && j.Restarts > restarts {
			return nil
		}
	}
	switch {
	case err == nil:
		return nil
	case Temporary(err):
		return fmt.Errorf("requeue job %s: %w", id, err)
	}
	why := ""
	if strings.Contains(err.Error(), "presently disabled") {
		why = "it was submitted with --no-requeue, or the site does not requeue; "
	}
	return fmt.Errorf("requeue job %s: %w; %ssubmit the script again: it continues from the newest checkpoint", id, err,
		why)
}

// Signal sends a signal, such as "USR1", to the tasks of a job or of a step, "JOB.STEP" (scancel --signal).
func (c *Client) Signal(ctx context.Context, id, signal string) error {
	_, err := c.output(ctx, "scancel", "--signal="+signal, id)
	return err
}

// Probe runs /bin/true on a node, as a step of this job: the node is fit for use if that succeeds. Give ctx a time
// limit; a dead node is noticed after 6 s.
func (c *Client) Probe(ctx context.Context, node string) error {
	return c.RunOn(ctx, node, "/bin/true")
}

// RunOn runs a command on a node, as a step of this job with nothing in its environment (srun --overlap).
// Client.Timeout bounds the command too.
func (c *Client) RunOn(ctx context.Context, node string, command ...string) error {
	args := []string{"srun", "--overlap", "--mpi=none", "--export=NONE", "-Q", "-N1", "-n1", "-w", node}
	_, err := c.output(ctx, append(args, command...)...)
	return err
}

// RunOnAll runs a command once on each of some nodes, as one step of this job; see RunOn. It fails if the command fails
// on any node.
func (c *Client) RunOnAll(ctx context.Context, nodes []string, command ...string) error {
	_, err := c.OutputOfAll(ctx, nodes, command...)
	return err
}

// OutputOfAll runs a command as RunOnAll does, and returns its standard output of all nodes, line by line in no order.
func (c *Client) OutputOfAll(ctx context.Context, nodes []string, command ...string) (string, error) {
	n := strconv.Itoa(len(nodes))
	args := []string{"srun", "--overlap", "--mpi=none", "--export=NONE", "-Q", "-K0", "-N" + n, "-n" + n,
		"--ntasks-per-node=1", "-w", FoldNodes(nodes)}
	return c.output(ctx, append(args, command...)...)
}

// NodeAddrs returns the addresses that Slurm uses for nodes. The key is the name of the node.
func (c *Client) NodeAddrs(ctx context.Context, nodes []string) (map[string]string, error) {
	out, err := c.ask(ctx, "scontrol", "-o", "show", "node", FoldNodes(nodes))
	if err != nil {
		return nil, err
	}
	addrs := map[string]string{}
	for line := range strings.Lines(out) {
		if f := fields(line); f["NodeName"] != "" && f["NodeAddr"] != "" {
			addrs[f["NodeName"]] = f["NodeAddr"]
		}
	}
	return addrs, nil
}
