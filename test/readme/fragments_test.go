package readme

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// languages have the lines around a fragment, with its page, line and number, and the command that takes the file.
var languages = map[string]struct{ head, before, after, command string }{
	"go": {`package page
import (
	"context"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)
type particle struct{ x, y, z float64 }
`, `func f%[3]d(ctx context.Context, ck *coordinated.Checkpointer, world *mpiwrap.Comm, nx, ny, nCells, step int,
	u []float64, err error) {{
//line %[1]s:%[2]d
`, "_ = err\n}}\n", `go vet "$0"`},
	"c": {`#include <holdfast_mpi.h>
#include <holdfast_opencl.h>
extern int code, step, state, n, row0, col0, rows, cols;
extern double *u;
extern cl_platform_id platform;
extern hf_config config;
void check(int), allocate(int *), initialise(int *);
`, "void f%[3]d(void);\nvoid f%[3]d(void)\n{\n#line %[2]d \"%[1]s\"\n", "}\n",
		`mpicc -std=c11 -Wall -Wextra -Werror -DCL_TARGET_OPENCL_VERSION=120 -Ilib -fsyntax-only "$0"`},
	"python": {`class dist:
    get_rank, get_world_size = lambda: 1, lambda: 2
    def all_gather_object(parts, mine): parts[:] = [mine, b"cd"]
`, "# %[3]d: %[1]s, line %[2]d\n", `both = bytearray(4)
World().Allgather(bytearray(b"ab"), both)
assert both == b"abcd" and World().Dup().size == 2
`, `python3 "$0"`},
}

// TestFragments compiles the parts of programs that pages show, and runs those in Python. Other tests run the whole
// programs of START.
func TestFragments(t *testing.T) {
	all, n := map[string]string{}, 0
	for name, page := range pages(t) {
		if name != "README.md" && filepath.Dir(name) != "docs" || name == "docs/START.md" {
			continue
		}
		for _, m := range regexp.MustCompile("(?ms)^```(go|c|python)\n(.*?)^```").FindAllStringSubmatchIndex(page, -1) {
			n++
			language, line := page[m[2]:m[3]], strings.Count(page[:m[4]], "\n")+1
			around := languages[language]
			all[language] += fmt.Sprintf(around.before, name, line, n) + page[m[4]:m[5]] + around.after
		}
	}
	for language, programs := range all {
		file := filepath.Join(t.TempDir(), "page."+language)
		if err := os.WriteFile(file, []byte(languages[language].head+programs), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("bash", "-c", languages[language].command, file)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	if n < 10 || len(all) != len(languages) {
		t.Errorf("found %d fragments in %d languages", n, len(all))
	}
}

// TestDiffs: the change of a line that PORTING.md shows is the one that a Go program for the other package needs.
func TestDiffs(t *testing.T) {
	uses := map[string]string{"mpi": "mpi.Init(); defer mpi.Finalize()", "cl": "_, _ = cl.GetPlatforms()"}
	diff := regexp.MustCompile("(?s)```diff\n-(.*?)\n\\+(.*?)\n```")
	diffs := diff.FindAllStringSubmatch(read(t, "docs/PORTING.md"), -1)
	for _, m := range diffs {
		name := strings.Trim(filepath.Base(m[1]), `"`)
		before := "package main\n\nimport (\n" + m[1] + "\n)\n\nfunc main() { " + uses[name] + " }\n"
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, []byte(strings.Replace(before, m[1], m[2], 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("go", "build", "-o", os.DevNull, file)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil || uses[name] == "" {
			t.Errorf("%s: %v: %s", m[1], err, out)
		}
		if source := read(t, "compat/"+name+"/doc.go"); !strings.Contains(source, strings.Trim(m[1], "\t\"")) {
			t.Errorf("compat/%s does not take the place of %s", name, m[1])
		}
	}
	if len(diffs) != len(uses) {
		t.Errorf("PORTING.md has %d diffs, want %d", len(diffs), len(uses))
	}
}
