package cl

import (
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// TestKernelFault: a kernel that touched what is not its own is no lack of memory.
func TestKernelFault(t *testing.T) {
	for call, want := range map[string]error{"clCreateBuffer": driver.ErrOutOfMemory,
		"clEnqueueMapBuffer": driver.ErrOutOfMemory,
		"command":            driver.ErrKernelFault, "clFinish": driver.ErrKernelFault,
		"clEnqueueReadBuffer": driver.ErrKernelFault,
		"clWaitForEvents":     driver.ErrKernelFault, "clEnqueueNDRangeKernel": driver.ErrKernelFault} {
		err := check(call, -5)
		if !errors.Is(err, want) || errors.Is(err, driver.ErrOutOfMemory) != (want == driver.ErrOutOfMemory) {
			t.Errorf("%s: got %v, want one that matches %q", call, err, want)
		}
	}
}

func TestCheck(t *testing.T) {
	if err := check("clFinish", 0); err != nil {
		t.Errorf("success is %v", err)
	}
	err := check("clCreateBuffer", -4)
	var call *driver.CallError
	if !errors.As(err, &call) || call.Code != -4 || call.Call != "clCreateBuffer" ||
		!errors.Is(err, driver.ErrOutOfMemory) {
		t.Errorf("got %v", err)
	}
	if err := check("clFoo", -4711); err == nil || err.Error() != "clFoo: unknown OpenCL error (-4711)" {
		t.Errorf("got %v", err)
	}
}

func TestVersion(t *testing.T) {
	for text, want := range map[string]int{
		"OpenCL 3.0 PoCL HSTR": 30, "OpenCL 1.2 (Oclgrind 21.10)": 12, "OpenCL 2.1": 21, "nonsense": 0, "": 0,
	} {
		if got := versionOf(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
	if got := cstring([]byte(" name \x00rest")); got != "name" {
		t.Errorf("got %q", got)
	}
}
