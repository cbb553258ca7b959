// Package schema makes the JSON schemas of docs/schemas from the Go types that commands write with --json, and checks
// output against them.
package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
)

const module = "github.com/holdfast-hpc/holdfast"

// began is the working directory in which the test began: that of its package.
var began, _ = os.Getwd()

// root returns the directory of the repository, which has two modules.
func root() string {
	dir := began
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "docs", "schemas")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	panic("no docs/schemas above " + began)
}

// Dir returns the directory of the schemas.
func Dir() string { return filepath.Join(root(), "docs", "schemas") }

// object is a schema, whose keys are written in the order of their names.
type object = map[string]any

// fields are properties, which are written in the order of the struct.
type fields []field

type field struct {
	name   string
	schema object
}

// MarshalJSON writes an object.
func (list fields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, f := range list {
		b.WriteByte("{,"[min(i, 1)])
		text, err := json.Marshal(map[string]object{f.name: f.schema})
		if err != nil {
			return nil, err
		}
		b.Write(text[1 : len(text)-1])
	}
	if len(list) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// maker collects the schemas of types.
type maker struct {
	raw  map[string]reflect.Type // by TYPE.FIELD: the type that a json.RawMessage holds
	defs object
	errs []string
}

// parsed has the files of packages.
var parsed = map[string][]*ast.File{}

// Make returns the schema of one line that a command writes: a value of one of the types. raw has a value for each
// field of type json.RawMessage, by TYPE.FIELD. Every field needs a comment, which becomes its description.
func Make(title string, raw map[string]any, types ...any) ([]byte, error) {
	m := &maker{raw: map[string]reflect.Type{}, defs: object{}}
	for name, v := range raw {
		m.raw[name] = reflect.TypeOf(v)
	}
	var any []object
	for _, v := range types {
		any = append(any, m.of(reflect.TypeOf(v)))
	}
	out := object{"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, "anyOf": any}
	if len(m.defs) > 0 {
		out["$defs"] = m.defs
	}
	if len(m.errs) > 0 {
		return nil, fmt.Errorf("schema of %s: %s", title, strings.Join(m.errs, "; "))
	}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}

// of returns the schema of a type.
func (m *maker) of(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[time.Duration]():
		return object{"type": "integer"} // record names the unit
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Slice:
		return object{"type": "array", "items": m.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": m.of(t.Elem())}
	case reflect.Pointer:
		return m.of(t.Elem())
	case reflect.Interface:
		return object{}
	case reflect.Struct:
		if _, done := m.defs[t.Name()]; !done {
			m.defs[t.Name()] = nil // for types that hold themselves
			m.defs[t.Name()] = m.record(t)
		}
		return object{"$ref": "#/$defs/" + t.Name()}
	}
	m.fail("%v has no schema", t)
	return nil
}

func (m *maker) fail(format string, args ...any) {
	m.errs = append(m.errs, fmt.Sprintf(format, args...))
}

// record returns the schema of a struct, as encoding/json writes it.
func (m *maker) record(t reflect.Type) object {
	properties, required := fields{}, []string{}
	var rest any = false
	for _, f := range reflect.VisibleFields(t) {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || tag == "-" {
			continue
		}
		owner := t
		for _, i := range f.Index[:len(f.Index)-1] {
			owner = owner.Field(i).Type
		}
		if options == "unknown" { // the fields that have no name here
			rest = true
			continue
		}
		name := owner.Name() + "." + f.Name
		text := m.comment(owner, f.Name)
		if text == "" {
			m.fail("%s.%s has no comment", t.PkgPath(), name)
		}
		optional := strings.Contains(options, "omit")
		if tag == "" {
			tag = f.Name
		}
		of := f.Type
		if of == reflect.TypeFor[json.RawMessage]() {
			if of = m.raw[name]; of == nil {
				m.fail("%s is of any type", name)
				continue
			}
		}
		s := m.of(of)
		if !optional { // a nil value is written as null
			required = append(required, tag)
			switch simple, _ := s["type"].(string); {
			case of.Kind() == reflect.Slice || of.Kind() == reflect.Map || of.Kind() == reflect.Pointer && simple != "":
				s["type"] = []string{simple, "null"}
			case of.Kind() == reflect.Pointer || of.Kind() == reflect.Interface:
				m.fail("%s may be null: give it omitempty", name)
			}
		}
		if of == reflect.TypeFor[time.Duration]() {
			text += ", in nanoseconds"
		}
		if values := m.values(of, owner.PkgPath()); len(values) > 0 {
			s["enum"] = values
		}
		s["description"] = text
		properties = append(properties, field{tag, s})
	}
	return object{"type": "object", "description": m.comment(t, ""), "properties": properties,
		"required": required, "additionalProperties": rest}
}

// parse returns the files of a package.
func (m *maker) parse(path string) []*ast.File {
	if files, ok := parsed[path]; ok {
		return files
	}
	var files []*ast.File
	dir := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	if path == "main" {
		dir = "cmd/holdfast"
	}
	names, err := filepath.Glob(filepath.Join(root(), dir, "*.go"))
	for _, name := range names {
		var f *ast.File
		if f, err = parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments); err != nil {
			break
		}
		files = append(files, f)
	}
	if err != nil || files == nil {
		m.fail("parse %s: %v", path, err)
	}
	parsed[path] = files
	return files
}

// comment returns the comment of a type, or of its field.
func (m *maker) comment(t reflect.Type, field string) (text string) {
	for _, f := range m.parse(t.PkgPath()) {
		ast.Inspect(f, func(n ast.Node) bool {
			g, _ := n.(*ast.GenDecl)
			for i := 0; g != nil && i < len(g.Specs); i++ {
				spec, _ := g.Specs[i].(*ast.TypeSpec)
				switch {
				case spec == nil || spec.Name.Name != t.Name():
				case field == "":
					text = plain(g.Doc.Text() + spec.Doc.Text())
					if _, is, ok := strings.Cut(text, t.Name()+" is "); ok {
						text = is
					}
					text = strings.ToUpper(text[:1]) + text[1:]
				default:
					text = ofField(spec.Type.(*ast.StructType), field)
				}
			}
			return true
		})
	}
	return text
}

func ofField(s *ast.StructType, field string) string {
	for _, f := range s.Fields.List {
		for _, n := range f.Names {
			if n.Name == field {
				return plain(f.Doc.Text() + f.Comment.Text())
			}
		}
	}
	return ""
}

var link = regexp.MustCompile(`\[([\w.]+)\]`)

// plain makes a line of a comment. A link to a Go name becomes the name.
func plain(text string) string {
	return link.ReplaceAllString(strings.Join(strings.Fields(text), " "), "$1")
}

// values returns the constants of a named string type: those of its package, and of the package that uses it.
func (m *maker) values(t reflect.Type, user string) (out []string) {
	if t.Kind() != reflect.String || t.PkgPath() == "" {
		return nil
	}
	for _, f := range slices.Concat(m.parse(t.PkgPath()), m.parse(user)) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			of, value := spec.Type, spec.Values[0]
			if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 1 { // package.Type("text")
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
					of, value = sel.Sel, call.Args[0]
				}
			}
			if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING && fmt.Sprint(of) == t.Name() {
				out = append(out, strings.Trim(lit.Value, `"`))
			}
			return true
		})
	}
	slices.Sort(out)
	return slices.Compact(out)
}
