package gputest

import (
	"os"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Platform is a device to test on and the environment it is found in.
type Platform struct {
	Name   string
	Env    []string // "NAME=value", set before the process starts
	Select gpustate.Select
}

// Platforms lists what the suite knows. A machine has some of them; opening the
// others fails with a *gpustate.NoDeviceError. dir holds files that loaders
// read, for as long as the platforms are in use.
func Platforms(dir string) ([]Platform, error) {
	nvidia := filepath.Join(dir, "nvidia")
	if err := os.MkdirAll(nvidia, 0o755); err != nil {
		return nil, err
	}
	// NVIDIA's OpenCL is often installed without being registered
	icd := filepath.Join(nvidia, "nvidia.icd")
	if err := os.WriteFile(icd, []byte("libnvidia-opencl.so.1\n"), 0o644); err != nil {
		return nil, err
	}
	list := []Platform{
		{Name: "fake", Select: gpustate.Select{Kind: "fake"}},
		{Name: "lazy", Select: gpustate.Select{Kind: "fake", Index: 1}}, // with lazy queues, as CUDA
		{Name: "pocl", Select: gpustate.Select{Kind: "opencl", Platform: "Portable Computing Language"}},
		{Name: "rusticl", Env: []string{"RUSTICL_ENABLE=llvmpipe"},
			Select: gpustate.Select{Kind: "opencl", Platform: "rusticl"}},
	}
	for _, lib := range []string{"/usr/lib/oclgrind/liboclgrind-rt-icd.so", "/usr/lib/x86_64-linux-gnu/oclgrind/liboclgrind-rt-icd.so"} {
		if _, err := os.Stat(lib); err == nil {
			list = append(list, Platform{Name: "oclgrind", Env: []string{"OCL_ICD_VENDORS=" + lib},
				Select: gpustate.Select{Kind: "opencl", Platform: "Oclgrind"}})
			break
		}
	}
	return append(list,
		Platform{Name: "nvidia", Env: []string{"OCL_ICD_VENDORS=" + nvidia},
			Select: gpustate.Select{Kind: "opencl", Vendor: "NVIDIA"}},
		Platform{Name: "cuda", Select: gpustate.Select{Kind: "cuda"}}), nil
}
