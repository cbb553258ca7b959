package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestProgram: the README shows lines of examples/hello as they are.
func TestProgram(t *testing.T) {
	_, after, ok := strings.Cut(read(t, "README.md"), "```go\n")
	lines, _, closed := strings.Cut(after, "```")
	if !ok || !closed {
		t.Fatal("README.md has no block of Go")
	}
	if !strings.Contains(read(t, "examples/hello/main.go"), lines) {
		t.Errorf("examples/hello has not these lines of README.md:\n%s", lines)
	}
}

// TestTargets: make knows every target that the README and CONTRIBUTING.md name.
func TestTargets(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		found := regexp.MustCompile("(?m)(?:^    |`)make ([a-z-]+)").FindAllStringSubmatch(read(t, name), -1)
		if len(found) < 2 {
			t.Errorf("%s names targets %q, want two at least", name, found)
		}
		for _, m := range found {
			if !strings.Contains(makefile, "\n"+m[1]+": ") {
				t.Errorf("%s: the Makefile has no target %s", name, m[1])
			}
		}
	}
}

// TestLinks: what the two pages link to in this repository is there.
func TestLinks(t *testing.T) {
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)`).FindAllStringSubmatch(read(t, name), -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
