package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// restoresDevice has device killed after a checkpoint and starts it again.
func restoresDevice(t *testing.T, env []string, args ...string) {
	t.Helper()
	device := compile(t, "gcc", "testdata/device.c", "-Wno-strict-prototypes", "-L"+built.lib, "-lholdfast",
		"-Wl,-rpath,"+built.lib)
	twice(t, env, append([]string{device}, args...), "device: saved", "device: the same")
}

// twice runs a program two times, and wants words of each.
func twice(t *testing.T, env, command []string, saved, same string) {
	t.Helper()
	for _, words := range []string{saved, same} {
		j := launchOne(t, env, command)
		j.wait()
		if !strings.Contains(j.out.String(), words) {
			t.Fatalf("no %q:\n%s", words, j.out)
		}
	}
}

// TestFakeGPU protects the memory of a driver for tests, which faults when the host touches it, and
// changes it late.
func TestFakeGPU(t *testing.T) {
	for _, tc := range []struct{ driver, library, flag string }{
		{"cuda", "libcuda.so.1", "-UFAKE_HIP"},
		{"hip", "libamdhip64.so.6", "-DFAKE_HIP"},
	} {
		t.Run(tc.driver, func(t *testing.T) {
			dir := t.TempDir()
			must(t, "gcc", "-std=c11", "-Wall", "-Wextra", "-Wno-unused-variable", "-Werror", "-shared", "-fPIC",
				tc.flag, "testdata/fakegpu.c", "-o", filepath.Join(dir, tc.library))
			env := append(environ(t, filepath.Join(dir, "ckpt")), "LD_LIBRARY_PATH="+dir)
			restoresDevice(t, env, tc.driver, "100000")
			if tc.driver == "cuda" {
				env = append(pythonEnviron(environ(t, filepath.Join(dir, "python"))), "LD_LIBRARY_PATH="+dir)
				twice(t, env, []string{python(t), "testdata/ondevice.py"}, "cuda: saved", "cuda: the same")
			}
		})
	}
}

// TestCUDA does the same on a real device, where make test-gpu says that there is one.
func TestCUDA(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_GPU") == "" {
		t.Skip("it needs a CUDA device (make test-gpu)")
	}
	restoresDevice(t, environ(t, filepath.Join(t.TempDir(), "ckpt")), "cuda", "100000000")
	env := pythonEnviron(environ(t, filepath.Join(t.TempDir(), "python")))
	twice(t, env, []string{"python3", "testdata/ondevice.py"}, "cuda: saved", "cuda: the same")
}
