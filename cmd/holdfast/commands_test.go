package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// each calls do for every command that does something and that people see.
func each(root *cobra.Command, do func(*cobra.Command)) {
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if !c.HasSubCommands() {
			do(c)
		}
		each(c, do)
	}
}

// TestEveryCommand: each says what it does, what its exit codes mean, and writes
// JSON on demand.
func TestEveryCommand(t *testing.T) {
	seen := 0
	each(newRoot(), func(c *cobra.Command) {
		seen++
		if c.Short == "" || !strings.Contains(c.Long, "Exit codes: ") {
			t.Errorf("%s: no exit codes in its help", c.CommandPath())
		}
		if c.Flags().Lookup("json") == nil {
			t.Errorf("%s has no --json", c.CommandPath())
		}
		if c.Args == nil {
			t.Errorf("%s does not say how many arguments it takes", c.CommandPath())
		}
	})
	if seen < 15 {
		t.Errorf("saw %d commands", seen)
	}
}

func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if code, out, errs := run(t, "man", dir); code != exitGood || !strings.Contains(out, "pages in") {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	each(newRoot(), func(c *cobra.Command) {
		page := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		text, err := os.ReadFile(page)
		if err != nil || !strings.Contains(string(text), "Exit codes") {
			t.Errorf("%s: %v, or no exit codes in it", page, err)
		}
	})
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, out, _ := run(t, "completion", shell); code != exitGood || !strings.Contains(out, "holdfast") {
			t.Errorf("%s: exit code %d", shell, code)
		}
	}
	if code, out, _ := run(t, "__complete", "bench", ""); code != exitGood || !strings.Contains(out, "storage\t") {
		t.Errorf("completion of bench: exit code %d, %q", code, out)
	}
}

// TestMistakes: what cannot be done ends with one code and a word about it.
func TestMistakes(t *testing.T) {
	for _, args := range [][]string{{"nothing"}, {"ls"}, {"ls", "--nothing", "."}, {"bench", "nothing"}, {"verify"}, {"man"}} {
		if code, _, errs := run(t, args...); code != exitNoLook || errs == "" {
			t.Errorf("%v: exit code %d, %q; want %d and a message", args, code, errs, exitNoLook)
		}
	}
}
