package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/spf13/cobra"
)

// each calls do for every command that does something and that people see.
func each(root *cobra.Command, do func(*cobra.Command)) {
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if !c.HasSubCommands() {
			do(c)
		}
		each(c, do)
	}
}

// TestEveryCommand: each says what it does, what its exit codes mean, and writes
// JSON on demand.
func TestEveryCommand(t *testing.T) {
	seen := 0
	each(newRoot(), func(c *cobra.Command) {
		seen++
		if c.Short == "" || !strings.Contains(c.Long, "Exit codes: ") {
			t.Errorf("%s: no exit codes in its help", c.CommandPath())
		}
		if c.Flags().Lookup("json") == nil && !c.DisableFlagParsing { // which another program has
			t.Errorf("%s has no --json", c.CommandPath())
		}
		if c.Args == nil {
			t.Errorf("%s does not say how many arguments it takes", c.CommandPath())
		}
	})
	if seen < 15 {
		t.Errorf("saw %d commands", seen)
	}
}

func TestMan(t *testing.T) {
	dir := t.TempDir()
	if code, out, errs := run(t, "man", dir); code != cli.Good || !strings.Contains(out, "pages in") {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	code, out, _ := run(t, "man", dir, "--json")
	if code != cli.Good || !strings.Contains(out, "man5/holdfast.yaml.5") {
		t.Errorf("as JSON: exit code %d, %s", code, out)
	}
	each(newRoot(), func(c *cobra.Command) {
		page := filepath.Join(dir, "man1", strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		text, err := os.ReadFile(page)
		if err != nil || !strings.Contains(string(text), "EXIT STATUS") ||
			regexp.MustCompile(`(?m)^\.SH .*\n\.PP$`).Match(text) { // mandoc warns of that
			t.Errorf("%s: %v, no exit codes in it, or a paragraph macro after a heading", page, err)
		}
	})
	// What is to be copied keeps its lines.
	text, err := os.ReadFile(filepath.Join(dir, "man1", "holdfast-config.1"))
	if err != nil || !strings.Contains(string(text), ".EX\nlocal: /scratch/me/ckpt\nglobal: ") {
		t.Errorf("the example of config is not set as one: %v, %s", err, text)
	}
	text, err = os.ReadFile(filepath.Join(dir, "man1", "holdfast.1"))
	for _, want := range []string{".SH SYNOPSIS\n\\fBholdfast\\fR \\fIcommand", ".TP\n\\fBholdfast\\-ls\\fR(1)",
		".SH ENVIRONMENT", ".TP\n\\fBHOLDFAST_BIN"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("holdfast.1 has no %q (%v): %s", want, err, text)
		}
	}
	text, err = os.ReadFile(filepath.Join(dir, "man5", "holdfast.yaml.5"))
	for _, v := range coordinated.ReadConfig("").Values() {
		if err != nil || !strings.Contains(string(text), ".TP\n\\fB"+v.Key+"\\fR\n") {
			t.Errorf("holdfast.yaml.5 has no %s: %v", v.Key, err)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, out, _ := run(t, "completion", shell); code != cli.Good || !strings.Contains(out, "holdfast") {
			t.Errorf("%s: exit code %d", shell, code)
		}
	}
	code, out, _ := run(t, "__complete", "config", "--ex")
	if code != cli.Good || !strings.Contains(out, "--example\t") {
		t.Errorf("completion of config: exit code %d, %q", code, out)
	}
}

// TestMistakes: what cannot be done ends with one code and a word about it.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		args, want string
	}{
		{"nothing", `holdfast has no command "nothing"; see holdfast --help`},
		{"statsu", "do you mean status?"},
		{"ls", "give DIR, or set HOLDFAST_GLOBAL or HOLDFAST_LOCAL; usage: holdfast ls [DIR...]"},
		{"ls --nothing .", "unknown flag: --nothing; see holdfast ls --help"},
		{"completion tcsh", "holdfast completion has no command"},
		{"verify", "usage: holdfast verify [DIR...]"},
		{"verify nosuchdirectory", "directory nosuchdirectory cannot be used: it does not exist"},
		{"ls .", "it is not a checkpoint directory"},
		{"prune nosuchdirectory", "does not exist"},
		{"ls s4://bucket/x", "does not know the scheme s4:// (write s3://bucket/prefix for an object store"},
		{"verify S3://bucket/x", "does not know the scheme S3://"},
		{"export -e 3 4 energy -o x --from .", "the epoch is named twice: -e 3 and 4"},
		{"export", "needs an epoch: give -e EPOCH"},
		{"keep -e 3 4 .", "the epoch is named twice: -e 3 and 4"},
		{"show 8", "an epoch is named by -e 8"},
		{"ls ~/ckpt", "only the shell knows ~"},
		{"doctor now", "holdfast doctor does not take 1 argument; usage"},
		{"man", "usage: holdfast man DIR"},
		{"node", "which job is this daemon for? set HOLDFAST_NODE_KEY to a name"},
		{"repair", "holdfast repair needs an argument; usage: holdfast repair DIR..."},
		{"flush a b", "holdfast flush needs --to; usage: holdfast flush DIR... --to GLOBAL"},
		{"run --keep-every 5 -- true", "--keep-every: this flag is gone: set HOLDFAST_KEEP_EVERY"},
		{"gpud --patience 3s", "--patience: this setting is gone: use the flag --timeout of"},
		{"balance --move-key k a", "gpud-move.key beside gpud.key; see holdfast balance --help"},
		{"copy a --to b -j many", "--jobs many: want a whole number; see holdfast copy --help"},
		{"run --stall 5 -- true", "--stall 5: want a time with its unit, such as 30s, 5m or 2h; see"},
		{"gpud --quota much", "--quota: \"much\" is not a size"},
		{"run mpirun -n 2 ./app", "write -- before mpirun: holdfast run [flags] -- mpirun"},
		{"run -- nosuchprogram", "start nosuchprogram: there is no such program in PATH"},
		{"run ./nosuchprogram", "start ./nosuchprogram: there is no such file"},
		{"prune --keep 0 .", "--keep 0: want more than 0"},
		{"flush a --to b --salvage=", "--salvage needs a name"},
		{"request nosuch", "nosuch: there is no such directory; give the job's HOLDFAST_GLOBAL"},
		{"migrate nosuch 1", "\"nosuch\" is neither a process ID nor a directory"},
		{"pause nosuch", "\"nosuch\" is neither a process ID nor a directory"},
		{"migrate 99999999 1", "there is no process 99999999"},
		{"image 99999999 --dir d", "there is no process 99999999"},
		{"image nosuch --dir d", "\"nosuch\" is no process ID"},
		{"balance unix:/nosuch", "no server answered"},
		{"help nothing", `holdfast has no command "nothing"`},
		{"doctor --bytes 8GiB", "--bytes: this flag is gone: divide what a node writes"},
	} {
		code, out, errs := run(t, strings.Fields(c.args)...)
		if code != cli.NoLook || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s: exit code %d, %q, %q; want %d, nothing, and %q", c.args, code, out, errs, cli.NoLook, c.want)
		}
	}
}

// TestVersion: the command and the Python package have the version of holdfast.h.
func TestVersion(t *testing.T) {
	header, err := os.ReadFile("../../lib/holdfast.h")
	numbers := regexp.MustCompile(`(?m)^#define HF_VERSION_(MAJOR|MINOR|PATCH) (\d+)$`).FindAllSubmatch(header, -1)
	if err != nil || len(numbers) != 3 {
		t.Fatalf("%d numbers in holdfast.h: %v", len(numbers), err)
	}
	want := fmt.Sprintf("%s.%s.%s", numbers[0][2], numbers[1][2], numbers[2][2])
	code, out, _ := run(t, "--version")
	if code != cli.Good || !strings.HasPrefix(out, "holdfast version "+want+" (") ||
		!strings.Contains(out, "go1.") {
		t.Errorf("exit code %d, %q, want %s", code, out, want)
	}
	python, err := os.ReadFile("../../python/holdfast/__init__.py")
	if err != nil || !strings.Contains(string(python), "\n__version__ = \""+want+"\"\n") {
		t.Errorf("the Python package has another version than %s: %v", want, err)
	}
}

// TestHelpReads: the help of each command has an example with flags that are there, and lines that fit a terminal.
func TestHelpReads(t *testing.T) {
	check := func(c *cobra.Command) {
		found := false
		for line := range strings.Lines(c.Long) {
			words := strings.Fields(line)
			if !strings.HasPrefix(line, "  ") || !strings.Contains(strings.TrimSpace(line)+" ", c.CommandPath()+" ") {
				continue
			}
			found = true
			words = words[slices.Index(words, "holdfast")+1:]
			of, words, err := c.Root().Find(words)
			if err != nil || of.DisableFlagParsing { // bench has flags of another program
				continue
			}
			for _, w := range words {
				if w == "--" || w == "&&" { // behind it are the flags of another command
					break
				}
				name, long := strings.CutPrefix(w, "--")
				short, is := strings.CutPrefix(w, "-")
				if long && of.Flags().Lookup(name) == nil || is && !long && of.Flags().ShorthandLookup(short) == nil {
					t.Errorf("%s: its example has the flag %s: %s", c.CommandPath(), w, line)
				}
			}
		}
		if !found && !c.DisableFlagParsing {
			t.Errorf("%s: no example in its help", c.CommandPath())
		}
		code, out, errs := run(t, append(strings.Fields(c.CommandPath())[1:], "--help")...)
		if code != cli.Good && !c.DisableFlagParsing {
			t.Errorf("%s --help: exit code %d, %s", c.CommandPath(), code, errs)
		}
		for line := range strings.Lines(out) {
			if len(line) > 91 {
				t.Errorf("%s --help: %d columns: %s", c.CommandPath(), len(line), line)
			}
		}
	}
	root := newRoot()
	check(root)
	each(root, check)
	code, out, _ := run(t, "run", "--help")
	if code != cli.Good || !strings.Contains(out, "\n Slurm\n      --requeue ") ||
		strings.Index(out, "\n Other\n") < strings.Index(out, "--stall") {
		t.Errorf("the flags of run are not in groups: %s", out)
	}
}
