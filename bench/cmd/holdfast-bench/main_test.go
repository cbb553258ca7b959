package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
)

// TestMain lets the test binary be a worker of the suites.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "worker" {
		os.Exit(Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// build compiles packages of Holdfast, and holdfast-bench, into a directory.
func build(t *testing.T, dir string, packages ...string) {
	t.Helper()
	commands := []*exec.Cmd{exec.Command("go", "build", "-o", dir+"/", ".")}
	if len(packages) > 0 {
		product := exec.Command("go", append([]string{"build", "-o", dir + "/"}, packages...)...)
		product.Dir = "../../.."
		commands = append(commands, product)
	}
	for _, cmd := range commands {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// TestBenchStorage runs the benchmark on a little data: every metric is there
// with its baseline. How good they are is not for a test to say.
func TestBenchStorage(t *testing.T) {
	code, out, errs := run(t, "storage", "--json", "--procs", "2", "--mib", "2", "--runs", "1", "--dir",
		t.TempDir())
	if code != cli.Good {
		t.Fatalf("got exit code %d: %s", code, errs)
	}
	var metrics []string
	for _, line := range decodeLines(t, out) {
		if strings.Contains(line.Metric, "O_DIRECT") && line.Skipped != "" { // not every file system has it
			metrics = append(metrics, line.Metric)
			continue
		}
		if line.Skipped != "" || line.Suite != "storage" || line.Value <= 0 || line.Runs != 1 {
			t.Errorf("got %+v", line)
		}
		metrics = append(metrics, line.Metric)
	}
	if len(metrics) != 12 {
		t.Errorf("got metrics %q, want 12", metrics)
	}
}

// TestBenchStorageResize: ranks read just the bytes that they need, on any number. Times are not for a test to judge.
func TestBenchStorageResize(t *testing.T) {
	code, out, errs := run(t, "storage", "--json", "--resize", "2", "--mib", "8", "--runs", "1", "--dir",
		t.TempDir())
	if code != cli.Good {
		t.Fatalf("got exit code %d: %s", code, errs)
	}
	counted := 0
	for _, line := range decodeLines(t, out) {
		if strings.Contains(line.Metric, "bytes read") {
			counted++
			if line.Met == nil || !*line.Met {
				t.Errorf("got %+v", line)
			}
		}
	}
	if counted != 12 {
		t.Errorf("got %d figures of bytes, want 12", counted)
	}
}
