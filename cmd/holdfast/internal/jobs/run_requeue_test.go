package jobs

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// TestStartFailsLater: a launcher that cannot be started any more, on a node out of memory for
// one, does not cost the requeue.
func TestStartFailsLater(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "requeues")
	commands(t, map[string]string{
		"scontrol": `case "$1 $2" in requeue*) echo >> ` + file +
			`;; *config) echo "KillWait = 30 sec"; echo "SlurmdPort = 6818";; ` +
			`*) echo "JobState=RUNNING Restarts=0 Requeue=1 NodeList=n[1-2]";; esac`,
		"sinfo": `for n in n1 n2; do echo "$n|allocated|none"; done`,
		"srun":  notThere + "exit 0",
	})
	launcher := filepath.Join(dir, "srun")
	if err := os.WriteFile(launcher, []byte("#!/bin/sh\nrm $0\nkill -9 $$\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_JOB_ID", "5")
	t.Setenv("SLURM_JOB_NODELIST", "n[1-2]")
	t.Setenv("HOLDFAST_GLOBAL", dir)
	errs := &testbuf.Buffer{}
	code := Run(t.Context(), []string{"run", "--requeue", "--interface=127.0.0.1", "--", launcher, "-n2", "./app"},
		io.Discard, errs)
	if b, _ := os.ReadFile(file); code != cli.Bad || len(b) != 1 ||
		!strings.Contains(errs.String(), "giving up: start "+launcher) {
		t.Errorf("got code %d and %d requeues\n%s", code, len(b), errs)
	}
}
