package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
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
	if code, _, errs := run(t, "config"); code != cli.Bad || !strings.Contains(errs, "HOLDFAST_LOCAL") {
		t.Errorf("without a directory: exit code %d, %s", code, errs)
	}
	if err := os.WriteFile("holdfast.yaml", []byte("local: /disk\nmtbf: 24h\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOLDFAST_MTBF", "12h")
	t.Setenv("HOLDFAST_LOCALE", "x")
	code, out, errs := run(t, "config")
	if code != cli.Good || !strings.Contains(errs, "HOLDFAST_LOCALE") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	for key, want := range map[string]string{"local": "/disk, from holdfast.yaml",
		"mtbf": "12h, from HOLDFAST_MTBF", "keep": "2"} {
		found := ""
		for l := range strings.Lines(out) {
			if f := strings.Fields(l); len(f) > 0 && f[0] == key {
				found = strings.Join(f[1:], " ")
			}
		}
		if found != want {
			t.Errorf("%s: got %q, want %q", key, found, want)
		}
	}
	code, out, _ = run(t, "config", "--json")
	var first config.Value
	line, _, _ := strings.Cut(out, "\n")
	if err := json.Unmarshal([]byte(line), &first); code != cli.Good || err != nil || first.Key != "job" ||
		first.Env != "HOLDFAST_JOB" {
		t.Errorf("json: exit code %d, %v, %+v", code, err, first)
	}
	t.Setenv("HOLDFAST_MTBF", "12")
	if code, _, errs := run(t, "config"); code != cli.Bad || !strings.Contains(errs, "mtbf") ||
		!strings.Contains(errs, "no unit") {
		t.Errorf("a number without a unit: exit code %d, %s", code, errs)
	}
	if code, out, _ := run(t, "config", "--all"); code != cli.Bad || !strings.Contains(out, "partner:K or parity:D+P") {
		t.Errorf("--all: exit code %d, %s", code, out)
	}
	if code, out, errs := run(t, "config", "mtbf", "HOLDFAST_BIN"); code != cli.Good ||
		!strings.Contains(out, "HOLDFAST_MTBF") || !strings.Contains(out, "no unit") ||
		strings.Contains(out, "HOLDFAST_INTERVAL") || !strings.Contains(out, "in PATH") {
		t.Errorf("config mtbf HOLDFAST_BIN: exit code %d, %s%s", code, out, errs)
	}
	if code, _, errs := run(t, "config", "HOLDFAST_INTERVALL"); code != cli.NoLook ||
		!strings.Contains(errs, "do you mean interval?") {
		t.Errorf("config HOLDFAST_INTERVALL: exit code %d, %s", code, errs)
	}
}

var update = flag.Bool("update", false, "write the page of settings and the schemas")

// TestSettingsPage: docs/SETTINGS.md and the example of a file have the keys that there are, and texts for terminals
// fit into 80 columns. A variable that is no key is not taken for a misspelt one.
func TestSettingsPage(t *testing.T) {
	page, err := filepath.Abs("../../docs/SETTINGS.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	c := coordinated.ReadConfig("")
	if err := os.WriteFile("holdfast.yaml", []byte(config.Example(c.Values())), 0o644); err != nil {
		t.Fatal(err)
	}
	if again := coordinated.ReadConfig(""); again.File == "" || again.Err() != nil {
		t.Errorf("the example is no file of settings: %v", again.Err())
	}
	b, err := os.ReadFile("holdfast.yaml")
	if err != nil {
		t.Fatal(err)
	}
	live := regexp.MustCompile(`(?m)^#([a-z_.]+:)$`).ReplaceAllString(string(b), "$1 x")
	if err := os.WriteFile("holdfast.yaml", []byte(live), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, v := range coordinated.ReadConfig("").Values() {
		if v.Source != "holdfast.yaml" {
			t.Errorf("the example has no %s", v.Key)
		}
	}
	for _, v := range config.Variables {
		if stray := c.Stray([]string{v.Name + "=x"}); len(stray) > 0 {
			t.Error(stray)
		}
	}
	for _, text := range []string{config.InForce(c.Values()), config.ExplainAll(c.Values())} {
		for l := range strings.Lines(text) {
			if len(l) > 80 {
				t.Errorf("longer than 80 columns: %s", l)
			}
		}
	}
	want := settingsPage(c.Values())
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("%s is out of date (%v): go test ./cmd/holdfast -run SettingsPage -args -update", page, err)
	}
}

// settingsPage is docs/SETTINGS.md. A meaning that begins with a time, or names a number, bytes or signals, needs no
// list of the values.
func settingsPage(values []config.Value) string {
	var b strings.Builder
	b.WriteString("# Settings\n\n" +
		"A setting has a key in `holdfast.yaml` and a variable: " +
		"`HOLDFAST_` and the key in capitals, with `_` for the dot.\n" +
		"So `control.interface` is `HOLDFAST_CONTROL_INTERFACE`.\n" +
		"A program's own flag wins over the variable, the variable over the file, the file over the default.\n" +
		"The file is the one that `HOLDFAST_CONFIG` names, otherwise `holdfast.yaml` in the working directory.\n" +
		"Keys with a dot may be nested:\n\n" +
		"    global: /lustre/me/checkpoints\n    mtbf: 24h\n    control:\n      interface: ib0\n\n" +
		"`holdfast config` shows what is in force, `holdfast config KEY` explains a key, and\n" +
		"`holdfast config --example` writes a `holdfast.yaml` with all keys as comments.\n\n" +
		"A time is `90s`, `10m` or `24h`. Bytes are `500M` or `2GiB`. Epochs are a number such as `4`.\n" +
		"Signals are a list of USR1, USR2, TERM, HUP, INT, URG, WINCH and XCPU, or none.\n")
	plain := regexp.MustCompile(`^(true or false|an? (duration|number of|whole number|size|name|file|list|` +
		`(absolute )?directory|interface))`)
	for i, v := range values {
		if i == 0 || v.Group != values[i-1].Group {
			fmt.Fprintf(&b, "\n## %s%s\n\n| key | default | meaning |\n|---|---|---|\n",
				strings.ToUpper(v.Group[:1]), v.Group[1:])
		}
		meaning := v.Help
		if !plain.MatchString(v.Allowed) {
			meaning = v.Allowed + ": " + meaning
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Key, v.Default, meaning)
	}
	b.WriteString("\n## Variables that are no keys\n\n| variable | meaning |\n|---|---|\n")
	for _, v := range config.Variables {
		fmt.Fprintf(&b, "| `%s` | %s |\n", v.Name, v.Help)
	}
	return b.String()
}
