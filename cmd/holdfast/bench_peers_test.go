package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// standIn builds a library with VeloC's calls and returns its folder.
func standIn(t *testing.T) string {
	t.Helper()
	l, err := mpirun.Pick("")
	if err != nil {
		t.Skip(err)
	}
	home := t.TempDir()
	for _, d := range []string{"include", "lib"} {
		if err := os.Mkdir(filepath.Join(home, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	data := "../../internal/peerbench/testdata"
	header, err := os.ReadFile(data + "/veloc.h")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(home+"/include/veloc.h", header, 0o644); err != nil {
		t.Fatal(err)
	}
	cc := exec.Command(l.Compiler(), "-shared", "-fPIC", "-o", home+"/lib/libveloc-client.so", data+"/veloc.c")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Skipf("%v: %s", err, out)
	}
	return home
}

// TestBenchPeers: Holdfast is measured; a peer that is there too, through the
// driver that is compiled against it; one that is not says how to get it; one
// that restores other bytes is told so.
func TestBenchPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts MPI jobs")
	}
	t.Setenv("VELOC_HOME", standIn(t))
	t.Setenv("DMTCP_HOME", t.TempDir())
	bench := func() map[string]string {
		code, out, errs := run(t, "bench", "peers", "--json", "--mib", "1", "--runs", "2", "--dir", t.TempDir())
		if code != exitGood {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		found := map[string]string{}
		for _, l := range decodeLines(t, out) {
			name, _, _ := strings.Cut(l.Case, ",")
			found[name+": "+l.Metric] = l.Skipped
			if l.Skipped == "" && (l.Ratio == nil || *l.Ratio <= 0) {
				t.Errorf("got %+v", l)
			}
		}
		return found
	}
	found := bench()
	for _, name := range []string{"Holdfast", "VeloC"} {
		for _, metric := range []string{"program waits / raw write+fsync", "durable / raw write+fsync", "restore / raw read, warm"} {
			if why, ok := found[name+": "+metric]; !ok || why != "" {
				t.Errorf("%s, %s: %t %s", name, metric, ok, why)
			}
		}
	}
	if why := found["DMTCP: all"]; !strings.Contains(why, "DMTCP_HOME") {
		t.Errorf("DMTCP in a wrong place: %q", why)
	}
	if why := found["FTI: all"]; !strings.Contains(why, "to get it") {
		t.Logf("FTI is installed here, or: %q", why)
	}
	t.Setenv("FLIP", "1")
	if why := bench()["VeloC: restore / raw read, warm"]; !strings.Contains(why, "other bytes") {
		t.Errorf("a damaged restore: %q", why)
	}
}
