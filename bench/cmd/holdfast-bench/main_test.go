package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/test/pocl"
	"github.com/holdfast-hpc/holdfast/test/schema"
)

// TestMain lets the test binary be a worker of the suites.
func TestMain(m *testing.M) {
	pocl.Alone()
	if len(os.Args) > 2 && os.Args[1] == "worker" {
		os.Exit(Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	dir, err := os.MkdirTemp("", "holdfast-bench")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	itself = dir + "/holdfast-bench"
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// itself is the program under test, once linked has made it.
var itself string

var linked = sync.OnceValue(func() error {
	if out, err := exec.Command("go", "build", "-o", itself, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), args, &out, &errs)
	if slices.Contains(args, "--json") {
		if err := schema.Check("bench", out.String()); err != nil {
			t.Error(err)
		}
	}
	return code, out.String(), errs.String()
}

// build compiles packages of Holdfast, and holdfast-bench, into a directory.
func build(t *testing.T, dir string, packages ...string) {
	t.Helper()
	if err := linked(); err != nil {
		t.Fatal(err)
	}
	commands := []*exec.Cmd{exec.Command("cp", itself, dir+"/")}
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
