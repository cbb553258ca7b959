package object

import "testing"

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
