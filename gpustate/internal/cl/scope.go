package cl

import (
	"regexp"
	"slices"
	"strings"
)

// OpenCL C from version 2.0 on has variables at program scope that kernels write,
// and static ones in functions. No call of OpenCL reads them, and some platforms
// say that programs have none when they have. So their declarations are looked for
// in the source.

var (
	newerC     = regexp.MustCompile(`(?i)-cl-std\s*=\s*["']?(CL[2-9]|CLC\+\+)`)
	comments   = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	texts      = regexp.MustCompile(`"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'`)
	tokens     = regexp.MustCompile(`[A-Za-z_]\w*|\d[\w.]*|\S`)
	defines    = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*define[ \t]+(\w+)(\(([^)]*)\))?[ \t]*([^\n]*)$`)
	includes   = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*(include|embed)\b`)
	directives = regexp.MustCompile(`(?m)^[ \t]*#[^\n]*$`)
	defined    = regexp.MustCompile(`-D\s*(\w+)(?:=(\S+))?`)
)

// variables returns the names of data that kernels of the source may keep from one launch to
// the next. whole is false if files are included, which are not searched.
func variables(source, options string) (names []string, whole bool) {
	if !newerC.MatchString(options) {
		return nil, true // the language has none
	}
	source = comments.ReplaceAllString(strings.ReplaceAll(source, "\\\n", ""), " ")
	whole = !includes.MatchString(source)
	source = texts.ReplaceAllString(source, `0`)
	m := macros{}
	for _, d := range defined.FindAllStringSubmatch(options, -1) {
		m[d[1]] = macro{body: tokens.FindAllString(d[2], -1)}
	}
	for _, d := range defines.FindAllStringSubmatch(source, -1) {
		m[d[1]] = macro{takes: d[2] != "", params: tokens.FindAllString(strings.ReplaceAll(d[3], ",", " "), -1),
			body: tokens.FindAllString(d[4], -1)}
	}
	s := scanner{words: m.expand(tokens.FindAllString(directives.ReplaceAllString(source, ""), -1), nil)}
	s.scope(true)
	return s.names, whole
}

// macros are expanded whatever conditions they stand under.
type macros map[string]macro

type macro struct {
	takes  bool // arguments
	params []string
	body   []string
}

func (m macros) expand(words, within []string) (out []string) {
	const most = 1 << 20 // words
	for i := 0; i < len(words) && len(out) < most; i++ {
		d, ok := m[words[i]]
		if !ok || slices.Contains(within, words[i]) || d.takes && (i+1 >= len(words) || words[i+1] != "(") {
			out = append(out, words[i])
			continue
		}
		name, body := words[i], d.body
		if d.takes {
			var args [][]string
			args, i = arguments(words, i+1)
			body = nil
			for _, w := range d.body {
				if n := slices.Index(d.params, w); n >= 0 && n < len(args) {
					body = append(body, args[n]...)
				} else {
					body = append(body, w)
				}
			}
		}
		out = append(out, m.expand(body, append(within[:len(within):len(within)], name))...)
	}
	return out
}

// arguments returns those in the brackets that open at words[i]; end is where they
// close.
func arguments(words []string, i int) (args [][]string, end int) {
	depth, current := 0, []string(nil)
	for ; i < len(words); i++ {
		switch w := words[i]; {
		case w == "(":
			if depth++; depth == 1 {
				continue
			}
		case w == ")":
			if depth--; depth == 0 {
				return append(args, current), i
			}
		case w == "," && depth == 1:
			args, current = append(args, current), nil
			continue
		}
		current = append(current, words[i])
	}
	return append(args, current), i
}

// scanner goes through declarations.
type scanner struct {
	words []string
	names []string
}

// scope reads to the bracket that closes it, or to the end. outer is the scope of
// the program; in functions only static variables count.
func (s *scanner) scope(outer bool) {
	var statement []string
	for len(s.words) > 0 {
		w := s.words[0]
		s.words = s.words[1:]
		switch w {
		case ";":
			s.declaration(statement, outer)
			statement = nil
		case "}":
			if !outer {
				return
			}
		case "{":
			switch {
			case slices.Contains(statement, "="): // initial values
				s.skip()
			case !slices.Contains(statement, ")") && hasAny(statement, "struct", "union", "enum"):
				s.skip()
				statement = append(statement, "{}")
			case outer && len(statement) > 1 && !slices.Contains(statement, ")") &&
				!hasAny(statement, "namespace", "extern"): // initial values in C++: int n{3}
				s.skip()
			default: // a function, or a block in one
				s.scope(false)
				statement = nil
			}
		default:
			statement = append(statement, w)
		}
	}
}

// skip passes over the contents of an open bracket.
func (s *scanner) skip() {
	for depth := 1; len(s.words) > 0 && depth > 0; s.words = s.words[1:] {
		switch s.words[0] {
		case "{":
			depth++
		case "}":
			depth--
		}
	}
}

func hasAny(words []string, any ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(any, w) })
}

// declaration notes the variables that a statement declares, unless they are
// constant.
func (s *scanner) declaration(words []string, outer bool) {
	words = withoutAttributes(words)
	if i := slices.Index(words, "="); i >= 0 {
		words = words[:i]
	}
	switch {
	case len(words) < 2 || hasAny(words, "typedef", "sampler_t", "return") || isFunction(words):
		return
	case !outer && !slices.Contains(words, "static"):
		return
	case hasAny(words, "constant", "__constant", "const") && !slices.Contains(words, "*"):
		return
	case hasAny(words, "local", "__local"): // of a work-group, gone with it
		return
	}
	ends := func(w string) bool { return w == "[" || w == ")" || numeral.MatchString(w) }
	if i := slices.IndexFunc(words, ends); i >= 0 {
		words = slices.DeleteFunc(words[:i], func(w string) bool { return w == "(" })
	}
	if len(words) == 0 { // no compiler takes it
		return
	}
	name := words[len(words)-1]
	if name == "{}" || len(words) >= 2 && hasAny(words[len(words)-2:len(words)-1], "struct", "union", "enum") {
		return // a type alone
	}
	s.names = append(s.names, name)
}

// isFunction reports whether a declaration is a function's, not a variable's as in
// "int (*rows)[4]" or, in C++, "int n(3)".
func isFunction(words []string) bool {
	i := slices.Index(words, "(")
	return i >= 2 && nameOf.MatchString(words[i-1]) && !typeWord.MatchString(words[i-1]) &&
		!numeral.MatchString(words[min(i+1, len(words)-1)])
}

var (
	nameOf   = regexp.MustCompile(`^[A-Za-z_]`)
	numeral  = regexp.MustCompile(`^[0-9]`)
	typeWord = regexp.MustCompile(`^(u?(char|short|int|long)|float|double|half)(2|3|4|8|16)?$|` +
		`^(unsigned|signed|bool|size_t|volatile|static|(__)?(global|private|generic)|_Atomic)$|` +
		`^((__)?typeof(__)?|decltype)$`)
)

// Words with brackets that are no names of functions, with their replacements.
var bracketed = map[string]bool{"__attribute__": false, "__attribute": false, "_Alignas": false, "alignas": false,
	"_Pragma": false, "_Static_assert": false, "static_assert": false,
	"_Atomic": true, "typeof": true, "__typeof": true, "__typeof__": true, "decltype": true}

// withoutAttributes leaves out __attribute__((...)), and the contents of the brackets of _Atomic(...).
func withoutAttributes(words []string) (out []string) {
	for i := 0; i < len(words); i++ {
		keep, known := bracketed[words[i]]
		if !known || keep {
			out = append(out, words[i])
		}
		if known && i+1 < len(words) && words[i+1] == "(" {
			_, i = arguments(words, i+1)
		}
	}
	return out
}
