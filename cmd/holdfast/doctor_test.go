package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/doctor"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// TestDoctor examines this machine: every MPI that is installed works, and
// signals reach its ranks.
func TestDoctor(t *testing.T) {
	if testing.Short() {
		t.Skip("starts MPI jobs")
	}
	t.Setenv("HOLDFAST_LOCAL", t.TempDir())
	t.Setenv("HOLDFAST_GLOBAL", "")
	t.Setenv("HOLDFAST_DEVICE", "")
	t.Setenv("SLURM_JOB_ID", "")
	code, out, errs := run(t, "doctor", "--json")
	var list []doctor.Finding
	byCheck := map[string]doctor.Finding{}
	for l := range strings.Lines(out) {
		var f doctor.Finding
		if err := json.Unmarshal([]byte(l), &f); err != nil {
			t.Fatalf("%v in %q (%s)", err, l, errs)
		}
		list = append(list, f)
		byCheck[f.Check] = f
	}
	for _, check := range []string{"GPU", "controller"} {
		if f := byCheck[check]; f.State == doctor.Warning || f.State == doctor.Failed {
			t.Errorf("nobody has asked for it: %+v", f)
		}
	}
	if !strings.Contains(errs, "looking at MPI\n") {
		t.Errorf("nothing says what is looked at: %q", errs)
	}
	want := map[doctor.State]int{doctor.OK: cli.Good, doctor.Warning: cli.Bad,
		doctor.Failed: cli.NoLook}[doctor.Worst(list)]
	if code != want {
		t.Errorf("exit code %d, want %d for %s", code, want, doctor.Worst(list))
	}
	for _, l := range mpirun.Launchers() {
		if l.Available() != nil {
			continue
		}
		for _, check := range []string{l.Title, l.Title + ": signals"} {
			if f := byCheck[check]; f.State != doctor.OK {
				t.Errorf("%s: %+v", check, f)
			}
		}
	}
	if f := byCheck["local"]; f.State != doctor.OK {
		t.Errorf("local: %+v", f)
	}
}
