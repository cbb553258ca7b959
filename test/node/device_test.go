package node

import (
	"fmt"
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

// fakeGPU builds the driver for tests, and returns the environment of a program that loads it: the driver comes last.
func fakeGPU(t *testing.T, driver string) []string {
	t.Helper()
	dir := t.TempDir()
	library, flag := "libcuda.so.1", "-UFAKE_HIP"
	if driver == "hip" {
		library, flag = "libamdhip64.so.6", "-DFAKE_HIP"
	}
	must(t, "gcc", "-std=c11", "-Wall", "-Wextra", "-Wno-unused-variable", "-Wno-unused-function", "-Werror", "-shared",
		"-fPIC", "-pthread", flag, "testdata/fakegpu.c", "-o", filepath.Join(dir, library))
	// What a device never brings fails soon.
	return append(environ(t, filepath.Join(dir, "ckpt")), "HOLDFAST_WRITE_TIMEOUT=30s", "LD_LIBRARY_PATH="+dir)
}

// TestShadow has device memory brought to the host while the program goes on. The device stops that where the program
// wants: then the program changes and frees the memory, takes the next checkpoint, ends or is killed.
func TestShadow(t *testing.T) {
	shadow := compile(t, "gcc", "testdata/shadow.c", "-Wno-strict-prototypes", "-pthread", "-L"+built.lib, "-lholdfast",
		"-Wl,-rpath,"+built.lib)
	for _, tc := range []struct{ name, driver, mode, env, restored string }{
		{"late", "cuda", "late", "", "7"},
		{"late of HIP", "hip", "late", "", "7"},
		{"in part", "cuda", "late", "FAKE_UNUSED=2600000", "7"}, // half of it, for 1.2 MB and the grid
		{"no memory", "cuda", "direct", "FAKE_UNUSED=0", "7"},
		{"memory of others", "hip", "direct", "FAKE_PIECES=2", "7"}, // those of the program
		{"none wanted", "cuda", "direct", "HOLDFAST_MAX_SHADOW=none", "7"},
		{"little wanted", "cuda", "direct", "HOLDFAST_MAX_SHADOW=100KB", "7"},
		{"killed", "cuda", "kill", "", "7"},
		{"failed", "hip", "fail", "", "7"},
		{"failed, then not", "cuda", "again", "", "11"},
		{"the next one waits", "cuda", "second", "", "7"},
		{"finalize waits", "hip", "end", "", "7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // most of the time they wait for daemons to end
			twice(t, append(fakeGPU(t, tc.driver), tc.env), []string{shadow, tc.driver, "300000", tc.mode},
				"shadow: killed", "shadow: restored "+tc.restored+"\nshadow: the same")
		})
	}
}

// TestFakeGPU protects the memory of a driver for tests, which faults when the host touches it, and
// changes it late.
func TestFakeGPU(t *testing.T) {
	for _, driver := range []string{"cuda", "hip"} {
		t.Run(driver, func(t *testing.T) {
			env := fakeGPU(t, driver)
			library := env[len(env)-1]
			restoresDevice(t, env, driver, "100000")
			if driver == "cuda" {
				env = append(pythonEnviron(environ(t, filepath.Join(t.TempDir(), "python"))), library)
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
	shadow := compile(t, "gcc", "testdata/shadow.c", "-Wno-strict-prototypes", "-pthread", "-L"+built.lib, "-lholdfast",
		"-Wl,-rpath,"+built.lib)
	env = environ(t, filepath.Join(t.TempDir(), "shadow"))
	twice(t, env, []string{shadow, "cuda", "100000000", "late"}, "shadow: killed", "shadow: the same")
	global := compile(t, "gcc", "testdata/global.c", "-L"+built.lib, "-lholdfast", "-Wl,-rpath,"+built.lib, "-ldl")
	env = append(environ(t, filepath.Join(t.TempDir(), "global")), "DEVICE=1")
	for i, n := range []int{3, 2} {
		launchRanks(t, n, global, env, "100", "stop-at", fmt.Sprint(2*i+2)).mustEnd()
	}
}
