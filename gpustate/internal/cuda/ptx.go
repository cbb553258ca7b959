package cuda

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
)

var (
	ptxComments   = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	ptxAttributes = regexp.MustCompile(`\.attribute\s*\((?:[^()]|\([^()]*\))*\)`)
	ptxEntry      = regexp.MustCompile(`\.entry\s+([\w$%]+)\s*(?:\(([^)]*)\))?`)
	ptxHeap       = regexp.MustCompile(`\.func\s*(?:\([^)]*\)\s*)?(malloc|cudaMalloc)\b`)
)

// ptx reads the text of a module.
func (in *inside) ptx(text string) {
	text = ptxAttributes.ReplaceAllString(ptxComments.ReplaceAllString(text, " "), " ")
	in.heap = in.heap || ptxHeap.MatchString(text)
	for _, m := range ptxEntry.FindAllStringSubmatch(text, -1) {
		if sizes, ok := ptxParams(m[2]); ok {
			in.params[m[1]] = sizes
		}
	}
	for _, statement := range ptxStatements(text) {
		in.ptxVariables(ptxTokens(statement))
	}
}

// ptxStatements divides a module into statements, which end with a semicolon or a brace of a block. It
// leaves out the initial values of variables, even those in braces.
func ptxStatements(text string) (list []string) {
	var b strings.Builder
	depth, values := 0, false // depth of the braces of initial values
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			if n := strings.IndexByte(text[i+1:], '"'); n >= 0 {
				i += n + 1
			}
		case values && c == '{':
			depth++
		case values && c == '}' && depth > 0:
			depth--
		case values && depth > 0:
		case c == '=':
			values = true
		case c == ';' || c == '{' || c == '}':
			list = append(list, b.String())
			b.Reset()
			values = false
		case values && c != ',':
		case c == ',':
			values = false
			fallthrough
		default:
			b.WriteByte(c)
		}
	}
	return append(list, b.String())
}

// ptxTokens returns the ptx tokens of a declaration; directives need no space between them. Other statements
// than declarations, which do not begin with a directive, have none.
func ptxTokens(statement string) []string {
	statement = strings.TrimSpace(statement)
	if !strings.HasPrefix(statement, ".") {
		return nil
	}
	return strings.Fields(strings.ReplaceAll(statement, ".", " ."))
}

// ptxVariables finds the variables that a statement declares in global memory: words such as ".visible .global .align 4
// .u32 counter". The same word behind ".ptr" is about the target of a parameter; ".extern" is declared elsewhere.
func (in *inside) ptxVariables(words []string) {
	for i, w := range words {
		if w != ".global" || i > 0 && (words[i-1] == ".ptr" || words[i-1] == ".extern") {
			continue
		}
		rest := words[i+1:]
		for len(rest) > 0 && strings.HasPrefix(rest[0], ".") {
			switch rest[0] {
			case ".texref", ".samplerref", ".surfref":
				return
			case ".align":
				rest = rest[1:]
			}
			rest = rest[min(1, len(rest)):]
		}
		for _, name := range strings.Split(strings.Join(rest, " "), ",") {
			name, _, _ = strings.Cut(name, "[")
			if name = strings.TrimSpace(name); ours(name) {
				in.variables = append(in.variables, name)
			}
		}
		return
	}
}

// ptxTypes are the bytes of PTX's types.
var ptxTypes = map[string]int{
	".b8": 1, ".u8": 1, ".s8": 1, ".b16": 2, ".u16": 2, ".s16": 2, ".f16": 2, ".bf16": 2,
	".b32": 4, ".u32": 4, ".s32": 4, ".f32": 4, ".f16x2": 4, ".bf16x2": 4,
	".b64": 8, ".u64": 8, ".s64": 8, ".f64": 8, ".b128": 16,
	".texref": 8, ".samplerref": 8, ".surfref": 8,
}

// ptxParams gives the bytes of each parameter in a list such as
// ".param .u64 k_param_0, .param .align 4 .b8 k_param_1[12]".
func ptxParams(list string) (sizes []int, ok bool) {
	if strings.TrimSpace(list) == "" {
		return nil, true
	}
	for _, p := range strings.Split(list, ",") {
		n := 0
		for _, w := range strings.Fields(p) {
			n = cmp.Or(n, ptxTypes[w])
		}
		for _, dim := range strings.Split(p, "[")[1:] {
			length, _, _ := strings.Cut(dim, "]")
			count, err := strconv.Atoi(strings.TrimSpace(length))
			if err != nil {
				return nil, false
			}
			n *= count
		}
		if n <= 0 {
			return nil, false
		}
		sizes = append(sizes, n)
	}
	return sizes, true
}
