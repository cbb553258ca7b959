package object

import (
	"encoding/binary"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

func TestNeedsFP64(t *testing.T) {
	for source, want := range map[string]bool{
		"__kernel void k(__global double *x) {}":                                         true,
		"double4 f(double4 x) { return x; }":                                             true,
		"__kernel void k(__global float *x) {} // double":                                false,
		"/* double\n double */ __kernel void k() {}":                                     false,
		"float doubled(float x) { return 2 * x; }":                                       false,
		"#ifdef cl_khr_fp64\ntypedef double real;\n#else\ntypedef float real;\n#endif\n": false,
		"#if defined(__opencl_c_fp64)\ntypedef double real;\n#else\n#endif\n":            false,
		"#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n__kernel void k(double x) {}":    true,
		`__kernel void k() { printf("a \"double\": %d // or not\n", 2); }`:               false,
		`__kernel void k(char c) { if (c == '"') return; double x = c; }`:                true,
		"#define WIDE(x) \\\n ((double)(x))\n__kernel void k() {}":                       false,
		"#define WIDE(x) (x)\n__kernel void k(double x) {}":                              true,
	} {
		if got := needsFP64(source); got != want {
			t.Errorf("%q: got %v, want %v", source, got, want)
		}
	}
}

// TestUnloadable looks at binary forms of CUDA.
func TestUnloadable(t *testing.T) {
	cubin := func(abi byte, flags uint32) []byte {
		b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 57)...)
		b[7] = abi
		binary.LittleEndian.PutUint16(b[18:], 190)
		binary.LittleEndian.PutUint32(b[48:], flags)
		return b
	}
	for _, c := range []struct {
		image []byte
		arch  string
		fits  bool
	}{
		{cubin(0x33, 0x5a055a), "sm_90", true}, {cubin(0x33, 0x5a055a), "sm_80", false},
		{cubin(0x33, 0x500550), "sm_90", false},
		{cubin(0x33, 0x500550), "sm_86", true}, {cubin(0x33, 0x560556), "sm_80", false},
		{cubin(0x41, 0x06005a04), "sm_90", true}, {cubin(0x41, 0x06005a04), "sm_100", false},
		{[]byte(".version 7.0\n.target sm_70\n"), "sm_90", true}, {[]byte(".version 7.0\n.target sm_90a, debug\n"),
			"sm_80", false},
		{[]byte("something else"), "sm_90", true}, {nil, "sm_90", true}, {cubin(0x33, 0x5a055a)[:40], "sm_80", true},
	} {
		if why := unloadable(c.image, c.arch); (why == "") != c.fits {
			t.Errorf("%q on %s: %q", c.image, c.arch, why)
		}
		i := driver.Info{Kind: "cuda", Arch: c.arch, FP64: true}
		if err := checkProgram(&record.Program{PTX: append(c.image, ' ')}, i); (err == nil) != c.fits {
			t.Errorf("%q on %s: %v", c.image, c.arch, err)
		}
		if err := checkProgram(&record.Program{PTX: c.image, CUDA: "source"}, i); err != nil {
			t.Errorf("%q with source on %s: %v", c.image, c.arch, err)
		}
	}
}
