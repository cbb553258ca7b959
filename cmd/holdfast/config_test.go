package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/config"
)

// TestConfig shows a file, a variable and defaults with their origins, and
// reports what is wrong with an exit code.
func TestConfig(t *testing.T) {
	for _, v := range coordinated.ReadConfig("").Values() {
		t.Setenv(v.Env, "")
	}
	t.Setenv(config.FileVar, "")
	t.Chdir(t.TempDir())
	if code, _, errs := run(t, "config"); code != exitBad || !strings.Contains(errs, "HOLDFAST_LOCAL") {
		t.Errorf("without a directory: exit code %d, %s", code, errs)
	}
	if err := os.WriteFile("holdfast.yaml", []byte("local: /disk\nmtbf: 24h\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOLDFAST_MTBF", "12h")
	t.Setenv("HOLDFAST_LOCALE", "x")
	code, out, errs := run(t, "config")
	if code != exitGood || !strings.Contains(errs, "HOLDFAST_LOCALE") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	for key, want := range map[string]string{"local ": "/disk holdfast.yaml", "mtbf ": "12h HOLDFAST_MTBF",
		"keep ": "2 default"} {
		found := ""
		for l := range strings.Lines(out) {
			if strings.HasPrefix(l, key) {
				found = strings.Join(strings.Fields(l)[1:], " ")
			}
		}
		if found != want {
			t.Errorf("%s: got %q, want %q", key, found, want)
		}
	}
	code, out, _ = run(t, "config", "--json")
	var first config.Value
	line, _, _ := strings.Cut(out, "\n")
	if err := json.Unmarshal([]byte(line), &first); code != exitGood || err != nil || first.Key != "job" ||
		first.Env != "HOLDFAST_JOB" {
		t.Errorf("json: exit code %d, %v, %+v", code, err, first)
	}
	t.Setenv("HOLDFAST_MTBF", "12")
	if code, _, errs := run(t, "config"); code != exitBad || !strings.Contains(errs, "mtbf") ||
		!strings.Contains(errs, "no unit") {
		t.Errorf("a number without a unit: exit code %d, %s", code, errs)
	}
	if code, out, _ := run(t, "config", "--all"); code != exitBad || !strings.Contains(out, "partner:K or parity:D+P") {
		t.Errorf("--all: exit code %d, %s", code, out)
	}
}
