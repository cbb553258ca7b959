package epochs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
)

func TestFlushVerb(t *testing.T) {
	local, global := jobDirs(t)
	if err := os.RemoveAll(filepath.Join(global, "epoch-0000000003")); err != nil {
		t.Fatal(err)
	}
	code, out, errs := run(t, "flush", local, "--to", global)
	if code != cli.Good || !strings.Contains(out, "epoch 3") {
		t.Fatalf("got exit code %d, %q, %q", code, out, errs)
	}
	if code, out, _ := run(t, "verify", "--complete", global); code != cli.Good {
		t.Errorf("verify: got exit code %d\n%s", code, out)
	}
	if code, out, _ := run(t, "flush", local, "--to", global); code != cli.Good || !strings.Contains(out, "already") {
		t.Errorf("again: got exit code %d, %q", code, out)
	}
	if code, _, errs := run(t, "flush", local); code != cli.NoLook || !strings.Contains(errs, "to") {
		t.Errorf("without --to: got exit code %d, %q", code, errs)
	}
}

func TestSalvageVerb(t *testing.T) {
	local, global := jobDirs(t)
	if err := os.RemoveAll(filepath.Join(global, "epoch-0000000003")); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run(t, "flush", "--salvage", "", local, "--to", global); code != cli.NoLook {
		t.Errorf("without a name: got exit code %d, %q", code, errs)
	}
	code, out, errs := run(t, "flush", "--salvage", "job 5", local, filepath.Join(local, "partner"), "--to", global)
	if code != cli.Good || !strings.Contains(out, "epoch 3 is now committed") {
		t.Fatalf("got exit code %d, %q, %q", code, out, errs)
	}
	if code, out, _ := run(t, "verify", "--complete", global); code != cli.Good {
		t.Errorf("verify: got exit code %d\n%s", code, out)
	}
	if code, out, _ := run(t, "flush", "--salvage", "job 5", local, "--to", global); code != cli.Good ||
		!strings.Contains(out, "none is newer") {
		t.Errorf("again: got exit code %d, %q", code, out)
	}
}

func TestPruneVerb(t *testing.T) {
	local, global := jobDirs(t)
	if code, out, errs := run(t, "prune", "--json", local, global); code != cli.Good || out != "" {
		t.Errorf("nothing to remove: got exit code %d, %q, %q", code, out, errs)
	}
	for _, c := range []struct{ args, want string }{
		{"prune --keep 0", "Keep"}, {"prune --keep -1", "keep"}, {"prune --every -2", "every"},
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

// TestToolsWithDamagedMarker turns a bit in holdfast.job, and removes it: the tools
// go by the manifests and warn.
func TestToolsWithDamagedMarker(t *testing.T) {
	for _, how := range []string{"damaged", "missing"} {
		t.Run(how, func(t *testing.T) {
			local, global := jobDirs(t)
			for _, d := range []string{local, global} {
				file := filepath.Join(d, "holdfast.job")
				b, err := os.ReadFile(file)
				if err == nil && how == "damaged" {
					b[20] ^= 1
					err = os.WriteFile(file, b, 0o644)
				} else if err == nil {
					err = os.Remove(file)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, args := range [][]string{{"ls", local, global}, {"show", local}, {"prune", local, global},
				{"flush", local, "--to", global}} {
				code, _, errs := run(t, args...)
				if code != cli.Good || !strings.Contains(errs, "holdfast.job") {
					t.Errorf("%v: got exit code %d, %q", args, code, errs)
				}
			}
		})
	}
}
