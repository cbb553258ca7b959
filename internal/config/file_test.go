package config

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadFile: texts are what the file has, as it is written.
func TestReadFile(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"":                                   nil,
		"# nothing\n":                        nil,
		"a: /x\nB:\n  C_d: 5m\n":             {"a": "/x", "b.c_d": "5m"},
		"b.c: \"/a b\" # why":                {"b.c": "/a b"},
		"a: 1.10\nb: yes\nc: -1\nd: 0.5":     {"a": "1.10", "b": "yes", "c": "-1", "d": "0.5"},
		"a:\nb: ~\nc: {}":                    {"a": "", "b": ""},
		"a: [TERM, 5]\nb:\n- x\nc: []":       {"a": "TERM,5", "b": "x", "c": "none"},
		"x: &x {a: /d}\nb: *x\n<<: *x":       {"x.a": "/d", "b.a": "/d", "a": "/d"},
		"{\"a\": \"/x\", \"b\": {\"c\": 4}}": {"a": "/x", "b.c": "4"},
	} {
		got, err := readText(t, text)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: got %v and %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{"a": "key: value", "- a": "key: value", "a: [": "line 1",
		"a: 1\na: 2": "already defined", "\ta: 1": "cannot start", "a = 1": "key: value", "a: [[b]]": "line 1",
		"a: &a\n  b: *a": "contains itself"} {
		if got, err := readText(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v and %v, want an error with %q", text, got, err, want)
		}
	}
}

func readText(t *testing.T, text string) (map[string]string, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), File)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return readFile(name)
}
