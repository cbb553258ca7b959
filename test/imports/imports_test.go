package imports

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// TestModule applies the rules to the packages of this module as they are.
func TestModule(t *testing.T) {
	packages := list(t)
	if len(packages) == 0 {
		t.Fatal("go list found no packages, want at least this one")
	}
	for _, v := range violations(packages) {
		t.Error(v)
	}
}

// list returns the packages of the module as the go command sees them.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var packages []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		if err := dec.Decode(&p); err == io.EOF {
			return packages
		} else if err != nil {
			t.Fatalf("decode the output of go list: %v", err)
		}
		packages = append(packages, pkg{
			Path:        p.ImportPath,
			Imports:     p.Imports,
			TestImports: p.TestImports,
			OutsideTest: p.XTestImports,
		})
	}
}

func TestViolations(t *testing.T) {
	const m = module + "/"
	cases := []struct {
		name     string
		packages []pkg
		want     string // part of the only violation; "" = none
	}{
		{"coordinated joins the three", []pkg{
			{Path: m + "coordinated", Imports: []string{m + "mpiwrap", m + "gpustate", m + "storage"}},
		}, ""},
		{"direct", []pkg{
			{Path: m + "storage", Imports: []string{m + "mpiwrap"}},
		}, "storage imports " + m + "mpiwrap"},
		{"through an internal package", []pkg{
			{Path: m + "gpustate", Imports: []string{m + "internal/x"}},
			{Path: m + "internal/x", Imports: []string{m + "storage"}},
		}, "gpustate imports " + m + "storage"},
		{"below the directory", []pkg{
			{Path: m + "mpiwrap/mpitest", Imports: []string{m + "coordinated/control"}},
		}, "mpiwrap/mpitest imports"},
		{"in a test", []pkg{
			{Path: m + "storage", TestImports: []string{m + "coordinated"}},
		}, "storage imports " + m + "coordinated"},
		{"in a test outside of the package", []pkg{
			{Path: m + "storage/internal/level", OutsideTest: []string{m + "storage", m + "coordinated"}},
		}, ""},
		{"a name that only begins alike", []pkg{
			{Path: m + "storagex", Imports: []string{m + "mpiwrap"}},
		}, ""},
		{"slurm", []pkg{
			{Path: m + "slurm", Imports: []string{m + "storage"}},
		}, "slurm imports"},
		{"cut opens a socket", []pkg{
			{Path: m + "coordinated/cut", Imports: []string{"net"}},
		}, "pure"},
		{"a room knows the root", []pkg{
			{Path: m + "coordinated/internal/x", TestImports: []string{m + "coordinated"}},
		}, "internal/x imports " + m + "coordinated"},
		{"a room uses another", []pkg{
			{Path: m + "coordinated/internal/x", Imports: []string{m + "coordinated/control"}},
		}, ""},
		{"a trigger asks the ranks itself", []pkg{
			{Path: m + "coordinated/internal/trigger", Imports: []string{m + "coordinated/internal/agent"}},
		}, "tells whoever holds it"},
		{"application looks inside", []pkg{
			{Path: m + "apps/nbody", Imports: []string{m + "mpiwrap/internal/abi"}},
		}, "only public packages"},
		{"a test of an application looks inside", []pkg{
			{Path: m + "apps/nbody", OutsideTest: []string{m + "mpiwrap/internal/abi"}},
		}, "only public packages"},
		{"application shares with applications", []pkg{
			{Path: m + "apps/nbody", Imports: []string{m + "apps/internal/job", m + "coordinated"}},
		}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := violations(c.packages)
			if c.want == "" {
				if len(got) != 0 {
					t.Errorf("got %q, want no violation", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("got %q, want one violation with %q", got, c.want)
			}
		})
	}
}
