package jobs

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// localEpoch leaves a checkpoint of a job of one rank in a local directory.
func localEpoch(t *testing.T, dir string) {
	t.Helper()
	opt := coordinated.FromEnv()
	opt.Local, opt.Job = dir, "kept"
	ck, err := coordinated.Open(t.Context(), mpiwrap.Single(), opt)
	if err != nil {
		t.Fatal(err)
	}
	step := 7
	if err := ck.Protect("step", &step); err != nil {
		t.Fatal(err)
	}
	if _, err := ck.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := ck.Request(t.Context()); err != nil {
		t.Fatal(err)
	}
	for ck.Stats().Epochs == nil {
		if err := ck.Point(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := ck.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSalvage: a run that gives up brings what is only on the nodes' disks to global first,
// and nothing is left of the way it went.
func TestSalvage(t *testing.T) {
	t.Setenv("SLURM_JOB_ID", "")
	t.Setenv("HOLDFAST_CONTROL_INTERFACE", "127.0.0.1")
	local := t.TempDir()
	localEpoch(t, local)
	inJob(t, `while [ "${1%jobs.test}" = "$1" ]; do shift; done
[ "$2" = flush ] && export SLURMD_NODENAME=n2
exec "$@"`)
	for name, value := range map[string]string{"HOLDFAST_LOCAL": local, "HOLDFAST_JOB": "kept", "VICTIM": "abort",
		"HOLDFAST_EPOCH": "1", // its global directory is new
		"SLURM_NTASKS":   "1", "SLURM_PROCID": "0"} {
		t.Setenv(name, value)
	}
	errs := &testbuf.Buffer{}
	code := Run(t.Context(), []string{"run", "--interface=127.0.0.1", "--max-restarts=0", "--", "srun", "-n1",
		os.Args[0]}, io.Discard, errs)
	if code != cli.Bad || !strings.Contains(errs.String(), "epoch 1 is now committed at global") {
		t.Fatalf("got code %d\n%s", code, errs)
	}
	global := os.Getenv("HOLDFAST_GLOBAL")
	v, err := checkpoints.Open(context.Background(), global)
	if err != nil {
		t.Fatal(err)
	}
	list, err := v.Epochs(t.Context())
	if err != nil || len(list) != 1 || !list[0].Committed {
		t.Errorf("got %+v, %v", list, err)
	}
	if rest, err := filepath.Glob(filepath.Join(global, "salvage*")); err != nil || len(rest) > 0 {
		t.Errorf("it left %v, %v", rest, err)
	}
}
