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
	if code, out, _ := run(t, "flush", "--json", local, "--to", global); code != cli.Good ||
		!strings.Contains(out, `"epoch":0`) {
		t.Errorf("as JSON: got exit code %d, %q", code, out)
	}
	if code, _, errs := run(t, "flush", local); code != cli.NoLook || !strings.Contains(errs, "to") {
		t.Errorf("without --to: got exit code %d, %q", code, errs)
	}
	missing := filepath.Join(t.TempDir(), "a")
	if code, _, errs := run(t, "flush", local, "--to", missing); code != cli.NoLook ||
		!strings.Contains(errs, "--to: directory "+missing+" cannot be used: ") {
		t.Errorf("to a missing directory: got exit code %d, %q", code, errs)
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
