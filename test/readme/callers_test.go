package readme

import (
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// word is the statement of a comment which ranks make the call.
var word = regexp.MustCompile(`\b(Collective|Local)\b`)

// declared returns, for each call of a header, whether all ranks call it: Collective or Local, as the comment before it
// says. Calls without a comment between them share one.
func declared(header string) map[string]string {
	found, kind := map[string]string{}, ""
	commentOrCall := regexp.MustCompile(
		`(?s)/\*(.*?)\*/|\n(?:static inline )?(?:int|const char \*|FILE \*) ?(hf_\w+)\(`)
	for _, m := range commentOrCall.FindAllStringSubmatch(header, -1) {
		if m[2] != "" {
			found[m[2]] = kind
		} else {
			kind = word.FindString(m[1])
		}
	}
	return found
}

// listed returns the same of a manual page, from its list of callers.
func listed(page string) map[string]string {
	found, kind := map[string]string{}, ""
	_, after, _ := strings.Cut(page, "\n.Ss Callers\n.Bl ")
	list, _, _ := strings.Cut(after, "\n.El")
	for _, m := range regexp.MustCompile(`(?m)^\.It (\w+)$|^\.Fn (\w+) [,.]$`).FindAllStringSubmatch(list, -1) {
		if m[1] != "" {
			kind = m[1]
		} else if found[m[2]] == "" {
			found[m[2]] = kind
		}
	}
	return found
}

// ofFortran returns the same of a module.
func ofFortran(module string) map[string]string {
	found := map[string]string{}
	call := regexp.MustCompile(`((?:\n *!.*)+)\n *(?:interface|subroutine|function|logical function) (hf_\w+)`)
	for _, m := range call.FindAllStringSubmatch(module, -1) {
		found[m[2]] = word.FindString(m[1])
	}
	return found
}

// TestCallers: each call says in its header, in the modules of Fortran and on its manual page whether it is collective
// or local, the same in all.
func TestCallers(t *testing.T) {
	want := declared(read(t, "lib/holdfast.h"))
	maps.Copy(want, declared(read(t, "lib/holdfast_mpi.h")))
	delete(want, "hf_mpi_allgather")
	pages, err := filepath.Glob(filepath.Join(root, "man/*.3"))
	if err != nil || len(want) < 35 {
		t.Fatalf("the headers have %d calls, %v", len(want), err)
	}
	got := map[string]string{}
	for _, p := range pages {
		maps.Copy(got, listed(read(t, filepath.Join("man", filepath.Base(p)))))
	}
	for name, kind := range want {
		if kind == "" || got[name] != kind {
			t.Errorf("%s is %q in the header, %q on its manual page", name, kind, got[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("the pages list %d calls, the headers have %d", len(got), len(want))
	}
	fortran := ofFortran(read(t, "lib/holdfast.F90"))
	maps.Copy(fortran, ofFortran(read(t, "lib/holdfast_mpi.F90")))
	if len(fortran) < 25 {
		t.Errorf("the modules of Fortran have %d calls", len(fortran))
	}
	for name, kind := range fortran {
		if other, ok := want[name]; kind == "" || ok && kind != other {
			t.Errorf("%s is %q in Fortran, %q in C", name, kind, other)
		}
	}
}
