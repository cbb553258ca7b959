package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Library is the directory of a library that make build or make install makes, where the user says, otherwise where it
// belongs beside this executable. It is an error if the file is not there.
func Library(dir, file string) (string, error) {
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(filepath.Dir(self), "..", "lib")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
		return "", fmt.Errorf("no %s in %s: run make build or make install, or give --lib", file, dir)
	}
	return dir, nil
}

// ErrNoCompiler says that there is no C compiler.
var ErrNoCompiler = errors.New("no C compiler cc: install gcc")

// CompileC compiles a program of one source file in dir; args come behind the source.
func CompileC(ctx context.Context, dir string, source []byte, args ...string) (program string, err error) {
	file, program := filepath.Join(dir, "driver.c"), filepath.Join(dir, "driver")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return "", err
	}
	args = append([]string{"-O2", "-o", program, file}, args...)
	out, err := exec.CommandContext(ctx, "cc", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return "", ErrNoCompiler
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
}

// Holdfast is the program holdfast: beside this executable, otherwise in PATH.
func Holdfast() (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(own), "holdfast")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	found, err := exec.LookPath("holdfast")
	if err != nil {
		return "", fmt.Errorf("no holdfast in %s or PATH: run make build or make install", filepath.Dir(own))
	}
	return filepath.Abs(found)
}
