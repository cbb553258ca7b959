package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/test/launch"
)

// TestBenchOpenCL measures a little on PoCL: every figure is there. Without the library it says
// what to do.
func TestBenchOpenCL(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a program four times")
	}
	const pocl = "/etc/OpenCL/vendors/pocl.icd"
	lib := filepath.Join(t.TempDir(), "lib")
	args := []string{"opencl", "--json", "--lib", lib, "--vendors", pocl, "--device", "pocl", "--mib", "1",
		"--seconds", "0.001", "--runs", "1"}
	code, out, errs := run(t, args...)
	if l := decodeLines(t, out); code != cli.Good || len(l) != 1 || !strings.Contains(l[0].Skipped, "run make build") {
		t.Errorf("without the library: exit code %d, %s%s", code, out, errs)
	}
	for _, file := range []string{pocl, "/usr/include/CL/cl_icd.h"} {
		if _, err := os.Stat(file); err != nil {
			t.Skip("make setup installs " + file)
		}
	}
	if err := os.Mkdir(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := launch.Build(lib); err != nil {
		t.Fatal(err)
	}
	build(t, lib)
	cmd := exec.Command(lib+"/holdfast-bench", args...)
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	lines := decodeLines(t, string(text))
	for _, l := range lines {
		if l.Skipped != "" || l.Value <= 0 || l.Baseline == nil {
			t.Errorf("got %+v", l)
		}
	}
	if len(lines) != 7+7*2*2 { // of launches and computing; of seven ways, two sizes
		t.Errorf("got %d figures", len(lines))
	}
}
