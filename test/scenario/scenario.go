// Package scenario plays the tests of state machines that are written as text: commands,
// "----", and what the machines do about them up to an empty line.
package scenario

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the scenarios print into testdata")

// Scene is the world of one scenario.
type Scene interface {
	// Run carries out a command, given by words; none is nothing to do.
	Run(words []string) error
	// Take returns what was printed since the last call.
	Take() string
}

// Play plays testdata/*.txt, at least least files, each in a new scene. idle stands in a
// file where nothing was printed.
func Play(t *testing.T, least int, idle string, scene func() Scene) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < least {
		t.Fatalf("%d scenarios, want %d at least: %v", len(files), least, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { play(t, file, idle, scene()) })
	}
}

func play(t *testing.T, file, idle string, s Scene) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := replay(string(raw), idle, s)
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
		t.Errorf("%s: %s; now it is\n%s", file, firstDifference(got, want), got)
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
func replay(text, idle string, s Scene) (string, error) {
	var out strings.Builder
	output := false // skipping the output that the file holds
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case output && line == "":
			output = false
			out.WriteString("\n")
		case output:
		case line == "----":
			output = true
			printed := s.Take()
			if printed == "" {
				printed = idle
			}
			out.WriteString("----\n" + printed)
		default:
			out.WriteString(line + "\n")
			command, _, _ := strings.Cut(line, "#")
			if err := s.Run(strings.Fields(command)); err != nil {
				return "", fmt.Errorf("line %d, %q: %w", i+1, line, err)
			}
		}
	}
	if s.Take() != "" {
		return "", errors.New("the last commands have no ---- after them")
	}
	return out.String(), nil
}
