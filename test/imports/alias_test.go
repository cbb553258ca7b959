package imports

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestAliasesSayWhatTheyAre: go doc shows no fields and no methods of an alias, so the comment of one that stands for
// a type of an internal package names them.
func TestAliasesSayWhatTheyAre(t *testing.T) {
	aliases := 0
	for _, p := range list(t) {
		if slices.Contains(strings.Split(p.Path, "/"), "internal") || within(p.Path, "test") ||
			within(p.Path, "gpustate/gpubench") { // for the benchmarks alone
			continue
		}
		for _, a := range aliasesOf(t, dirOf(p.Path)) {
			aliases++
			if strings.Contains(a.comment, "see storage."+a.as) {
				continue // which this test reads, too
			}
			for _, name := range exportedOf(t, dirOf(a.from), a.name) {
				if !regexp.MustCompile(`\b` + name + `\b`).MatchString(a.comment) {
					t.Errorf("%s: the comment of %s does not say that it has %s: add the line of %s",
						p.Path, a.as, name, a.from)
				}
			}
		}
	}
	if aliases < 20 {
		t.Errorf("found only %d aliases", aliases)
	}
}

// alias is a public name of a type of an internal package.
type alias struct{ as, comment, from, name string }

// dirOf returns where a package of the module lies.
func dirOf(path string) string {
	return filepath.Join("..", "..", strings.TrimPrefix(strings.TrimPrefix(path, module), "/"))
}

func aliasesOf(t *testing.T, dir string) (out []alias) {
	t.Helper()
	for _, f := range filesOf(t, dir) {
		imports := map[string]string{}
		for _, i := range f.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			imports[path[strings.LastIndex(path, "/")+1:]] = path
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, s := range g.Specs {
				spec := s.(*ast.TypeSpec)
				of, ok := spec.Type.(*ast.SelectorExpr)
				if !ok || spec.Assign == 0 || !spec.Name.IsExported() {
					continue
				}
				from := imports[fmt.Sprint(of.X)]
				if strings.HasPrefix(from, module+"/") && strings.Contains(from, "/internal/") {
					out = append(out, alias{spec.Name.Name, g.Doc.Text() + spec.Doc.Text(), from, of.Sel.Name})
				}
			}
		}
	}
	return out
}

// exportedOf lists the exported fields and methods of a type, but for those that every error or record has. What an
// embedded type has is its own.
func exportedOf(t *testing.T, dir, name string) (out []string) {
	t.Helper()
	for _, f := range filesOf(t, dir) {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && receiver(n.Recv.List[0].Type) == name && n.Name.IsExported() &&
					!slices.Contains([]string{"Error", "Unwrap", "Is", "String", "Encode"}, n.Name.Name) {
					out = append(out, n.Name.Name)
				}
				return false
			case *ast.TypeSpec:
				if n.Name.Name == name {
					out = append(out, membersOf(n.Type)...)
				}
				return false
			}
			return true
		})
	}
	return out
}

// membersOf lists the exported fields of a struct, or the methods of an interface.
func membersOf(of ast.Expr) (out []string) {
	var list *ast.FieldList
	switch of := of.(type) {
	case *ast.StructType:
		list = of.Fields
	case *ast.InterfaceType:
		list = of.Methods
	default:
		return nil
	}
	for _, f := range list.List {
		for _, n := range f.Names {
			if n.IsExported() {
				out = append(out, n.Name)
			}
		}
	}
	return out
}

func receiver(of ast.Expr) string {
	if p, ok := of.(*ast.StarExpr); ok {
		of = p.X
	}
	return fmt.Sprint(of)
}

// filesOf parses the files of a package but for its tests.
func filesOf(t *testing.T, dir string) (out []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}
