// Package cheader compares the constants of a Go package with those of a header in C, for tests: the two ends of a
// protocol are written in both languages.
package cheader

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Check wants each number of the header whose name begins with prefix to be a constant of the package in the folder
// dir, and each constant to be in the header, but for those of extra. HFP_MAX_BYTES is MaxBytes in Go; HFP_HELLO is
// Hello, or has the Go prefix kind, as TypeHello.
func Check(t *testing.T, header, prefix, dir, kind string, extra ...string) {
	t.Helper()
	text, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	inGo := constants(t, dir)
	number := regexp.MustCompile(`\b` + prefix + `(\w+)(?: = ?| +)((?:\(\w+\))?[(\w][\w() <]*)`)
	inC := 0
	for _, m := range number.FindAllStringSubmatch(comments.ReplaceAllString(string(text), ""), -1) {
		inC++
		name := kind + camel(m[1])
		if inGo[name] == nil {
			name = camel(m[1])
		}
		if want, err := value(m[2]); err != nil || inGo[name] == nil || !constant.Compare(inGo[name], token.EQL, want) {
			t.Errorf("C has %s %s, Go has %s %v (%v)", prefix+m[1], m[2], name, inGo[name], err)
		}
		delete(inGo, name)
	}
	for name, v := range inGo {
		if !slices.Contains(extra, name) {
			t.Errorf("Go has %s %v, %s does not", name, v, header)
		}
	}
	if inC < 10 {
		t.Errorf("found %d numbers in %s", inC, header)
	}
}

var comments = regexp.MustCompile(`(?s)/\*.*?\*/`)

// camel is SET_USER_EVENT as Go writes it.
func camel(name string) string {
	var b strings.Builder
	for _, word := range strings.Split(name, "_") {
		b.WriteString(word[:1] + strings.ToLower(word[1:]))
	}
	return b.String()
}

// value returns the value of an expression of C, which but for suffixes and types is one of Go.
func value(c string) (constant.Value, error) {
	c = regexp.MustCompile(`\((?:size_t|uint\d+_t)\)`).ReplaceAllString(c, "")
	c = regexp.MustCompile(`\b(0x[0-9a-f]+|\d+)u\b`).ReplaceAllString(c, "$1")
	v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, c)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", c, err)
	}
	return v.Value, nil
}

// constants returns the exported integers of a package.
func constants(t *testing.T, dir string) map[string]constant.Value {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	// what is imported is not needed for constants
	conf := types.Config{Error: func(error) {}, FakeImportC: true}
	p, _ := conf.Check(dir, set, files, nil)
	out := map[string]constant.Value{}
	for _, name := range p.Scope().Names() {
		if c, ok := p.Scope().Lookup(name).(*types.Const); ok && c.Exported() && c.Val().Kind() == constant.Int {
			out[name] = c.Val()
		}
	}
	return out
}
