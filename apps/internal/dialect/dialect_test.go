package dialect_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	matmul "github.com/holdfast-hpc/holdfast/apps/matmul/kernel"
	nbody "github.com/holdfast-hpc/holdfast/apps/nbody/kernel"
	smithwaterman "github.com/holdfast-hpc/holdfast/apps/smithwaterman/kernel"
	transpose "github.com/holdfast-hpc/holdfast/apps/transpose/kernel"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// TestCUDA has clang check the kernels of all applications as CUDA C, on machines without CUDA. The tests of each
// application compile them as OpenCL C.
func TestCUDA(t *testing.T) {
	for _, c := range []struct {
		name, options string
		sources       gpustate.Sources
	}{
		{"matmul", matmul.Options(true), matmul.Sources},
		{"matmul double", matmul.Options(false), matmul.Sources},
		{"nbody", nbody.Options, nbody.Sources},
		{"smithwaterman", smithwaterman.Options, smithwaterman.Sources},
		{"transpose", transpose.Options, transpose.Sources},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append(strings.Fields(c.options), "-fsyntax-only", "-Wall", "-Werror", "-x", "cuda",
				"--cuda-device-only", "-nocudainc", "-nocudalib", "-include", "testdata/nvrtc.h", "-")
			cmd := exec.Command(clang(t), args...)
			cmd.Stdin = strings.NewReader(c.sources.CUDA)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// clang finds the compiler, under its name or that of a version.
func clang(t *testing.T) string {
	t.Helper()
	names := []string{"clang"}
	for version := 25; version >= 14; version-- {
		names = append(names, fmt.Sprint("clang-", version))
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no clang here")
	return ""
}
