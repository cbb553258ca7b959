package readme

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
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

// TestProgram: START shows lines of examples/hello as they are. The calls in the README are those of examples/hello,
// and of the program in C in START, which test/node compiles and runs; in their order.
func TestProgram(t *testing.T) {
	hello := read(t, "examples/hello/main.go")
	if lines := block(t, "docs/START.md", "go"); !strings.Contains(hello, lines) {
		t.Errorf("examples/hello has not these lines of START.md:\n%s", lines)
	}
	call := regexp.MustCompile(`[\w.]+\(.*\)`)
	for language, whole := range map[string]string{"go": hello, "c": block(t, "docs/START.md", "c")} {
		for line := range strings.Lines(block(t, "README.md", language)) {
			code, _, _ := strings.Cut(strings.ReplaceAll(line, "/*", "//"), "//")
			_, after, found := strings.Cut(whole, call.FindString(code))
			if !found || !call.MatchString(code) {
				t.Errorf("the whole program has not this line of README.md, or earlier: %s", line)
			}
			whole = after
		}
	}
}

// block returns the first program in a language on a page.
func block(t *testing.T, page, language string) string {
	t.Helper()
	_, after, ok := strings.Cut(read(t, page), "```"+language+"\n")
	lines, _, closed := strings.Cut(after, "```")
	if !ok || !closed {
		t.Fatalf("%s has no block of %s", page, language)
	}
	return lines
}

// TestFirstCheckpoint runs the first commands of the README: the last one continues from the checkpoint, however long
// the first start takes.
func TestFirstCheckpoint(t *testing.T) {
	mpi, err := mpirun.Pick("")
	if err != nil {
		t.Skip(err)
	}
	_, after, _ := strings.Cut(read(t, "README.md"), "## The first checkpoint")
	commands := regexp.MustCompile("(?m)^    .*\n").FindAllString(after[:strings.Index(after, "\n## ")], -1)
	if len(commands) != 6 || !strings.Contains(commands[0], "make build") {
		t.Fatalf("README.md begins with %q, want make build and five more", commands)
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/bin/", "./cmd/holdfast", "./examples/hello")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	line := mpi.Command(nil, mpirun.Part{})
	if line[0], err = exec.LookPath(line[0]); err != nil {
		t.Fatal(err)
	}
	launcher := "#!/bin/sh\nexec " + strings.Join(line[:len(line)-2], " ") + " \"$@\"\n" // without its number of ranks
	if err := os.WriteFile(dir+"/bin/mpirun", []byte(launcher), 0o755); err != nil {
		t.Fatal(err)
	}
	script := exec.CommandContext(t.Context(), "bash", "-c", "set -e; "+strings.Join(commands[1:], ""))
	script.Dir = dir
	script.Env = mpirun.Environ("PATH="+dir+"/bin:"+os.Getenv("PATH"), "TMPDIR="+dir)
	out, err := script.CombinedOutput()
	again := regexp.MustCompile(`rank \d starts at step (\d+)\n`).FindAllSubmatch(out, -1)
	if err != nil || len(again) != 4 || string(again[0][1]) != "0" || string(again[3][1]) == "0" ||
		!bytes.Contains(out, []byte("rank 1 ends at step 100")) {
		t.Errorf("%v: %s", err, out)
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

// sources returns the texts of all programs but tests, with texts on several lines in one.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	files, err := exec.Command("git", "-C", root, "ls-files", "*.go", "*.c", "*.cpp", "*.py", "*.h", "*.sh").Output()
	if err != nil {
		t.Skip("not in a git checkout: ", err)
	}
	for name := range strings.FieldsSeq(string(files)) {
		if !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "test/") {
			all.WriteString(read(t, name))
		}
	}
	return regexp.MustCompile(`"\s*\+?\s*\n\s*"`).ReplaceAllString(all.String(), "")
}

// TestMessages: the messages that TROUBLESHOOTING explains are those of the sources.
func TestMessages(t *testing.T) {
	code := sources(t)
	n := 0
	page, _, _ := strings.Cut(read(t, "docs/TROUBLESHOOTING.md"), "\n## Building") // which has those of others
	for _, row := range regexp.MustCompile("(?m)^- `([^`]+)`:\\s").FindAllStringSubmatch(page, -1) {
		n++
		for piece := range strings.SplitSeq(row[1], "…") {
			if !strings.Contains(code, strings.TrimSpace(spaces.ReplaceAllString(piece, " "))) {
				t.Errorf("no source has %q of the message %q", piece, row[1])
			}
		}
	}
	if n < 40 {
		t.Errorf("TROUBLESHOOTING.md has %d messages, want 40 at least", n)
	}
}
