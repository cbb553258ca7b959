package main

import (
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
)

// TestNumbers: counts and times that mean nothing are refused with the flag's name.
func TestNumbers(t *testing.T) {
	for _, line := range []string{
		"status --every 0s .", "status --every -1s .", "status --timeout 0s .", "request --timeout -1s .",
		"prune --keep-every -2 .", "prune --keep -1 .",
		"report --starts -1 .", "run --spares -1 -- true", "run --max-restarts -1 -- true", "balance --every -1s x",
		"gpud --max-clients -1",
	} {
		args := strings.Fields(line)
		code, _, errs := run(t, args...)
		if flag := args[1]; code != cli.NoLook || !strings.Contains(errs, flag+" ") ||
			!strings.Contains(errs, "--help") {
			t.Errorf("%s: exit %d, %q; want %d and the flag named", line, code, errs, cli.NoLook)
		}
	}
	for _, line := range []string{"-help", "status -help", "run -help", "run --spares 0 --help"} {
		if code, out, errs := run(t, strings.Fields(line)...); code != cli.Good || !strings.Contains(out, "Usage:") {
			t.Errorf("%s: exit %d, %q", line, code, errs)
		}
	}
}
