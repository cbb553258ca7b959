// Package steady tests scripts/steady.sh, by which make test runs the tests of packages that start
// ranks.
package steady

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// begun is the head of each package's tests here: first tells whether a test of that name runs for
// the first time, by a file that it makes.
const begun = `package p

import (
	"os"
	"testing"
)

func first(name string) bool {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		f.Close()
	}
	return err == nil
}

func TestGood(t *testing.T) {}
`

// TestSteady: only tests that fail once, and few of them, do not fail the run.
func TestSteady(t *testing.T) {
	t.Parallel()
	test := func(name, does string) string { return "func " + name + "(t *testing.T) { " + does + " }\n" }
	once := func(name string) string { return test(name, "if first(\""+name+"\") { t.Error() }") }
	for name, c := range map[string]struct {
		tests string
		fails bool
		says  string
	}{
		"good":      {"", false, "ok"},
		"once":      {once("TestA") + once("TestB"), false, "UNSTEADY again/p: ^(TestA|TestB)$"},
		"subtest":   {test("TestA", `t.Run("s", func(t *testing.T) { if first("a") { t.Fail() } })`), false, "(TestA)"},
		"many":      {once("TestA") + once("TestB") + once("TestC") + once("TestD"), true, "not run again"},
		"always":    {test("TestA", "t.Error()"), true, "three runs more"},
		"often":     {test("TestA", `if first("a") { t.Error() } else { os.Remove("a") }`), true, "three runs more"},
		"panic":     {test("TestA", `if first("a") { panic("once") }`), true, "not run again"},
		"race":      {test("TestA", `if first("a") { t.Error("[1]: WARNING: DATA RACE") }`), true, "not run again"},
		"no build":  {test("TestA", "nothing()"), true, "not run again"},
		"exit":      {"func TestMain(m *testing.M) { m.Run(); os.Exit(1) }\n", true, "not run again"},
		"exit late": {test("TestA", `if first("a") { t.Error() } else { os.Exit(3) }`), true, "three runs more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := steady(t, c.tests)
			if (err != nil) != c.fails || !strings.Contains(output, c.says) {
				t.Errorf("error %v, want one: %t; want in the output %q:\n%s", err, c.fails, c.says, output)
			}
			if good := "ok  \tagain/good"; !strings.Contains(output, good) {
				t.Errorf("want %q, of the other package, in the output:\n%s", good, output)
			}
		})
	}
}

// steady runs the script over a module of two packages, one of them with these tests.
func steady(t *testing.T, tests string) (output string, err error) {
	t.Helper()
	script, err := filepath.Abs("../../scripts/steady.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":            "module again\n\ngo 1.26\n",
		"p/p_test.go":       begun + tests,
		"good/good_test.go": "package good\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) {}\n",
	} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", script, "go", "-count=1", "-vet=off", "--", "again/p", "again/good")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}
