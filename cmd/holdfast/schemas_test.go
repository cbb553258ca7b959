package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/test/schema"
	"github.com/spf13/cobra"
)

// TestSchemas: docs/schemas has the schema of each command's --json, made from the types that it writes.
func TestSchemas(t *testing.T) {
	names := map[string]bool{}
	page, err := os.ReadFile(filepath.Join(schema.Dir(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	each(newRoot(), func(c *cobra.Command) {
		name := c.Name() + ".json"
		names[name] = true
		if !strings.Contains(string(page), "("+name+")") {
			t.Errorf("docs/schemas/README.md does not link %s", name)
		}
		if c.DisableFlagParsing { // holdfast-bench, which compares its own
			return
		}
		f, ok := c.Flags().Lookup("json").Value.(*cli.JSONFlag)
		if !ok {
			t.Errorf("%s: the flag --json does not say what the command writes: use cli.JSON", c.CommandPath())
			return
		}
		want, err := schema.Make("One line of "+c.CommandPath()+" --json",
			map[string]any{"Moved.Steps": gpustate.Migration{}}, append(f.Writes, cli.Failure{})...)
		if err != nil {
			t.Error(err)
			return
		}
		file := filepath.Join(schema.Dir(), name)
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
			t.Errorf("%s is not the schema of the types that %s writes (%v): run go test ./cmd/holdfast -run Schemas "+
				"-update", file, c.CommandPath(), err)
		}
	})
	files, err := filepath.Glob(filepath.Join(schema.Dir(), "*.json"))
	if err != nil || len(files) != len(names) {
		t.Errorf("%d commands and %d files: %v", len(names), len(files), err)
	}
}
