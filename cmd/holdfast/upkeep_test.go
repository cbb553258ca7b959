package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFlushVerb(t *testing.T) {
	local, global := job(t)
	if err := os.RemoveAll(filepath.Join(global, "epoch-0000000003")); err != nil {
		t.Fatal(err)
	}
	code, out, errs := run(t, "flush", local, "--to", global)
	if code != exitGood || !strings.Contains(out, "epoch 3") {
		t.Fatalf("got exit code %d, %q, %q", code, out, errs)
	}
	if code, out, _ := run(t, "verify", "--complete", global); code != exitGood {
		t.Errorf("verify: got exit code %d\n%s", code, out)
	}
	if code, out, _ := run(t, "flush", local, "--to", global); code != exitGood || !strings.Contains(out, "already") {
		t.Errorf("again: got exit code %d, %q", code, out)
	}
	if code, _, errs := run(t, "flush", local); code != exitNoLook || !strings.Contains(errs, "to") {
		t.Errorf("without --to: got exit code %d, %q", code, errs)
	}
}

func TestPruneVerb(t *testing.T) {
	local, global := job(t)
	if code, out, errs := run(t, "prune", "--json", local, global); code != exitGood || out != "" {
		t.Errorf("nothing to remove: got exit code %d, %q, %q", code, out, errs)
	}
	if code, _, errs := run(t, "prune", "--keep", "0", local); code != exitNoLook || !strings.Contains(errs, "Keep") {
		t.Errorf("keep 0: got exit code %d, %q", code, errs)
	}
}
