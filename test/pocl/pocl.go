// Package pocl has tests load PoCL, and no other OpenCL library of the machine. Whoever looks for devices loads all
// that there are; with Mesa's among them a process that opens a device takes half a second of a core longer to start.
package pocl

import "os"

const (
	variable = "OCL_ICD_VENDORS"
	file     = "/etc/OpenCL/vendors/pocl.icd"
)

// Alone has this process, if it has not looked for devices yet, and those that it starts load PoCL alone. It does
// nothing if PoCL is not installed, if the environment names what to load, or if tests are for a GPU.
func Alone() {
	for _, name := range []string{variable, "HOLDFAST_DEVICE", "HOLDFAST_TEST_GPU"} {
		if os.Getenv(name) != "" {
			return
		}
	}
	if _, err := os.Stat(file); err == nil {
		_ = os.Setenv(variable, file) // the name is a good one
	}
}

// Env returns the variable, KEY=VALUE, that has a process load PoCL alone; nothing where it is not installed.
func Env() []string {
	if _, err := os.Stat(file); err != nil {
		return nil
	}
	return []string{variable + "=" + file}
}
