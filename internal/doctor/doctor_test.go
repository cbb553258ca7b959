package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// states returns the state and the remedy of each check.
func states(r *report) map[string]Finding {
	out := map[string]Finding{}
	for _, f := range r.findings {
		out[f.Check] = f
	}
	return out
}

func TestJudgeMPI(t *testing.T) {
	for _, c := range []struct {
		name  string
		a     rankAnswer
		check string
		want  State
	}{
		{"wrong pair", rankAnswer{Size: 1, Library: "MPICH"}, "X", Failed},
		{"deaf", rankAnswer{Size: 2, Devices: true}, "X: signals", Failed},
		{"launcher keeps it", rankAnswer{Size: 2, Signal: true}, "X: signals to run", Warning},
		{"all well", rankAnswer{Size: 2, Signal: true, Forwarded: true}, "X: signals to run", OK},
	} {
		r := &report{}
		r.judgeMPI("X", "run", c.a)
		f := states(r)[c.check]
		if f.State != c.want || f.State != OK && f.Remedy == "" {
			t.Errorf("%s: got %+v, want %s with a remedy", c.name, f, c.want)
		}
	}
}

func TestDirectories(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	look := func(local, global string) *report {
		r := &report{Options: Options{Local: local, Global: global}}
		lookDirectories(context.Background(), r)
		return r
	}
	if got := Worst(look("", "").findings); got != Failed {
		t.Errorf("no directory: %s", got)
	}
	off := &report{Options: Options{Off: "HOLDFAST_GLOBAL=off"}}
	lookDirectories(t.Context(), off)
	if got := off.findings; len(got) == 0 || Worst(got) == Failed || got[len(got)-1].State != Note ||
		!strings.Contains(got[len(got)-1].Detail, "without checkpoints: HOLDFAST_GLOBAL=off") {
		t.Errorf("no checkpoints are wanted: %+v", got)
	}
	if got := states(look(file, "")); got["local"].State != Failed || got["local"].Remedy == "" {
		t.Errorf("a file in its place: %+v", got["local"])
	}
	if got := states(look(filepath.Join(dir, "new"), ""))["local"]; got.State != Failed ||
		!strings.Contains(got.Remedy, "mkdir -p") {
		t.Errorf("one that is missing, which a job does not make: %+v", got)
	}
	if err := os.Mkdir(filepath.Join(dir, "new"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := look(filepath.Join(dir, "new"), dir)
	if got := states(r)["global"]; got.State != Warning || !strings.Contains(got.Detail, "one file system") {
		t.Errorf("both on one disk: %+v", got)
	}
	if got := states(r)["local"]; !strings.Contains(got.Detail, "GB/s") {
		t.Errorf("no rate: %+v", got)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("something was left behind: %v, %v", left, err)
	}
}

func TestNetworkAndConfig(t *testing.T) {
	r := &report{Options: Options{Interface: "no-such-interface", Config: errors.New("option x: bad"),
		Stray: []string{"HOLDFAST_X is set"}}}
	lookNetwork(context.Background(), r)
	lookConfig(context.Background(), r)
	for _, check := range []string{"control plane", "values"} {
		if f := states(r)[check]; f.State != Failed || f.Remedy == "" {
			t.Errorf("%s: got %+v", check, f)
		}
	}
	if f := states(r)["variables"]; f.State != Warning || f.Remedy == "" {
		t.Errorf("a stray variable: got %+v", f)
	}
}

func TestWorst(t *testing.T) {
	list := []Finding{{State: OK}, {State: Skipped}, {State: Note}}
	if got := Worst(list); got != OK {
		t.Errorf("got %s, want ok", got)
	}
	list = append(list, Finding{State: Warning})
	if got := Worst(list); got != Warning {
		t.Errorf("got %s, want warning", got)
	}
	if got := Worst(append(list, Finding{State: Failed}, Finding{State: OK})); got != Failed {
		t.Errorf("got %s, want failed", got)
	}
}

// TestRates: both rates are measured, and nothing is left behind.
func TestRates(t *testing.T) {
	dir := t.TempDir()
	m, err := measure(dir)
	if err != nil || m.Write <= 0 || m.Read <= 0 {
		t.Fatalf("got %+v, %v", m, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := measure(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there was measured")
	}
	r := &report{}
	r.space("local", 4e9, 1e12)
	r.space("global", 100e9, 1e12)
	if got := states(r); got["local: space"].State != Warning || got["global: space"].State != OK {
		t.Errorf("got %+v", got)
	}
}
