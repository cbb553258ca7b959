package gpud

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// TestOptions: options that name files, or that nobody knows, are refused.
func TestOptions(t *testing.T) {
	for _, good := range []string{"", "-D N=3 -DX -DF(x)=x+1 -U N",
		"-cl-std=CL2.0 -cl-mad-enable -cl-fast-relaxed-math -cl-kernel-arg-info",
		"-Werror -w -g -O3", "--std=c++17 --use_fast_math --fmad=false -lineinfo --maxrregcount=32 " +
			"--gpu-architecture=sm_90",
		"-cl-nv-maxrregcount=32", "-DNAME=\"text\" -D PATH=/etc"} {
		if err := checkOptions(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"-I /etc", "-I/etc", "-include /etc/passwd", "--include-path=/etc", "-include-pch x",
		"--pre-include=/etc/passwd",
		"@/etc/passwd", "-Xclang -load", "-fplugin=/tmp/x.so", "-D", "-D -I", "/etc/passwd", "-cl-std=CL2.0 -I.",
		"-imacros /etc/passwd",
		"\"-I\" /etc", "-save-temps", "-o /tmp/x", "-cl-opt=/etc/passwd", "--options-file x", "-idirafter /",
		"-isystem/etc",
		"-DX=1\n-I/etc", "-M", "-MF x", "-Wp,-I/etc", "-Wa,-I/etc", "-dump-codeplist=/tmp/x", "--time=/tmp/x", "-v"} {
		if checkOptions(bad) == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

// hostileSources read, or look for, a file of the server.
func hostileSources(file string) map[string]string {
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

// hiddenAssembly has no word of assembler that a search finds.
func hiddenAssembly(file string) map[string]driver.ProgramDesc {
	join := "#define Q(a, b) a##b\n#define P(a, b) Q(a, b)\n"
	read := "(\".inc\" \"lude \\\"" + file + "\\\"\");\n"
	return map[string]driver.ProgramDesc{
		"joined":    {OpenCL: join + "P(__as, m__)" + read},
		"thrice":    {OpenCL: strings.ReplaceAll(join, "##", "%:%:") + "P(P(_, _a), P(s, m))" + read},
		"by option": {OpenCL: join + "P(A, m__)" + read, Options: "-DA=__as"},
		"in a body": {OpenCL: join + "__kernel void g(void) { P(__as, m__)" + read + "}"},
	}
}

const innocent = `
// include nothing; pragma matters not
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#include <opencl-c-base.h>
#define NAME "include"
#pragma unroll 4
_Pragma("unroll 4")
#define CAT(a, s, m) a##_##s##m
#if defined(X) && __has_builtin(y)
#endif
__kernel void k(__global int *includes) { includes[0] = 1; }
`

func TestText(t *testing.T) {
	for name, text := range hostileSources("/etc/passwd") {
		if checkSource(&driver.ProgramDesc{OpenCL: text}, true) == nil {
			t.Errorf("%s passes:\n%s", name, text)
		}
	}
	if err := checkSource(&driver.ProgramDesc{OpenCL: innocent}, true); err != nil {
		t.Errorf("an innocent source: %v", err)
	}
	for _, d := range []driver.ProgramDesc{
		{Options: "-DA=__asm__", OpenCL: `A(".inc" "bin \"x\"");`},
		{Options: "-DH=__has_include", OpenCL: "#if H(</etc/passwd>)\n#error yes\n#endif\n"},
		{Options: "-DP(x)=_Pragma(x)", OpenCL: `P("GCC dependency \"x\"")`},
	} {
		if checkSource(&d, true) == nil {
			t.Errorf("%q passes with options %q", d.OpenCL, d.Options)
		}
	}
	if err := checkText("asm volatile(\"mov.u32 %0, %laneid;\" : \"=r\"(x)); // CUDA", false); err != nil {
		t.Errorf("inline PTX: %v", err)
	}
}

// TestNoFiles: a hostile client learns nothing of a file of the server, from no
// build log, whatever its source or its options say; trusted ones may include.
func TestNoFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	ok(t, os.WriteFile(file, []byte("top secret words\n"), 0o600))
	for _, trusts := range []bool{false, true} {
		// unconfined: what the filter lets through is to be seen
		p := serveHere(t, Options{TrustSources: trusts, Unconfined: true, Offer: func(i driver.Info) bool {
			return i.Platform == "Portable Computing Language"
		}})
		d := must(gpustate.Open(gpustate.Select{Remote: p.addr, KeyFile: p.sel.KeyFile}))(t)
		sources := hostileSources(file)
		for _, options := range []string{"-include " + file, "-I " + filepath.Dir(file), "-imacros " + file} {
			sources[options] = "__kernel void k(void) {}"
		}
		seen := 0
		for name, text := range sources {
			options := ""
			if strings.HasPrefix(name, "-") {
				options = name
			}
			_, err := d.Program("", gpustate.Sources{OpenCL: text}, options)
			if err != nil && (strings.Contains(err.Error(), "secret words") || strings.Contains(err.Error(), "'top'")) {
				seen++
			}
			if !trusts && (err == nil || !strings.Contains(err.Error(), "--trust-sources")) {
				t.Errorf("%s: got %v, want a refusal", name, err)
			}
		}
		for name, desc := range hiddenAssembly(file) {
			_, err := d.Program("", gpustate.Sources{OpenCL: desc.OpenCL}, desc.Options)
			if trusts != (err == nil) || !trusts && !strings.Contains(err.Error(), "--trust-sources") {
				t.Errorf("hidden assembler, %s, trusting %v: got %v", name, trusts, err)
			}
		}
		if trusts != (seen > 0) {
			t.Errorf("trusting %v: %d logs showed the file", trusts, seen)
		}
		_, err := d.Program("good", gpustate.Sources{OpenCL: "__kernel void k(__global int *a) { a[0] = N; }"},
			"-D N=3 -cl-mad-enable")
		ok(t, err)
		ok(t, d.Close())
	}
}

// serveHere is serve with this machine's devices instead of fake ones.
func serveHere(t *testing.T, o Options) *place {
	t.Helper()
	o.Worker = []string{"/proc/self/exe", workerArg}
	return serve(t, o)
}

// FuzzText: whatever passes has no directive that a preprocessor would find.
func FuzzText(f *testing.F) {
	for _, text := range hostileSources("/x") {
		f.Add(text)
	}
	f.Add(innocent)
	f.Fuzz(func(t *testing.T, text string) {
		if checkText(text, true) != nil {
			return
		}
		for n, line := range strings.Split(text, "\n") {
			if word, ok := strings.CutPrefix(strings.TrimLeft(line, " \t"), "#include"); ok &&
				!strings.HasPrefix(strings.TrimLeft(word, " \t"), "<") &&
				(word == "" || strings.ContainsAny(word[:1], " \t\"")) {
				t.Errorf("line %d passes: %q", n, line)
			}
		}
	})
}

// TestRefusedSource: the refusal is an error of the build, with the program's name.
func TestRefusedSource(t *testing.T) {
	err := checkSource(&driver.ProgramDesc{Name: "p", OpenCL: "#include \"x\"\n"}, false)
	var build *driver.BuildError
	if !errors.As(err, &build) || build.Program != "p" || !errors.Is(err, errRefusedSource) {
		t.Errorf("got %v", fmt.Sprint(err))
	}
}
