package source

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/source/sourcetest"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// TestOptions: options that name files, or that are unknown, are refused.
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

const innocent = `
// include nothing; pragma matters not
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#include <opencl-c-base.h>
#define NAME "include"
#pragma unroll 4
_Pragma("unroll 4")
#define UNROLL _Pragma("unroll")
#define UNROLL_2 _Pragma("unroll 2")
#define CAT(a, s, m) a##_##s##m
#if defined(X) && __has_builtin(y)
#endif
__kernel void k(__global int *includes) { includes[0] = 1; }
`

func TestText(t *testing.T) {
	for name, text := range sourcetest.Hostile("/etc/passwd") {
		if Check(&driver.ProgramDesc{OpenCL: text}, true) == nil {
			t.Errorf("%s passes:\n%s", name, text)
		}
		text = "#include <stddef.h>\n#pragma unroll\n" + text
		if Check(&driver.ProgramDesc{OpenCL: text}, true) == nil {
			t.Errorf("%s passes behind what may be:\n%s", name, text)
		}
	}
	if err := Check(&driver.ProgramDesc{OpenCL: innocent}, true); err != nil {
		t.Errorf("an innocent source: %v", err)
	}
	for _, d := range []driver.ProgramDesc{
		{Options: "-DA=__asm__", OpenCL: `A(".inc" "bin \"x\"");`},
		{Options: "-DH=__has_include", OpenCL: "#if H(</etc/passwd>)\n#error yes\n#endif\n"},
		{Options: "-DP(x)=_Pragma(x)", OpenCL: `P("GCC dependency \"x\"")`},
	} {
		if Check(&d, true) == nil {
			t.Errorf("%q passes with options %q", d.OpenCL, d.Options)
		}
	}
	if err := checkText("asm volatile(\"mov.u32 %0, %laneid;\" : \"=r\"(x)); // CUDA", false); err != nil {
		t.Errorf("inline PTX: %v", err)
	}
}

// FuzzText: whatever passes has no directive that a preprocessor would find.
func FuzzText(f *testing.F) {
	for _, text := range sourcetest.Hostile("/x") {
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
	err := Check(&driver.ProgramDesc{Name: "p", OpenCL: "#include \"x\"\n"}, false)
	var build *driver.BuildError
	if !errors.As(err, &build) || build.Program != "p" || !errors.Is(err, ErrRefused) {
		t.Errorf("got %v", err)
	}
}
