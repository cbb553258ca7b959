package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// planted has a sentence for each pattern.
var planted = map[string]string{
	"P1 what, who":      "The daemon keeps a copy of what the ranks have sent.",
	"P2 says whether":   "The answer says whether it was restored.",
	"P3 is what":        "A shard is what one rank writes.",
	"P4 of it":          "The file has a name, and nobody else has a copy of it.",
	"P5 also where":     "The ranks wait, also where none is lost.",
	"P6 object first":   "Of an interrupted copy the next one takes the good part.",
	"P7 nobody":         "A job continues if nobody stops it.",
	"P8 heed, tell":     "The command heeds no signals.",
	"P9 anew":           "The directories are made anew.",
	"P10 long sentence": strings.Repeat("word ", mostWords) + "and more.",
	"P11 no contrast":   "- A wait ends when the device is lost; it hung.",
	"P12 so many":       "The ranks read so many bytes, and stop.",
}

func TestPlanted(t *testing.T) {
	for kind, text := range planted {
		found := false
		for _, x := range look("page.md", []byte("# A page\n\nThe first line is plain.\n\n"+text+"\n")) {
			found = found || x.of.kind == kind && x.line == 5 && x.of.remedy != ""
		}
		if !found {
			t.Errorf("%s is not found at line 5 in %q", kind, text)
		}
	}
	if len(planted) != len(patterns)+1 {
		t.Errorf("%d sentences for %d patterns", len(planted), len(patterns)+1)
	}
}

// TestPlain: plain sentences, code, tables, headings and links give no findings.
func TestPlain(t *testing.T) {
	page := "# What is it, and who uses it\n\nA rank copies its memory. It never waits.\n\n" +
		"    the daemon tells it anew what nobody knows\n\n```\nalso where\n```\n\n" +
		"| What | Who |\n|---|---|\n| `also where` | [two words](of-what.md) |\n\n" +
		"- " + strings.Repeat("word ", 20) + "end.\n- " + strings.Repeat("word ", 20) + "end.\n"
	for _, x := range look("page.md", []byte(page)) {
		t.Errorf("found %s at line %d: %q", x.of.kind, x.line, x.text)
	}
}

// TestComments: only comments of a source are looked at.
func TestComments(t *testing.T) {
	source := "package x\n\nvar a = \"made anew\" // of a kind\n\n// It is made anew.\n" +
		"/* Nobody\n * knows. */\nvar anew int\n"
	found := look("x.go", []byte(source))
	if len(found) != 2 || found[0].line != 5 || found[1].line != 6 {
		t.Errorf("got %v, want lines 5 and 6", found)
	}
	if found := look("x.py", []byte("a = 1  # made anew\n# b = 2\n")); len(found) != 1 || found[0].line != 1 {
		t.Errorf("got %v, want line 1 of Python", found)
	}
	if found := look("x.F90", []byte("a = 1 ! made anew\nb = 2 ! two\n")); len(found) != 1 || found[0].line != 1 {
		t.Errorf("got %v, want line 1 of Fortran", found)
	}
}

// TestLong: a sentence of godoc, of a header, a manual page or a help text has 30 words at most.
func TestLong(t *testing.T) {
	text := strings.Repeat("word ", mostWords) + "and more."
	for file, source := range map[string]string{
		"storage/x.go":     "package storage\n\n// Put writes.\n//\n// " + text + "\nfunc Put() {}\n",
		"lib/holdfast.h":   "int a;\n\n/* A call.\n *\n * " + text + " */\nint b;\n",
		"man/hf_init.3":    ".Sh NAME\n.Pp\n.Fn hf_init\ncalls.\n" + text + "\n",
		"cmd/help/run.txt": "run starts.\n\n\n\n" + text + "\n",
	} {
		if found := look(file, []byte(source)); len(found) != 1 || found[0].of.kind != longSentence.kind {
			t.Errorf("%s: found %v", file, found)
		}
	}
	for file, source := range map[string]string{
		"storage/x.go":     "package storage\n\n// put is not exported. " + text + "\nfunc put() {}\n",
		"cmd/help/run.txt": "Exit codes: 0" + strings.Repeat(" word", 20) + "; 1" + strings.Repeat(" word", 20) + ".\n",
	} {
		if found := look(file, []byte(source)); len(found) != 0 {
			t.Errorf("%s: found %v", file, found)
		}
	}
}

// TestKnown: a file may keep what known.txt allows, and gets no more.
func TestKnown(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bad := planted["P9 anew"] + "\n"
	files := []string{"a.md", "b.go"}
	write("a.md", bad)
	write("b.go", "// "+bad)
	if err := run(files, false, false, false); err == nil {
		t.Error("two new findings pass")
	}
	write(knownFile, "")
	if err := run(files, false, false, true); err != nil {
		t.Fatal(err)
	}
	if err := run(files, false, false, false); err != nil {
		t.Errorf("after -update: %v", err)
	}
	write("b.go", "// "+bad+"// "+bad)
	if err := run(files, false, false, false); err != nil {
		t.Errorf("a source that is listed: %v", err)
	}
	write("a.md", bad+"\n"+bad)
	if err := run(files, false, false, false); err == nil {
		t.Error("a page with one finding more passes")
	}
}
