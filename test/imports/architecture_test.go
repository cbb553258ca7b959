package imports

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const architecture = "../../docs/ARCHITECTURE.md"

// TestArchitecture compares docs/ARCHITECTURE.md with the module: its tree has each package, and no directory that is
// gone; each file of its walks exists.
func TestArchitecture(t *testing.T) {
	raw, err := os.ReadFile(architecture)
	if err != nil {
		t.Fatal(err)
	}
	rooms := tree(string(raw))
	var packages []string
	for _, p := range list(t) {
		packages = append(packages, strings.TrimPrefix(p.Path, module+"/"))
	}
	exists := func(pattern string) bool {
		found, _ := filepath.Glob("../../" + pattern) // the pattern is well-formed
		return len(found) > 0
	}
	found, walks := mistakes(string(raw), rooms, packages, exists)
	for _, m := range found {
		t.Errorf("docs/ARCHITECTURE.md: %s", m)
	}
	if walks < 100 {
		t.Errorf("found %d files in the walks, want 100 at least", walks)
	}
}

// TestFolders: no folder of a package has more than 25 files.
func TestFolders(t *testing.T) {
	for _, p := range list(t) {
		files, err := filepath.Glob(filepath.Join("../..", strings.TrimPrefix(p.Path, module), "*.*"))
		if err != nil || len(files) == 0 || len(files) > 25 {
			t.Errorf("%s has %d files, want 25 at most: %v", p.Path, len(files), err)
		}
	}
}

// TestArchitectureMistakes plants one mistake of each kind in a page.
func TestArchitectureMistakes(t *testing.T) {
	const page = "### The tree\n\n```\nstorage          the store\n  internal/level  a level\n" +
		"gone             was removed\n```\n\n| Step | Files |\n|---|---|\n" +
		"| put | `storage` put; `level` dir, lost; `attic` box ‖ `level` dir |\n"
	rooms := tree(page)
	exists := func(p string) bool {
		return slices.Contains([]string{"storage", "storage/internal/level", "storage/put.*",
			"storage/internal/level/dir.*"}, p)
	}
	got, _ := mistakes(page, rooms, []string{"storage", "storage/internal/level", "new/package"}, exists)
	want := []string{"gone does not exist", "the tree lacks new/package",
		"storage/internal/level has no file lost", "the tree has 0 rooms of the name attic"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// tree returns the directories of the page's tree. A line has names that share the directory of the first, two spaces
// and a description; a room of a room is indented.
func tree(page string) (rooms []string) {
	_, after, _ := strings.Cut(page, "### The tree\n\n```\n")
	text, _, _ := strings.Cut(after, "```")
	above := map[int]string{} // by indentation
	for line := range strings.Lines(text) {
		name := strings.TrimLeft(line, " ")
		depth := len(line) - len(name)
		name, _, _ = strings.Cut(strings.TrimSpace(name), "  ")
		base := ""
		for i, n := range strings.Split(name, ", ") {
			if f := strings.Fields(n); len(f) > 0 {
				n = f[0] // a name as long as the column has its description behind one space
			}
			if i > 0 && !strings.Contains(n, "/") {
				n = filepath.Join(base, n)
			}
			base = filepath.Dir(n)
			full := filepath.Join(above[depth-2], n)
			if i == 0 {
				above[depth] = full
			}
			rooms = append(rooms, full)
		}
	}
	return rooms
}

var stop = regexp.MustCompile("`([a-z/]+)` ([a-z]+(?:, [a-z]+)*)")

// mistakes compares a page with the module, and counts the files of its walks: tables whose last column is Files.
func mistakes(page string, rooms, packages []string, exists func(string) bool) (found []string, walks int) {
	for _, r := range rooms {
		if !exists(r) {
			found = append(found, r+" does not exist")
		}
	}
	for _, p := range packages {
		top, _, _ := strings.Cut(p, "/")
		inTree := func(r string) bool { return r == p || strings.Contains(r, "/") && strings.HasPrefix(p, r+"/") }
		if !slices.Contains([]string{"apps", "examples", "test", "bench"}, top) && !slices.ContainsFunc(rooms, inTree) {
			found = append(found, "the tree lacks "+p)
		}
	}
	walk := false
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(strings.TrimSpace(line), " |")
		walk = strings.HasPrefix(line, "|") && (walk || strings.HasSuffix(line, "| Files"))
		if !walk {
			continue
		}
		for _, m := range stop.FindAllStringSubmatch(line[strings.LastIndex(line, "|")+1:], -1) {
			room, n := roomOf(rooms, m[1])
			if n != 1 {
				found = append(found, fmt.Sprintf("the tree has %d rooms of the name %s", n, m[1]))
				continue
			}
			for f := range strings.SplitSeq(m[2], ", ") {
				walks++
				if !exists(room + "/" + f + ".*") {
					found = append(found, room+" has no file "+f)
				}
			}
		}
	}
	return found, walks
}

// roomOf finds the room of a name, which is its path or the end of it, and counts the rooms that have it.
func roomOf(rooms []string, name string) (room string, n int) {
	for _, r := range rooms {
		switch {
		case r == name:
			return r, 1
		case strings.HasSuffix(r, "/"+name):
			room = r
			n++
		}
	}
	return room, n
}
