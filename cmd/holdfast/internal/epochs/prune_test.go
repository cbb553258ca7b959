package epochs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
)

func TestPruneVerb(t *testing.T) {
	local, global := jobDirs(t)
	if code, out, errs := run(t, "prune", "--json", local, global); code != cli.Good || out != "" {
		t.Errorf("nothing to remove: got exit code %d, %q, %q", code, out, errs)
	}
	for _, c := range []struct{ args, want string }{
		{"prune --keep 0", "--keep 0: want more than 0"},
		{"prune --keep -1", "keep"}, {"prune --keep-every -2", "every"},
	} {
		if code, _, errs := run(t, append(strings.Fields(c.args), local)...); code != cli.NoLook ||
			!strings.Contains(errs, c.want) {
			t.Errorf("%s: got exit code %d, %q", c.args, code, errs)
		}
	}
	old := filepath.Join(local, "epoch-0000000001") // of which no manifest was ever written
	if err := os.Mkdir(old, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rank-000000.shard", "rank-000001.shard.r000001.0123456789ab.tmp", ".nfs0001"} {
		if err := os.WriteFile(filepath.Join(old, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := run(t, "prune", "-n", local, global); code != cli.Good || !strings.Contains(out, "would go") {
		t.Errorf("a look: got exit code %d, %q, %q", code, out, errs)
	}
	if code, out, _ := run(t, "prune", "--json", "-n", local); code != cli.Good ||
		!strings.Contains(out, `"epoch":1,"dir":"`+local+`","removed":false`) {
		t.Errorf("as JSON: got exit code %d, %q", code, out)
	}
	code, out, errs := run(t, "prune", local, global)
	if code != cli.Bad || !strings.Contains(out, "removed") || !strings.Contains(errs, ".nfs0001") {
		t.Errorf("something is left: got exit code %d, %q, %q", code, out, errs)
	}
	list, err := os.ReadDir(old)
	if err != nil || len(list) != 1 || list[0].Name() != ".nfs0001" {
		t.Errorf("left: %v, %v", list, err)
	}
	if err := os.Remove(filepath.Join(old, ".nfs0001")); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := run(t, "prune", local, global); code != cli.Good || !strings.Contains(out, "removed") {
		t.Errorf("in the end: got exit code %d, %q, %q", code, out, errs)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the epoch is still there: %v", err)
	}
	if code, out, _ := run(t, "verify", "--complete", local); code != cli.Good {
		t.Errorf("verify after all: got exit code %d\n%s", code, out)
	}
}
