package imports

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/storage"
)

// TestHello bounds what a program links that only takes checkpoints. The AWS library comes by importing storage/s3,
// Reed-Solomon code by storage/parity, and what only the tool needs stays out of the packages that programs import.
func TestHello(t *testing.T) {
	const most = 200
	out, err := exec.Command("go", "list", "-deps", module+"/examples/hello").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := strings.Fields(string(out))
	if len(packages) > most {
		t.Errorf("examples/hello links %d packages, want at most %d", len(packages), most)
	}
	for _, p := range packages {
		if strings.HasPrefix(p, "github.com/aws/") || p == "github.com/klauspost/reedsolomon" {
			t.Errorf("examples/hello links %s", p)
		}
	}
}

// TestWithoutImport asks a program that imports neither storage/s3 nor storage/parity for an object store and for
// parity: one error says what to import, before the program has begun.
func TestWithoutImport(t *testing.T) {
	const mostBytes = 8_600_000 // without what debuggers read, 12.4 MB with it
	hello := filepath.Join(t.TempDir(), "hello")
	build := exec.Command("go", "build", "-ldflags=-s", "-o", hello, module+"/examples/hello")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if info, err := os.Stat(hello); err != nil || info.Size() > mostBytes {
		t.Errorf("examples/hello has %d bytes (%v), want at most %d", info.Size(), err, mostBytes)
	}
	for _, c := range []struct{ setting, path string }{{"HOLDFAST_GLOBAL=s3://bucket/prefix", "storage/s3"},
		{"HOLDFAST_REDUNDANCY=parity:2+1", "storage/parity"}} {
		local := t.TempDir()
		cmd := exec.Command(hello, "-steps", "1")
		cmd.Env = append(cmd.Environ(), "HOLDFAST_LOCAL="+local, c.setting)
		out, err := cmd.CombinedOutput()
		want := `import _ "` + module + "/" + c.path + `"`
		if err == nil || strings.Count(string(out), want) != 1 {
			t.Errorf("%s: got %v and %q, want an error with %s", c.setting, err, out, want)
		}
		if made, _ := os.ReadDir(local); len(made) > 0 {
			t.Errorf("%s: the program has left %v in its directory", c.setting, made)
		}
	}
}

// TestWithoutParity opens what needs parity in this program, which does not import storage/parity either.
func TestWithoutParity(t *testing.T) {
	dir := t.TempDir()
	open := func(redundancy string) error {
		opt := coordinated.Options{Job: "job", Local: dir, Redundancy: redundancy, Events: "off"}
		ck, err := coordinated.Open(t.Context(), mpiwrap.Single(), opt)
		if err == nil {
			err = ck.Close()
		}
		return err
	}
	err := open("parity:2+1")
	if option, ok := errors.AsType[*coordinated.OptionError](err); !ok || option.Name != "Redundancy" ||
		!errors.Is(err, storage.ErrNoParity) || !strings.Contains(err.Error(), "the tool holdfast has it") {
		t.Errorf("a job with parity: got %v, want an error of the option Redundancy", err)
	}
	if err := open("partner:1"); err != nil {
		t.Errorf("a job with copies: %v", err)
	}
	levels := []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir},
		{Name: storage.LevelParity, Dir: filepath.Join(dir, "parity"), Create: true}}
	s, err := storage.Open(t.Context(), storage.Options{Job: "job", Size: 1, Nodes: []string{"n"}, Levels: levels,
		Transport: struct{ storage.Transport }{}})
	if !errors.Is(err, storage.ErrNoParity) {
		t.Errorf("a store with parity: got %v and %v, want %v", s, err, storage.ErrNoParity)
	}
}
