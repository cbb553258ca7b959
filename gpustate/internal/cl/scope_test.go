package cl

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

const kernelText = "\n__kernel void k(__global int *o) { int x = 1; o[0] = x; }\n"

// declarations of what kernels keep from one launch to the next.
var declarations = map[string]struct {
	source string
	names  string
}{
	"global":             {"__global int counter = 7;", "counter"},
	"default":            {"int counter;", "counter"},
	"array":              {"float grid[4][4];", "grid"},
	"initialised":        {"int a[2] = {1, 2}, b;", "a"},
	"struct":             {"struct s { int n; } state;", "state"},
	"typedef":            {"typedef struct { int n; } s; s state;", "state"},
	"attribute":          {"int counter __attribute__((aligned(8)));", "counter"},
	"static":             {"int next(void) { static int n; return n++; }", "n"},
	"static in block":    {"int next(void) { if (1) { for (;;) { static uint n = 3; return n++; } } return 0; }", "n"},
	"macro":              {"#define STATE int counter\nSTATE;", "counter"},
	"function macro":     {"#define DECLARE(type, name) global type name\nDECLARE(int, counter);", "counter"},
	"continued":          {"in\\\nt counter;", "counter"},
	"pointer":            {"__constant int *place;", "place"},
	"behind functions":   {"int f(int a) { return a; }\nint counter;\n", "counter"},
	"comment between":    {"int /* a; */ counter; // x", "counter"},
	"in brackets":        {"int (counter);", "counter"},
	"to an array":        {"__global int (*rows)[4];", "rows"},
	"typeof":             {"__typeof__(1) counter = 3;", "counter"},
	"behind a pragma":    {"_Pragma(\"OPENCL EXTENSION cl_khr_fp64 : enable\") int counter;", "counter"},
	"behind an assert":   {"_Static_assert(1, \"x\"); int counter;", "counter"},
	"static in brackets": {"int next(void) { static int (n); return n++; }", "n"},

	"assert":             {"_Static_assert(sizeof(int) == 4, \"x\");", ""},
	"unsigned function":  {"unsigned int f(unsigned int);", ""},
	"pointer function":   {"__global int *f(__global int *a);", ""},
	"struct function":    {"struct s { int n; }; struct s f(struct s a);", ""},
	"function attribute": {"int f(int a) __attribute__((pure));", ""},
	"none":               {"", ""},
	"constant":           {"__constant int table[2] = {1, 2};", ""},
	"const":              {"const int table[2] = {1, 2};", ""},
	"sampler":            {"__constant sampler_t s = CLK_FILTER_NEAREST;", ""},
	"prototype":          {"int f(int a, int b);", ""},
	"type":               {"struct s { int n; }; enum { A, B }; typedef int number;", ""},
	"forward":            {"struct s;", ""},
	"static constant":    {"int f(void) { static __constant int t[1] = {1}; return t[0]; }", ""},
	"local":              {"__kernel void l(void) { __local int n; }", ""},
	"in a comment":       {"// int counter;\n/* int counter; */", ""},
	"in a text":          {"__constant char *const t = \"; int counter;\";", ""},
	"macro not used":     {"#define STATE int counter;", ""},
	"static function":    {"static int f(int a) { return a; }", ""},
	"struct as argument": {"struct s { int n; }; int f(struct s a) { struct s b = a; return b.n; }", ""},
}

func TestVariables(t *testing.T) {
	for name, c := range declarations {
		got, whole := variables(c.source+kernelText, "-cl-std=CL2.0")
		if strings.Join(got, " ") != c.names && !(name == "in a text" && len(got) == 1) || !whole {
			t.Errorf("%s: got %q, whole %v; want %q", name, got, whole, c.names)
		}
		if got, _ := variables(c.source+kernelText, "-cl-std=CL1.2 -D N=1"); got != nil {
			t.Errorf("%s: OpenCL C 1.2 has %q", name, got)
		}
	}
	// C++, other compilers
	for _, text := range []string{"_Atomic(int) counter;", "int counter(3);", "int counter{3};"} {
		if got, _ := variables(text+kernelText, "-cl-std=CLC++"); !slices.Equal(got, []string{"counter"}) {
			t.Errorf("%s: got %q", text, got)
		}
	}
	for _, options := range []string{"-cl-std=cl2.0", "-cl-std=clc++2021", "-cl-std=\"CL3.0\"",
		"-cl-std=CL1.2 -cl-std=CL2.0"} {
		if got, _ := variables("int counter;"+kernelText, options); !slices.Equal(got, []string{"counter"}) {
			t.Errorf("%s: got %q", options, got)
		}
	}
	if got, _ := variables("STATE;", "-D STATE=int -cl-std=CL3.0"); got != nil {
		t.Errorf("got %q", got)
	}
	if got, _ := variables("NAME counter;", "-DNAME=int -cl-std=CL3.0"); !slices.Equal(got, []string{"counter"}) {
		t.Errorf("a macro of the options: got %q", got)
	}
	if _, whole := variables("#include \"a.h\"", "-cl-std=CL2.0"); whole {
		t.Error("a source that includes files passes for a whole one")
	}
}

// TestVariablesOfPoCL: what a platform builds and the search calls free of variables
// must be so; what has some is refused.
func TestVariablesOfPoCL(t *testing.T) {
	d, _ := poclDevice(t)
	for name, c := range declarations {
		p, err := d.Build(driver.ProgramDesc{Name: name, OpenCL: c.source + kernelText, Options: "-cl-std=CL2.0"})
		if err != nil && strings.Contains(err.Error(), "doesn't support that OpenCL C version") {
			t.Skip("this PoCL has no OpenCL C 2.0, in which programs can have variables")
		}
		if err != nil {
			t.Errorf("%s does not build: %v", name, err)
			continue
		}
		_, err = d.Globals(p)
		if c.names != "" && (!errors.Is(err, driver.ErrHidden) || !strings.Contains(err.Error(), c.names)) {
			t.Errorf("%s: got %v, want ErrHidden that names %s", name, err, c.names)
		}
		if err := d.ReleaseProgram(p); err != nil {
			t.Error(err)
		}
	}
}

func instruction(op uint32, words ...uint32) (b []byte) {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(words)+1)<<16|op)
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func TestSPIRV(t *testing.T) {
	var il []byte
	for _, w := range []uint32{spirvMagic, 0x10000, 0, 9, 0} {
		il = binary.LittleEndian.AppendUint32(il, w)
	}
	il = slices.Concat(il, instruction(opName, 3, binary.LittleEndian.Uint32([]byte("abc\x00"))),
		instruction(opDecorate, 4, decoConstant), instruction(opVariable, 1, 3, crossWorkgroup),
		instruction(opVariable, 1, 4, crossWorkgroup), instruction(opVariable, 1, 5, 7),
		instruction(opVariable, 1, 6, crossWorkgroup))
	if names, whole := spirvVariables(il); !slices.Equal(names, []string{"abc", "%6"}) || !whole {
		t.Errorf("got %q, whole %v; want abc and %%6", names, whole)
	}
	if _, whole := spirvVariables(il[:len(il)-4]); whole {
		t.Error("half a module passes for a whole one")
	}
}

func FuzzVariables(f *testing.F) {
	for _, c := range declarations {
		f.Add(c.source)
	}
	f.Add("[ a;")
	f.Add("#define A A A\n#define B A B A\nB;")
	f.Fuzz(func(t *testing.T, source string) {
		variables(source, "-cl-std=CL2.0")
		spirvVariables([]byte(source))
	})
}
