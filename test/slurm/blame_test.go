package slurm

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/slurm"
)

// slurmLog returns what slurmctld has logged.
func (b *bed) slurmLog(t *testing.T) string {
	t.Helper()
	text, _ := b.Try(t, "bash", "-c", "cat $TESTBED_STATE/log/slurmctld.log") // without it less is known
	return text
}

var (
	computed = regexp.MustCompile(`holdfast run: .* computing `)
	setDown  = regexp.MustCompile(`(?m)^.*error: Nodes (\S+) not responding, setting DOWN.*`)
	timedOut = regexp.MustCompile(`(?m)^(?:srun|slurmstepd\S*): error: .*[Tt]imed out.*`)
)

// blame quotes what shows that a trial failed by the machine, or by Slurm on it, and not by Holdfast; "" if nothing
// does. A job whose time ran out when it had begun to take checkpoints does not count: it may have hung.
func blame(log, slurmctld string, died []string) string {
	for _, m := range setDown.FindAllStringSubmatch(slurmctld, -1) {
		nodes, err := slurm.ExpandNodes(m[1])
		if err == nil && slices.ContainsFunc(nodes, func(n string) bool { return !slices.Contains(died, n) }) {
			return "Slurm took a node for dead that lived: " + m[0]
		}
	}
	if line := timedOut.FindString(log); line != "" {
		return "a step of Slurm's timed out: " + line
	}
	line := timeUp.FindString(log)
	switch {
	case line == "":
		return ""
	case !computed.MatchString(log):
		return "the time of the job ran out before its first Open: " + line
	case !committed.MatchString(log):
		return "the time of the job ran out before its first checkpoint: " + line
	}
	return ""
}

// TestBlame has what Slurm 22.05 writes.
func TestBlame(t *testing.T) {
	const (
		batch = "slurmstepd-n1: error: *** JOB 1 ON n1 CANCELLED AT 2026-11-24T18:28:57 DUE TO TIME LIMIT ***\n"
		alloc = "salloc: Job 2 has exceeded its time limit and its allocation has been revoked.\n"
		step  = "slurmstepd-n1: error: *** STEP 2.0 ON n1 CANCELLED AT 2026-11-24T18:28:57 DUE TO TIME LIMIT ***\n"
		began = "holdfast run: 18:27:58.101 computing on 4 ranks, 1.12 s after the start: a first start\n"
		epoch = `msg="holdfast: committed" rank=0 epoch=1 level=local bytes=3200489` + "\n"
		down  = "[2026-11-24T18:28:57.124] error: Nodes n[2-3] not responding, setting DOWN\n"
	)
	for _, c := range []struct {
		log, slurmctld, died string
		machine              bool
	}{
		{"holdfast run: start 1: srun\n" + batch, "", "n2", true},
		{"holdfast run: start 1: srun\n" + alloc, "", "n2", true},
		{began + batch, "", "n2", true},
		{began + epoch + batch, "", "n2", false},
		{step, "", "n2", false},
		{began + epoch, down, "n2", true},
		{began + epoch, down, "n2,n3", false},
		{"srun: error: Unable to create step for job 7: Socket timed out on send/recv operation\n", "", "n2", true},
		{began + "holdfast run: giving up: the program ended with code 137\n", "", "n2", false},
	} {
		if got := blame(c.log, c.slurmctld, strings.Split(c.died, ",")); (got != "") != c.machine {
			t.Errorf("after the death of %s: got %q of\n%s%s", c.died, got, c.log, c.slurmctld)
		}
	}
}
