// Words looks for turns of phrase that a native reader has to read twice, in pages and in comments of Go, C, C++,
// Fortran and Python. A sentence has at most 30 words in pages, manual pages, help texts, public headers and the godoc
// of exported names. known.txt lists the files that still have findings: a page may not get more, and comments are
// checked in files that it does not list. The list only shrinks.
//
//	words          names each finding with its remedy in files that have more than known.txt allows
//	words -all     names each finding in all files
//	words -count   counts the findings of each kind, and the words of each page
//	words -update  writes known.txt anew, after sentences were improved
package main

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A pattern is a turn of phrase, and what to write in its place.
type pattern struct {
	kind, remedy string
	find         *regexp.Regexp
	pages        bool // is looked for in pages alone
}

const mostWords = 30

var patterns = []pattern{
	{"P1 what, who", `name the thing or the person in place of "what" or "who"`, regexp.MustCompile(
		`(?i)\b(of|to|for|in|with|from|by|than|not|all|and|has|have|is|are|on|reads?|knows?) what\b|` +
			`\bwho [a-z]+s\b`), true},
	{"P2 says whether", `"reports whether" for a bool, "returns" for a value, "describes" for a text`,
		regexp.MustCompile(`(?i)\b(says?|said|tells?) (whether|why)\b`), false},
	{"P3 is what", "use a verb of action: counts, returns, holds", regexp.MustCompile(
		`\b(is|are) (what|where|how|when|who) \w+`), true},
	{"P4 of it", "use a possessive, a compound noun or a verb", regexp.MustCompile(
		`(?i)\bof (it|them|this|which|whom|then)[.,;:)]|, of which\b|\b(that|those) of (a|the|it)\b`), true},
	{"P5 also where", `write "if", "when" or "even if"`, regexp.MustCompile(
		`(?i)\b(also|even|or|and|but) where\b|\balso (if|when)\b|` +
			`(^|[.] )Where (it|the|there|that|they|no|a|this)\b`), false},
	{"P6 object first", "put the subject first", regexp.MustCompile(
		`(^|[.] )(Of (a|an|one|two|what|those|all|each)|What|Who) [a-z]+`), true},
	{"P7 nobody", "say who acts", regexp.MustCompile(`(?i)\b(nobody|no one|nothing that|none that)\b`), false},
	{"P8 heed, tell", "report, accept, obey, skip: one plain verb", regexp.MustCompile(
		`(?i)\b(heed(s|ed|ing)?|is told|are told|were told|was told|tells? (it|them|each|others)|` +
			`hears? (of|from|it|that)|comes? to (a|its|their) points?)\b`), false},
	{"P9 anew", `again, permanently, as before`, regexp.MustCompile(
		`(?i)\b(anew|for good|as ever|likewise|thereupon|as yet|of late|by and by)\b`), false},
	{"P11 no contrast", `"Fixed: ...": before in the past tense, now in the present`, regexp.MustCompile(
		`; (it|they|that|such \w+|each|the \w+) (was|were|had|took|said|gave|got|stayed|hung|failed|waited|` +
			`went|could|did|counted|named|lost|came|looked|found|read|ended)\b`), true},
	{"P12 so many", "give the number, or n", regexp.MustCompile(
		`(?i)\bso (many|much|long)( \w+)?[.,;)]|\b(of|for) so (many|long)\b|\beach one that\b|` +
			`\ba (moment|while)\b`), false},
}

var longSentence = pattern{"P10 long sentence", "one fact a sentence, 25 words or so", nil, true}

// A finding is a place that matches a pattern.
type finding struct {
	file string
	line int
	of   pattern
	text string
}

func main() {
	all := flag.Bool("all", false, "name each finding in all files")
	count := flag.Bool("count", false, "count the findings of each kind, and the words of each page")
	update := flag.Bool("update", false, "write known.txt anew")
	flag.Parse()
	if err := run(flag.Args(), *all, *count, *update); err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
}

const knownFile = "test/words/known.txt"

// run works at the root of the repository, on all files that git knows or on those named.
func run(files []string, all, count, update bool) error {
	if len(files) == 0 {
		out, err := exec.Command("git", "ls-files", "-co", "--exclude-standard", "*.md", "*.go", "lib/*.[ch]",
			"lib/*.[ch]pp", "lib/*.F90", "*.py", "man/*.3", "*/help/*.txt").Output()
		if err != nil {
			return fmt.Errorf("list the files: %w", err)
		}
		files = strings.Fields(string(out))
	}
	known, err := readKnown()
	if err != nil {
		return err
	}
	byFile := map[string][]finding{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it was removed, and git has not been told
		}
		byFile[f] = look(f, b)
	}
	switch {
	case update:
		return writeKnown(byFile)
	case count:
		show(files, byFile)
		return nil
	}
	more := 0
	for _, f := range files {
		if !all && len(byFile[f]) <= known[f] {
			continue
		}
		for _, x := range byFile[f] {
			fmt.Printf("%s:%d: %s: %s: %q\n", x.file, x.line, x.of.kind, x.of.remedy, x.text)
		}
		if !all {
			fmt.Printf("%s: %d findings, known.txt allows %d\n", f, len(byFile[f]), known[f])
		}
		more++
	}
	if more > 0 && !all {
		return fmt.Errorf("%d files have more unclear sentences than before: write them in other words", more)
	}
	return nil
}

// look finds the patterns in a page or in the comments of a source.
func look(file string, b []byte) (out []finding) {
	if bytes.Contains(b[:min(len(b), 400)], []byte("DO NOT EDIT")) {
		return nil
	}
	page := strings.HasSuffix(file, ".md")
	pieces := comments(file, string(b))
	if page {
		pieces = sentences(string(b))
	} else {
		out = long(file, string(b))
	}
	for _, p := range pieces {
		for _, of := range patterns {
			if of.pages && !page {
				continue
			}
			if m := of.find.FindString(p.text); m != "" {
				out = append(out, finding{file, p.line, of, strings.TrimSpace(m)})
			}
		}
		if page {
			out = append(out, tooLong(file, p)...)
		}
	}
	return out
}

func tooLong(file string, p piece) []finding {
	n := len(strings.Fields(p.text))
	if n <= mostWords {
		return nil
	}
	return []finding{{file, p.line, longSentence, fmt.Sprintf("%.40s... has %d words", p.text, n)}}
}

var (
	public   = regexp.MustCompile(`^(coordinated|gpustate|mpiwrap|slurm|storage|compat)/(.*/)?[^/]*\.go$`)
	apart    = regexp.MustCompile(`/internal/|_test\.go$|test/|/gpubench/|/scale/`)
	exported = regexp.MustCompile(
		`^(func (\(\w+ \*?[A-Z]\w*(\[.*\])?\) )?[A-Z]|type [A-Z]|\t[A-Z]\w*[ ,(]|package|const|var)`)
	header  = regexp.MustCompile(`^lib/[^/]*\.(h|hpp|F90)$`)
	begins  = regexp.MustCompile(`^\s*(// ?|/\*\*? ?| \* ?|! ?)`)
	example = regexp.MustCompile(`(?ms)^\.Bd .*?^\.Ed$`)
	macro   = regexp.MustCompile(`^\.(Pp|It|Sh|Ss|Bl|El|D1|Dl|Nd|Ft|Fn \w+ "|In)`)
	inline  = regexp.MustCompile(`(?m)^\.[A-Z][a-z] `)
)

// long finds the sentences of a manual page, a help text, a public header, or the godoc of exported names that have too
// many words. A list of exit codes has semicolons between its sentences.
func long(file, source string) (out []finding) {
	lines := strings.Split(source, "\n")
	add := func(first int, text string) {
		for _, p := range sentences(text) {
			p.line += first
			out = append(out, tooLong(file, p)...)
		}
	}
	switch {
	case strings.HasSuffix(file, ".txt"):
		add(0, strings.NewReplacer(";", ".", "\n  ", "\n\n    ").Replace(source))
	case strings.HasSuffix(file, ".3"):
		lines = strings.Split(example.ReplaceAllStringFunc(source, func(s string) string {
			return strings.Repeat("\n", strings.Count(s, "\n"))
		}), "\n")
		for i, line := range lines {
			if macro.MatchString(line) {
				lines[i] = ""
			}
		}
		add(0, inline.ReplaceAllString(strings.Join(lines, "\n"), ""))
	case header.MatchString(file), public.MatchString(file) && !apart.MatchString(file):
		for i := 0; i < len(lines); i++ {
			first, text := i, ""
			for within := false; i < len(lines) && (within || begins.MatchString(lines[i])); i++ {
				within = within || strings.HasPrefix(strings.TrimSpace(lines[i]), "/*")
				within = within && !strings.Contains(lines[i], "*/")
				line := strings.TrimSuffix(begins.ReplaceAllString(lines[i], ""), "*/")
				text += strings.ReplaceAll(line, "\t", "    ") + "\n"
			}
			if text != "" && (header.MatchString(file) || i < len(lines) && exported.MatchString(lines[i])) {
				add(first, text)
			}
		}
	}
	return out
}

// A piece is a sentence, or a line of a comment, and its first line.
type piece struct {
	line int
	text string
}

var (
	link = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	code = regexp.MustCompile("`[^`]*`")
	end  = regexp.MustCompile(`[.!?:]["')*]*(\s|$)`)
	item = regexp.MustCompile(`^\s*([-*] |\d+\. )`)
)

// sentences divides a page into sentences. Programs and headings, also those of tables, are none. A cell of a table is
// a paragraph, and so is an item of a list.
func sentences(page string) (out []piece) {
	var paragraph strings.Builder
	begin, inCode := 0, false
	flush := func() {
		text := code.ReplaceAllString(link.ReplaceAllString(paragraph.String(), "$1"), "x")
		for text != "" {
			to := len(text)
			if at := end.FindStringIndex(text); at != nil {
				to = at[1]
			}
			if s := strings.TrimSpace(text[:to]); s != "" {
				out = append(out, piece{begin, s})
			}
			text = text[to:]
		}
		paragraph.Reset()
	}
	add := func(n int, text string) {
		if paragraph.Len() == 0 {
			begin = n
		}
		paragraph.WriteString(text + " ")
	}
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		n := i + 1
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			flush()
			inCode = !inCode
		case inCode, strings.HasPrefix(line, "#"), strings.HasPrefix(line, "    ") && paragraph.Len() == 0:
		case i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|--"): // the heading of a table
			flush()
		case strings.HasPrefix(line, "|"):
			flush()
			for cell := range strings.SplitSeq(code.ReplaceAllString(line, "x"), "|") {
				add(n, cell)
				flush()
			}
		case strings.TrimSpace(line) == "":
			flush()
		case item.MatchString(line):
			flush()
			add(n, item.ReplaceAllString(line, ""))
		default:
			add(n, strings.TrimSpace(line))
		}
	}
	flush()
	return out
}

// comments lists the lines of comments of a source. A text in quotes that holds the mark of a comment counts as one,
// which is seldom and does no harm.
func comments(file, source string) (out []piece) {
	mark, within := "//", false
	switch filepath.Ext(file) {
	case ".py":
		mark = "#"
	case ".F90":
		mark = "!"
	}
	for i, line := range strings.Split(source, "\n") {
		t := strings.TrimSpace(line)
		if _, after, ok := strings.Cut(line, mark); ok && !within {
			out = append(out, piece{i + 1, strings.TrimSpace(after)})
			continue
		}
		if mark == "//" && strings.HasPrefix(t, "/*") {
			within = true
		}
		if within {
			out = append(out, piece{i + 1, strings.Trim(t, "/* ")})
		}
		within = within && !strings.Contains(t, "*/")
	}
	return out
}

// show prints the findings of each kind, in pages and in comments, and the words of each page.
func show(files []string, byFile map[string][]finding) {
	kinds := append(slices.Clone(patterns), longSentence)
	for _, p := range kinds {
		pages, sources := 0, 0
		for f, all := range byFile {
			for _, x := range all {
				switch {
				case x.of.kind != p.kind:
				case strings.HasSuffix(f, ".md"):
					pages++
				default:
					sources++
				}
			}
		}
		fmt.Printf("%-20s pages %5d  comments %5d\n", p.kind, pages, sources)
	}
	total := 0
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.HasSuffix(f, ".md") {
			n := len(strings.Fields(string(b)))
			total += n
			fmt.Printf("%6d words  %4d findings  %s\n", n, len(byFile[f]), f)
		}
	}
	fmt.Printf("%6d words in all\n", total)
}

func readKnown() (map[string]int, error) {
	b, err := os.ReadFile(knownFile)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	known := map[string]int{}
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		n, file, ok := strings.Cut(line, " ")
		if n == "*" && ok {
			known[file] = math.MaxInt
		} else if known[file], err = strconv.Atoi(n); line != "" && (err != nil || !ok) {
			return nil, fmt.Errorf("%s:%d: want a number or *, and a file", knownFile, i+1)
		}
	}
	return known, nil
}

func writeKnown(byFile map[string][]finding) error {
	var lines []string
	for f, all := range byFile {
		switch {
		case len(all) == 0:
		case strings.HasSuffix(f, ".md"):
			lines = append(lines, fmt.Sprintf("%d %s\n", len(all), f))
		default:
			lines = append(lines, "* "+f+"\n")
		}
	}
	slices.SortFunc(lines, func(a, b string) int {
		_, a, _ = strings.Cut(a, " ")
		_, b, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	return os.WriteFile(knownFile, []byte(strings.Join(lines, "")), 0o644)
}
