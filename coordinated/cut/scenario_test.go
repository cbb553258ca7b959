package cut

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the scenarios print into testdata")

// TestScenarios plays testdata/*.txt: blocks of commands, "----", and what the
// machines do about them up to an empty line. scene_test.go lists the commands.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 25 {
		t.Fatalf("%d scenarios, want 25 at least", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { play(t, file) })
	}
}

func play(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := replay(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := string(raw); got != want {
		t.Errorf("%s: %s", file, firstDifference(got, want))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d: got %q, want %q", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}

// replay runs the commands of a scenario and returns it with the output that
// they have now.
func replay(text string) (string, error) {
	var out strings.Builder
	s := &scene{}
	output := false // skipping the output that the file holds
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case output && line == "":
			output = false
			out.WriteString("\n")
		case output:
		case line == "----":
			output = true
			out.WriteString("----\n" + s.print())
		default:
			out.WriteString(line + "\n")
			command, _, _ := strings.Cut(line, "#")
			if err := s.run(strings.Fields(command)); err != nil {
				return "", fmt.Errorf("line %d, %q: %w", i+1, line, err)
			}
		}
	}
	if s.out.Len() > 0 {
		return "", fmt.Errorf("the last commands have no ---- after them")
	}
	return out.String(), nil
}
