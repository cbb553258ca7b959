package yield

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

//go:embed preload/yield.c
var source []byte

// OpenMPI is the variable, KEY=VALUE, that makes Open MPI's ranks yield, and sleep with the library from Build.
const OpenMPI = "OMPI_MCA_mpi_yield_when_idle=1"

// Build compiles the library into a file; cc does it. What there was in
// its place is replaced at once, also for those that have it open.
func Build(file string) error {
	dir, err := os.MkdirTemp(filepath.Dir(file), "yield")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "lib.so")
	cc := exec.Command("cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-x", "c", "-o",
		made, "-", "-ldl")
	cc.Stdin = bytes.NewReader(source)
	if out, err := cc.CombinedOutput(); err != nil {
		return fmt.Errorf("compile yield.c: %w\n%s", err, out)
	}
	return os.Rename(made, file)
}

// Preload returns the variable, KEY=VALUE, that makes ranks yield by a library from Build, in
// addition to what is preloaded already.
func Preload(file string) string {
	if before := os.Getenv("LD_PRELOAD"); before != "" {
		file += ":" + before
	}
	return "LD_PRELOAD=" + file
}

// Env returns the variables, KEY=VALUE, for ranks on this machine, under either MPI. The
// library stays in the user's cache for the next test. Without a C compiler MPICH's ranks do
// not yield, Open MPI's do not sleep, and tests take longer.
func Env() []string { return append([]string(nil), env()...) }

var env = sync.OnceValue(func() []string {
	file, err := cached()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests take longer, because ranks do not sleep while they wait:", err)
		return []string{OpenMPI}
	}
	return []string{OpenMPI, Preload(file)}
})

// cached returns the library, whose name tells its source.
func cached() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "holdfast-tests")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	file := filepath.Join(dir, fmt.Sprintf("yield-%x.so", sha256.Sum256(source)))
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	return file, Build(file)
}
