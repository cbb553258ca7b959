package cuda

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCUDA runs a program that nvcc has built, with each of NVIDIA's runtimes, on this machine's GPU: alone, with the
// library in front, and with roll backs. make test-gpu runs it.
func TestCUDA(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_GPU") == "" {
		t.Skip("make test-gpu runs it: it needs a GPU and nvcc")
	}
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		nvcc = "/usr/local/cuda/bin/nvcc"
	}
	driver := way{}
	inFront := driver.with("LD_PRELOAD=" + library())
	for _, runtime := range []string{"static", "shared"} {
		t.Run(runtime, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "runtime")
			if err := run([]string{nvcc, "-O2", "-arch=native", "-cudart", runtime, "-Xcompiler", "-pthread",
				"testdata/runtime.cu", "-o", program}); err != nil {
				t.Fatal(err)
			}
			want := driver.run(t, program)
			inFront.run(t, program).same(t, want)
			inFront.with("HOLDFAST_CUDA_CHECK=0").run(t, program).same(t, want)
			for seed := range 5 {
				r := inFront.with("HOLDFAST_CUDA_CHECK=12", "HOLDFAST_CUDA_CALLS=2200",
					fmt.Sprint("HOLDFAST_CUDA_SEED=", seed)).run(t, program)
				r.same(t, want)
				r.has(t, "12 of 12 roll backs")
				r.has(t, "not in the ledger: 0; calls not seen: 0 functions")
			}
		})
	}
}
