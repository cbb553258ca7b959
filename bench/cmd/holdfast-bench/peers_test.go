package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

const peerStandIns = "../../peers/testdata"

// standIn builds a library with a peer's calls and returns its directory.
func standIn(t *testing.T, name, link string) string {
	t.Helper()
	l, err := mpirun.Pick("")
	if err != nil {
		t.Skip(err)
	}
	home := filepath.Join(t.TempDir(), name+"-stand-in")
	for _, d := range []string{"include", "lib"} {
		if err := os.MkdirAll(filepath.Join(home, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	header, err := os.ReadFile(filepath.Join(peerStandIns, name+".h"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "include", name+".h"), header, 0o644); err != nil {
		t.Fatal(err)
	}
	cc := exec.Command(l.Compiler(), "-Wall", "-Werror", "-shared", "-fPIC", "-o",
		filepath.Join(home, "lib", "lib"+link+".so"), filepath.Join(peerStandIns, name+".c"))
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return home
}

// standInDMTCP returns a directory with commands that take DMTCP's arguments.
func standInDMTCP(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	if err := os.CopyFS(filepath.Join(home, "bin"), os.DirFS(filepath.Join(peerStandIns, "dmtcp"))); err != nil {
		t.Fatal(err)
	}
	return home
}

// TestBenchPeers: Holdfast is measured; a peer that is there too, through the
// driver that is compiled against it; one that is not says how to get it; one
// that restores other bytes fails. The peers are stand-ins with their calls,
// as their headers and documentation have them, and the rules about these.
func TestBenchPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts MPI jobs")
	}
	t.Setenv("VELOC_HOME", standIn(t, "veloc", "veloc-client"))
	t.Setenv("SCR_HOME", standIn(t, "scr", "scr"))
	t.Setenv("FTI_HOME", standIn(t, "fti", "fti"))
	t.Setenv("DMTCP_HOME", standInDMTCP(t))
	bench := func() map[string]string {
		code, out, errs := run(t, "peers", "--json", "--mib", "1", "--runs", "2", "--dir", t.TempDir())
		if code != cli.Good {
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
	for _, name := range []string{"Holdfast", "VeloC", "SCR", "FTI"} {
		for _, metric := range []string{"program waits / raw write+fsync", "durable / raw write+fsync",
			"restore / raw read, warm"} {
			if why, ok := found[name+": "+metric]; !ok || why != "" {
				t.Errorf("%s, %s: %t %s", name, metric, ok, why)
			}
		}
	}
	for _, metric := range []string{"program waits / raw write+fsync", "restore / raw read, warm (with its end)"} {
		if why, ok := found["DMTCP: "+metric]; !ok || why != "" {
			t.Errorf("DMTCP, %s: %t %s %s", metric, ok, why, found["DMTCP: all"])
		}
	}
	t.Setenv("FLIP", "1")
	t.Setenv("DMTCP_HOME", t.TempDir())
	t.Setenv("SCR_HOME", t.TempDir())
	found = bench()
	if why := found["VeloC: restore / raw read, warm"]; !strings.Contains(why, "differ from those written") {
		t.Errorf("a damaged restore: %q", why)
	}
	for name, variable := range map[string]string{"DMTCP": "DMTCP_HOME", "SCR": "SCR_HOME"} {
		if why := found[name+": all"]; !strings.Contains(why, variable) {
			t.Errorf("%s in a wrong place: %q", name, why)
		}
	}
}
