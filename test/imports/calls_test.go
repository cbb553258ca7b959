package imports

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// who is how a comment names the callers of a call.
var who = regexp.MustCompile(`(?i)\b(collective|local|any thread|this thread's)\b`)

// TestCallsNameTheirCallers: the comment of each public call has the word collective or local. In Go the package
// comment says what holds for the calls that do not.
func TestCallsNameTheirCallers(t *testing.T) {
	for _, p := range []string{"mpiwrap", "coordinated", "gpustate", "storage"} {
		rule, said := regexp.MustCompile(`is local unless|Every other call says so|All calls are local`), false
		for _, f := range filesOf(t, dirOf(module+"/"+p)) {
			said = said || rule.MatchString(strings.ReplaceAll(f.Doc.Text(), "\n", " "))
		}
		if !said {
			t.Errorf("%s: the package comment does not say which calls are local", p)
		}
	}
	for file, least := range map[string]int{"lib/holdfast.h": 35, "lib/holdfast_mpi.h": 2, "lib/holdfast_opencl.h": 4,
		"python/holdfast/_session.py": 22, "lib/holdfast.F90": 25} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		bad, n := unnamed(file, string(text))
		for _, call := range bad {
			t.Errorf("%s: the comment of %s does not say who calls it: collective, local or any thread", file, call)
		}
		if n < least {
			t.Errorf("%s: found only %d calls", file, n)
		}
	}
}

// declared begins a call of a C header.
const declared = `(?:static inline )?(?:int|cl_int|FILE \*|const char \*) ?(hf_\w*[a-z])\(`

var (
	// A C comment and the declarations below it; a method or function and its text; an interface block and its comment.
	inC       = regexp.MustCompile(`(?s)/\*((?:[^*]|\*[^/])*)\*/\n((?:` + declared + `[^;{]*[;{][^\n]*\n)+)`)
	inPython  = regexp.MustCompile(`(?s)\n *def ([a-z]\w*)\([^"]*?"""(.*?)"""`)
	inFortran = regexp.MustCompile(`(?m)((?:^  !.*\n)+)  (?:interface|subroutine|logical function|function) (hf_\w+)`)
	callOfC   = regexp.MustCompile(`(?m)^` + declared)
)

// unnamed lists the calls in a file whose comment does not say who calls them, and counts all.
func unnamed(file, text string) (bad []string, n int) {
	comments := map[string]string{}
	switch {
	case strings.HasSuffix(file, ".h"):
		for _, m := range callOfC.FindAllStringSubmatch(text, -1) {
			comments[m[1]] = ""
		}
		for _, m := range inC.FindAllStringSubmatch(text, -1) {
			for _, c := range callOfC.FindAllStringSubmatch(m[2], -1) {
				comments[c[1]] = m[1]
			}
		}
	case strings.HasSuffix(file, ".py"):
		for _, m := range inPython.FindAllStringSubmatch(text, -1) {
			comments[m[1]] = m[2]
		}

	default:
		for _, m := range inFortran.FindAllStringSubmatch(text, -1) {
			comments[m[2]] = m[1]
		}
	}
	for call, comment := range comments {
		if !who.MatchString(comment) {
			bad = append(bad, call)
		}
	}
	return bad, len(comments)
}

// TestUnnamedIsFound: a call without a comment, or with one that does not name its callers, is found.
func TestUnnamedIsFound(t *testing.T) {
	for file, text := range map[string]string{
		"a.h":   "/* Does this. */\nint hf_this(void);\n",
		"b.h":   "/* Local. */\nint hf_that(void);\n\nint hf_this(void);\n",
		"c.py":  "\n    def this(self, a: int) -> None:\n        \"\"\"Does this.\"\"\"\n",
		"d.F90": "  ! Does this.\n  !\n  interface hf_this\n",
	} {
		if bad, _ := unnamed(file, text); len(bad) != 1 || !strings.HasSuffix(bad[0], "this") {
			t.Errorf("%s: got %v", file, bad)
		}
	}
}
