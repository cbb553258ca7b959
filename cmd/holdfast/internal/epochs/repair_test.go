package epochs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/test/fakes3"
)

// TestRepairVerb damages a shard at each of two levels, says so, repairs them, and has nothing to do then.
func TestRepairVerb(t *testing.T) {
	local, global := jobDirs(t)
	if code, out, _ := run(t, "repair", local, global); code != cli.Good || out != "nothing is damaged or missing\n" {
		t.Errorf("good directories: got exit code %d, %q", code, out)
	}
	was, err := os.ReadFile(filepath.Join(local, "epoch-0000000003", "rank-000001.shard"))
	if err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(local, "epoch-0000000003", "rank-000001.shard"), 5000)
	if err := os.Remove(filepath.Join(global, "epoch-0000000003", "rank-000000.shard")); err != nil {
		t.Fatal(err)
	}
	before := tree(t, local) + tree(t, global)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"repair -n", cli.Good, "can be repaired"},
		{"repair --dry-run --json", cli.Good, `"repaired":false,"can_be_repaired":true`},
		{"verify", cli.Bad, "damaged"},
	} {
		code, out, errs := run(t, append(strings.Fields(c.args), local, global)...)
		if code != c.code || !strings.Contains(out, c.want) || tree(t, local)+tree(t, global) != before {
			t.Errorf("%s: got exit code %d, %q, %q", c.args, code, out, errs)
		}
	}
	if code, out, _ := run(t, "repair", local); code != cli.Bad || !strings.Contains(out, "not repaired") {
		t.Errorf("without a good copy: got exit code %d, %q", code, out)
	}
	code, out, errs := run(t, "repair", "--json", "-e", "newest", local, global)
	rows := strings.Split(strings.TrimSpace(out), "\n")
	var row repairRow
	if err := json.Unmarshal([]byte(rows[0]), &row); err != nil || code != cli.Good || len(rows) != 2 || !row.Repaired {
		t.Fatalf("got exit code %d, %q, %q, %v", code, out, errs, err)
	}
	if code, out, _ := run(t, "verify", "--complete", local, global); code != cli.Good {
		t.Errorf("verify after it: got exit code %d\n%s", code, out)
	}
	now, err := os.ReadFile(filepath.Join(local, "epoch-0000000003", "rank-000001.shard"))
	if err != nil || string(now[4096:]) != string(was[4096:]) { // the header has the time of writing
		t.Errorf("the shard is not what it was: %d bytes, were %d, %v", len(now), len(was), err)
	}
}

// TestRepairVerbRefuses: nothing to look at, and what cannot be repaired.
func TestRepairVerbRefuses(t *testing.T) {
	local, _ := jobDirs(t)
	for _, args := range [][]string{{"repair"}, {"repair", filepath.Join(local, "absent")}, {"repair", t.TempDir()},
		{"repair", "-e", "7", local}, {"repair", "--jobs", "0", local}} {
		if code, _, errs := run(t, args...); code != cli.NoLook || errs == "" {
			t.Errorf("%v: got exit code %d, %q", args, code, errs)
		}
	}
	for _, name := range []string{"epoch-0000000003", "epochs-000000", "epochs-000001"} {
		if err := os.RemoveAll(filepath.Join(local, name)); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, _ := run(t, "repair", local); code != cli.Bad || !strings.Contains(out, "no epoch") {
		t.Errorf("no epoch: got exit code %d, %q", code, out)
	}
}

// TestRepairVerbSetsAside: a directory where a shard should be makes room, and is named if something is in it.
func TestRepairVerbSetsAside(t *testing.T) {
	local, global := jobDirs(t)
	url := fakes3.Start(t, &fakes3.Server{})
	if code, _, errs := run(t, "copy", local, "--to", url); code != cli.Good {
		t.Fatal(errs)
	}
	shard := filepath.Join(local, "epoch-0000000003", "rank-000001.shard")
	if err := os.Remove(shard); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(shard, "mine"), 0o700); err != nil {
		t.Fatal(err)
	}
	code, out, errs := run(t, "repair", local, global, url)
	if code != cli.Good || !strings.Contains(errs, ".damaged.") || !strings.Contains(out, "repaired") {
		t.Errorf("got exit code %d, %q, %q", code, out, errs)
	}
	if left, _ := filepath.Glob(shard + ".damaged.*/mine"); len(left) != 1 {
		t.Errorf("the directory that was there is gone")
	}
	if code, out, _ := run(t, "verify", local, global); code != cli.Good {
		t.Errorf("verify after it: got exit code %d\n%s", code, out)
	}
}
