package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

// TestDoctorNodes: the nodes of a job that do not see the global directory of the others are
// named, as are those that cannot write and those that share what should be their own; nothing
// is left behind.
func TestDoctorNodes(t *testing.T) {
	for _, c := range []struct {
		name   string
		global []string // directories of n1, n2, n3
		local  []string
		code   int
		says   map[string]string // of a check: what its finding holds
	}{
		{"as it should be", []string{"g", "g", "g"}, []string{"1", "2", "3"}, cli.Good, map[string]string{
			"global": "each of 3 nodes sees", "local": "each of 3 nodes can write"}},
		{"not shared", []string{"g", "g", "own"}, []string{"1", "2", "3"}, cli.NoLook, map[string]string{
			"global": "n1 does not see what n3 wrote; n2 does not see what n3 wrote; n3 does not see what n1, " +
				"n2 wrote"}},
		{"missing", []string{"g", "g", "g"}, []string{"1", "nosuch", "3"}, cli.NoLook,
			map[string]string{"local on n2": "no such file"}},
		{"local is shared", []string{"g", "g", "g"}, []string{"1", "1", "3"}, cli.Bad,
			map[string]string{"local": "it is not each node's own"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := t.TempDir()
			script := `while [ "${1%holdfast.test}" = "$1" ]; do shift; done
`
			for i := range 3 {
				node := filepath.Join(top, fmt.Sprint("n", i+1))
				if err := os.Mkdir(node, 0o700); err != nil {
					t.Fatal(err)
				}
				for link, dir := range map[string]string{"global": c.global[i], "local": c.local[i]} {
					dir = filepath.Join(top, dir)
					if !strings.HasSuffix(dir, "nosuch") {
						if err := os.MkdirAll(dir, 0o700); err != nil {
							t.Fatal(err)
						}
					}
					if err := os.Symlink(dir, filepath.Join(node, link)); err != nil {
						t.Fatal(err)
					}
				}
				script += fmt.Sprintf("cd %s && SLURMD_NODENAME=n%d \"$@\" || exit 1\n", node, i+1)
			}
			bin := t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "srun"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			t.Setenv("SLURM_JOB_ID", "5")
			t.Setenv("SLURM_JOB_NODELIST", "n[1-3]")
			t.Setenv("HOLDFAST_LOCAL", "local/.") // each node has its own
			t.Setenv("HOLDFAST_GLOBAL", "global/.")
			code, out, errs := run(t, "doctor", "--nodes", "--json")
			if code != c.code {
				t.Errorf("got code %d, want %d\n%s%s", code, c.code, out, errs)
			}
			found := map[string]doctor.Finding{}
			for l := range strings.Lines(out) {
				var f doctor.Finding
				if err := json.Unmarshal([]byte(l), &f); err != nil {
					t.Fatalf("%v in %q", err, l)
				}
				found[f.Check] = f
				if f.State != doctor.OK && f.Remedy == "" {
					t.Errorf("no remedy: %+v", f)
				}
			}
			for check, text := range c.says {
				if !strings.Contains(found[check].Detail, text) {
					t.Errorf("%s: got %+v, want %q", check, found[check], text)
				}
			}
			if left, _ := filepath.Glob(top + "/*/.holdfast-doctor*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	t.Setenv("SLURM_JOB_ID", "")
	if code, _, errs := run(t, "doctor", "--nodes"); code != cli.NoLook ||
		!strings.Contains(errs, "inside salloc or sbatch") {
		t.Errorf("no job: got code %d, %s", code, errs)
	}
}
