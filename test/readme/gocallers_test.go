package readme

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	goAbout = regexp.MustCompile(`(?m)((?:^//.*\n)+)^(?:package|type (\w+))`)
	goCall  = regexp.MustCompile(`(?m)((?:^//.*\n)*)^func (?:\(\w* ?\*?([A-Z]\w*)[^)]*\) )?([A-Z]\w*)([^{]*)\{`)
	goAsks  = regexp.MustCompile(`\bcontext\.Context\b|\*(mpiwrap\.)?Comm\b|\berror\)? $`)
	goWord  = regexp.MustCompile(word.String() + `|\b(is|are) (collective|local)\b`)
	goAll   = regexp.MustCompile(`\b(All|The|A) (calls?|methods?)\b[^.]*?\b(is|are) (collective|local)\b( unless)?`)
	goWaits = regexp.MustCompile(`(?i)\.I?(neighbor|barrier|bcast|gather|scatter|all|reduce|e?x?scan)|context\.Context`)
)

// silent returns the calls with a context, a communicator or an error of which neither their comment nor their type nor
// package says who calls. "Local unless" does not cover a call with a context or the name of a collective.
func silent(source string) (names []string) {
	about := map[string]string{} // "" is the package
	plain := strings.NewReplacer("\n//\n", " ", "\n// ", " ").Replace
	for _, m := range goAbout.FindAllStringSubmatch(source, -1) {
		about[m[2]] += plain(m[1])
	}
	for _, m := range goCall.FindAllStringSubmatch(source, -1) {
		said := goWord.MatchString(plain(m[1])) || m[3] == "Unwrap" || !goAsks.MatchString(m[4])
		for _, text := range []string{about[""], about[m[2]]} {
			all := goAll.FindStringSubmatch(text)
			said = said || all != nil && (all[5] == "" || !goWaits.MatchString("."+m[3]+m[4]))
		}
		if !said {
			names = append(names, strings.TrimPrefix(m[2]+"."+m[3], "."))
		}
	}
	return names
}

// TestGoCallers: go doc says of each call in the packages for users whether it is collective or local.
func TestGoCallers(t *testing.T) {
	source := map[string]string{} // by folder
	for _, folders := range []string{"coordinated", "coordinated/*", "mpiwrap", "slurm", "gpustate", "gpustate/gpud",
		"storage", "storage/*", "compat/*"} {
		paths, err := filepath.Glob(filepath.Join(root, folders, "*.go"))
		if err != nil || len(paths) < 10 {
			t.Fatal(folders, paths, err)
		}
		for _, path := range paths {
			if dir := filepath.Dir(path); !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(dir, "test") {
				source[dir] += read(t, strings.TrimPrefix(path, root)) + "\n"
			}
		}
	}
	for dir, text := range source {
		for _, name := range silent(text) {
			t.Errorf("%s: %s says nowhere whether it is collective or local", dir, name)
		}
	}
}
