package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/bench"
)

// TestMain lets the test binary be a worker of the benchmark, or a rank of the
// doctor.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && (os.Args[1] == "doctor-rank" || os.Args[1] == "guard") || len(os.Args) > 2 &&
		(os.Args[1] == "start-rank" || os.Args[1] == "doctor-node" || os.Args[1] == "node" || os.Args[1] == "flush" &&
			os.Args[2] == "--salvage") || len(os.Args) > 2 && os.Args[1] == "bench" && os.Args[2] == "worker" {
		os.Exit(Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	if os.Getenv("VICTIM") != "" { // TestRun starts this binary as its program
		victim()
		os.Exit(exitGood)
	}
	os.Exit(m.Run())
}

// TestBenchStorage runs the benchmark on a little data: every metric is there
// with its baseline. How good they are is not for a test to say.
func TestBenchStorage(t *testing.T) {
	code, out, errs := run(t, "bench", "storage", "--json", "--procs", "2", "--mib", "2", "--runs", "1", "--dir",
		t.TempDir())
	if code != exitGood {
		t.Fatalf("got exit code %d: %s", code, errs)
	}
	var metrics []string
	for l := range strings.Lines(out) {
		var line bench.Row
		if err := json.Unmarshal([]byte(l), &line); err != nil {
			t.Fatalf("%v in %q", err, l)
		}
		if strings.Contains(line.Metric, "O_DIRECT") && line.Skipped != "" { // not every file system has it
			metrics = append(metrics, line.Metric)
			continue
		}
		if line.Skipped != "" || line.Suite != "storage" || line.Value <= 0 || line.Runs != 1 {
			t.Errorf("got %s", l)
		}
		metrics = append(metrics, line.Metric)
	}
	if len(metrics) != 12 {
		t.Errorf("got metrics %q, want 12", metrics)
	}
}

// TestBenchStorageResize: ranks read just the bytes that they need, on any number. Times are not for a test to judge.
func TestBenchStorageResize(t *testing.T) {
	code, out, errs := run(t, "bench", "storage", "--json", "--resize", "2", "--mib", "8", "--runs", "1", "--dir",
		t.TempDir())
	if code != exitGood {
		t.Fatalf("got exit code %d: %s", code, errs)
	}
	counted := 0
	for l := range strings.Lines(out) {
		var line bench.Row
		if err := json.Unmarshal([]byte(l), &line); err != nil {
			t.Fatalf("%v in %q", err, l)
		}
		if strings.Contains(line.Metric, "bytes read") {
			counted++
			if line.Met == nil || !*line.Met {
				t.Errorf("got %s", l)
			}
		}
	}
	if counted != 12 {
		t.Errorf("got %d figures of bytes, want 12", counted)
	}
}

// TestBenchStorageRanks: with --ranks operations are counted, and the shares of a rank are compared with those of 100.
func TestBenchStorageRanks(t *testing.T) {
	code, out, errs := run(t, "bench", "storage", "--json", "--ranks", "1,100,200", "--dir", t.TempDir())
	if code != exitGood {
		t.Fatalf("got exit code %d: %s", code, errs)
	}
	compared := 0
	for l := range strings.Lines(out) {
		var line bench.Row
		if err := json.Unmarshal([]byte(l), &line); err != nil {
			t.Fatalf("%v in %q", err, l)
		}
		if line.Case == "200 ranks" && line.Ratio != nil && line.Met != nil {
			compared++
		}
	}
	if compared < 4 {
		t.Errorf("got %d shares of 200 ranks compared with those of 100, want at least 4:\n%s", compared, out)
	}
}
