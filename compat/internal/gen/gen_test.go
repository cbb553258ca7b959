package gen

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the files")

// TestFiles: the generated files are what the tables say.
func TestFiles(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		file := filepath.Join("..", "..", name)
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, _ := os.ReadFile(file); string(got) != string(want) {
			t.Errorf("compat/%s is not what the tables of compat/internal/gen give: run go generate ./compat/...", name)
		}
	}
}
