package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages returns the documents for users and implementers.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/internals/*.md", "*/README.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			name, _ = filepath.Rel(root, name)
			if name != "CHANGELOG.md" { // it names commands that are gone
				all[name] = read(t, name)
			}
		}
	}
	if len(all) < 30 {
		t.Fatalf("found %d pages", len(all))
	}
	return all
}

var (
	fence  = regexp.MustCompile("(?ms)^```[^\n]*\n(.*?)^```")
	indent = regexp.MustCompile("(?m)^    .*$")
	inline = regexp.MustCompile("`[^`]+`")
	spaces = regexp.MustCompile(`\s+`)
)

// commandLines returns the lines of a page's programs, and its texts in backquotes, each in one line.
func commandLines(page string) (lines []string) {
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		lines = append(lines, strings.Split(strings.ReplaceAll(m[1], "\\\n", " "), "\n")...)
	}
	rest := fence.ReplaceAllString(page, "")
	lines = append(lines, indent.FindAllString(rest, -1)...)
	for _, text := range inline.FindAllString(indent.ReplaceAllString(rest, ""), -1) {
		lines = append(lines, spaces.ReplaceAllString(strings.Trim(text, "`"), " "))
	}
	return lines
}

var (
	call = regexp.MustCompile(`(?:^|[ /(])holdfast ([a-z][a-z-]*)(?:$|[^:\w-])([^#|;]*)`)
	flag = regexp.MustCompile(`(?:^| )(--[a-z][a-z-]*)`)
)

// unknown says which verbs and flags of a page the command does not have. help returns the help of a verb, or "".
func unknown(page string, help func(verb string) string) (faults []string) {
	for _, line := range commandLines(page) {
		for _, m := range call.FindAllStringSubmatch(line, -1) {
			own, _, _ := strings.Cut(m[2], " -- ") // behind it stand flags of srun or mpirun
			switch text := help(m[1]); {
			case text == "":
				faults = append(faults, "no verb "+m[1]+": "+line)
			case m[1] != "bench": // whose suites have flags of their own
				for _, f := range flag.FindAllStringSubmatch(own, -1) {
					if !regexp.MustCompile(regexp.QuoteMeta(f[1]) + `\b`).MatchString(text) {
						faults = append(faults, m[1]+" has no "+f[1]+": "+line)
					}
				}
			}
		}
	}
	return faults
}

// TestCommands: the command has the verbs and flags that the pages name.
func TestCommands(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "holdfast")
	build := exec.Command("go", "build", "-o", bin, "./cmd/holdfast")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	known := map[string]string{"bench": "holdfast-bench has its flags",
		"and": "of a message", "intent": "of a record", "splits": "of a source", "unit": "of a source"}
	code := sources(t)
	help := func(verb string) string {
		text, ok := known[verb]
		if !ok {
			if out, err := exec.Command(bin, verb, "--help").CombinedOutput(); err == nil &&
				strings.Contains(string(out), "holdfast "+verb) {
				text = string(out)
			} else if strings.Contains(code, `verb.Hidden("`+verb+" ") {
				text = "hidden: other commands call it"
			}
			known[verb] = text
		}
		return text
	}
	for name, page := range pages(t) {
		for _, fault := range unknown(page, help) {
			t.Errorf("%s: %s", name, fault)
		}
	}
	if len(known) < 20 {
		t.Errorf("the pages name %d verbs, want 20 at least", len(known))
	}
	planted := "Say `holdfast\nverify --compleat DIR`, or\n\n    holdfast vrify DIR      # all of it\n"
	if got := unknown(planted, help); len(got) != 2 {
		t.Errorf("a wrong flag and a wrong verb: found %q", got)
	}
	t.Run("lines", func(t *testing.T) { linesRun(t, filepath.Dir(bin)) })
}

// TestVariables: the sources know each variable that a page names, or it stands for a setting. SETTINGS.md has each
// variable that a page for users names: Holdfast warns of others.
func TestVariables(t *testing.T) {
	settings := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\|").FindAllStringSubmatch(
		read(t, "docs/SETTINGS.md"), -1) {
		settings["HOLDFAST_"+strings.ToUpper(strings.ReplaceAll(m[1], ".", "_"))] = true
	}
	code := sources(t)
	variable := regexp.MustCompile(`\bHOLDFAST_[A-Z_]*[A-Z]\b`)
	ofTests := regexp.MustCompile(`_(MPI)?TEST_`)
	wrong := func(page string) (names []string) {
		for _, name := range variable.FindAllString(page, -1) {
			if !settings[name] && !ofTests.MatchString(name) && !strings.Contains(code, name) {
				names = append(names, name)
			}
		}
		return names
	}
	for name, page := range pages(t) {
		if found := wrong(page); len(found) > 0 {
			t.Errorf("%s names %q, which no source knows", name, found)
		}
	}
	if found := wrong("HOLDFAST_INTERVAL HOLDFAST_INTERVALL HOLDFAST_BIN"); len(found) != 1 {
		t.Errorf("a wrong variable: found %q", found)
	}
	known := read(t, "docs/SETTINGS.md")
	missing := func(page string) (names []string) {
		for _, name := range variable.FindAllString(page, -1) {
			if !settings[name] && !ofTests.MatchString(name) && !strings.Contains(known, "| `"+name+"` |") {
				names = append(names, name)
			}
		}
		return names
	}
	for name, page := range pages(t) {
		if found := missing(page); strings.HasPrefix(name, "docs/") && len(found) > 0 {
			t.Errorf("%s names %q, which SETTINGS.md has not", name, found)
		}
	}
	if found := missing("HOLDFAST_INTERVAL HOLDFAST_YIELD_DIR HOLDFAST_BIN"); len(found) != 1 {
		t.Errorf("a variable that is missing in SETTINGS.md: found %q", found)
	}
}

// slug returns the name by which a link finds a heading.
func slug(heading string) string {
	heading = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")
	heading = regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
	return strings.ReplaceAll(heading, " ", "-")
}

// TestHeadings: links within and between pages lead to headings that are there.
func TestHeadings(t *testing.T) {
	all := pages(t)
	headings := func(page string) map[string]bool {
		found := map[string]bool{}
		text := fence.ReplaceAllString(page, "")
		for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
			found[slug(m[1])] = true
		}
		return found
	}
	dead := func(name, page string) (links []string) {
		text := inline.ReplaceAllString(fence.ReplaceAllString(page, ""), "")
		for _, m := range regexp.MustCompile(`\]\(([^)#:\s]*)(#[^)\s]+)?\)`).FindAllStringSubmatch(text, -1) {
			to := name
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(name), m[1])
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				links = append(links, m[0])
			} else if target, ok := all[to]; ok && m[2] != "" && !headings(target)[m[2][1:]] {
				links = append(links, m[0])
			}
		}
		return links
	}
	for name, page := range all {
		if links := dead(name, page); len(links) > 0 {
			t.Errorf("%s: nothing is at %q", name, links)
		}
	}
	planted := "[there](docs/START.md#c), [gone](docs/START.md#pascal), [no](docs/NO.md)\n"
	if links := dead("README.md", planted); len(links) != 2 {
		t.Errorf("two dead links: found %q", links)
	}
}

// TestReleases: a release of the changelog has at most some sixty lines, in sections by feature.
func TestReleases(t *testing.T) {
	releases := regexp.MustCompile(`(?m)^## `).Split(read(t, "CHANGELOG.md"), -1)[1:]
	for _, release := range releases {
		name, text, _ := strings.Cut(release, "\n")
		if n := strings.Count(strings.TrimSpace(text), "\n") + 1; n > 64 || !strings.Contains(text, "\n### ") {
			t.Errorf("CHANGELOG.md has %d lines about %s, or no sections", n, name)
		}
	}
	if len(releases) < 3 {
		t.Errorf("CHANGELOG.md has %d releases", len(releases))
	}
}
