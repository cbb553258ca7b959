// Package sourcetest has programs of hostile clients, for tests.
package sourcetest

import (
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Hostile are sources that read, or look for, a file of the server, by their method.
func Hostile(file string) map[string]string {
	return map[string]string{
		"absolute":         "#include \"" + file + "\"\n",
		"angle":            "#include <" + file + ">\n",
		"up":               "#include <../../.." + file + ">\n",
		"relative":         "#include \"secret\"\n",
		"blanks":           "  #\t include\t\"" + file + "\"\n",
		"comment between":  "#/* */include /* */ \"" + file + "\"\n",
		"long comment":     "#/*\n*/include \"" + file + "\"\n",
		"spliced":          "#inc\\\nlude \"" + file + "\"\n",
		"spliced, blanks":  "#inc\\  \nlude \"" + file + "\"\n",
		"spliced, windows": "#inc\\\r\nlude \"" + file + "\"\n",
		"digraph":          "%:include \"" + file + "\"\n",
		"trigraph":         "?" + "?=include \"" + file + "\"\n",
		"macro":            "#define F \"" + file + "\"\n#include F\n",
		"next":             "#include_next \"" + file + "\"\n",
		"embed":            "__constant char s[] = {\n#embed \"" + file + "\"\n};\n",
		"import":           "#import \"" + file + "\"\n",
		"behind a text":    "__constant char *a = \"/*\";\n#include \"" + file + "\"\n__constant char *b = \"*/\";\n",
		"is it there":      "#if __has_include(\"" + file + "\")\n#error yes\n#endif\n",
		"assembler":        "__kernel void g(void) { __asm__(\".incbin \\\"" + file + "\\\"\"); }\n",
		"assembler, split": "__kernel void g(void) { __asm__(\".inc\" \"bin \\\"" + file + "\\\"\"); }\n",
		"module assembler": "__asm(\".include \\\"" + file + "\\\"\");\n",
		"pragma":           "#pragma GCC dependency \"" + file + "\"\n",
		"pragma module":    "#pragma clang module build x\n",
		"operator":         "_Pragma(\"GCC dependency \\\"" + file + "\\\"\")\n",
		"operator, raw":    "_Pragma(R\"(GCC dependency \"x\")\")\n",
		"pasted operator":  "#define P(a, b) a##b\nP(_Pra, gma)(\"GCC dependency \\\"" + file + "\\\"\")\n",
		"pasted probe":     "#define P(a, b) a##b\n#if P(__has_, include)(\"" + file + "\")\n#error yes\n#endif\n",
		"pasted by a header": "#include <sys/cdefs.h>\n#if __CONCAT(__has_, include)(\"" + file + "\")\n#error yes\n" +
			"#endif\n",
		"operator, macro": "#define P(x) _Pragma(x)\nP(\"GCC dependency \\\"x\\\"\")\n",
	}
}

// Assembly are programs with assembler that reads the file, of which no search finds a
// word.
func Assembly(file string) map[string]driver.ProgramDesc {
	join := "#define Q(a, b) a##b\n#define P(a, b) Q(a, b)\n"
	read := "(\".inc\" \"lude \\\"" + file + "\\\"\");\n"
	return map[string]driver.ProgramDesc{
		"joined":    {OpenCL: join + "P(__as, m__)" + read},
		"thrice":    {OpenCL: strings.ReplaceAll(join, "##", "%:%:") + "P(P(_, _a), P(s, m))" + read},
		"by option": {OpenCL: join + "P(A, m__)" + read, Options: "-DA=__as"},
		"in a body": {OpenCL: join + "__kernel void g(void) { P(__as, m__)" + read + "}"},
	}
}
