package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
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
// nothing where global has it, and nothing is left of the way it went.
func TestSalvage(t *testing.T) {
	t.Setenv("SLURM_JOB_ID", "")
	t.Setenv("HOLDFAST_CONTROL_INTERFACE", "127.0.0.1")
	local, global := t.TempDir(), t.TempDir()
	localEpoch(t, local)
	commands(t, map[string]string{"srun": `while [ "${1%holdfast.test}" = "$1" ]; do shift; done
SLURMD_NODENAME=n2 exec "$@"`})
	errs := &lockedBuffer{}
	r := &runner{job: &slurm.Job{ID: "5"}, stderr: errs, nodes: []string{"n1", "n2"},
		dead: map[string]string{"n1": "is dead"}, at: map[string]storage.Epoch{storage.LevelLocal: 1}}
	r.opt.Local, r.opt.Global = local, global
	r.salvage(t.Context())
	if !strings.Contains(errs.String(), "epoch 1 is now committed at global") {
		t.Fatalf("got\n%s", errs)
	}
	v, err := storage.OpenView(nil, global)
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
	for what, change := range map[string]func(r *runner){
		"":                              func(r *runner) { r.at[storage.LevelGlobal] = 1 },
		"there is no time to copy it":   func(r *runner) { r.deadline = time.Now().Add(time.Second) },
		"could not be copied to global": func(r *runner) { r.opt.Local = t.TempDir() },
	} {
		errs := &lockedBuffer{}
		r := &runner{job: &slurm.Job{ID: "5"}, stderr: errs, nodes: []string{"n2"},
			at: map[string]storage.Epoch{storage.LevelLocal: 1}}
		r.opt.Local, r.opt.Global = local, t.TempDir()
		change(r)
		r.salvage(t.Context())
		if got := errs.String(); !strings.Contains(got, what) || what == "" && got != "" {
			t.Errorf("want %q, got\n%s", what, got)
		}
		if rest, _ := os.ReadDir(r.opt.Global); len(rest) > 0 {
			t.Errorf("%s: it left %v", what, rest)
		}
	}
}
