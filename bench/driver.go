package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Library returns the directory of a library that make build or make install makes: the user's, otherwise its usual
// place next to this executable. It is an error if the file is not there.
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

// ErrNoCompiler reports that there is no C compiler.
var ErrNoCompiler = errors.New("no C compiler")

// CompileC compiles a program of one source file in dir with the first of the compilers that there is; args come behind
// the source.
func CompileC(ctx context.Context, dir string, source []byte, compilers []string, args ...string) (program string,
	err error) {
	file, program := filepath.Join(dir, "driver.c"), filepath.Join(dir, "driver")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return "", err
	}
	for _, cc := range compilers {
		if _, err := exec.LookPath(cc); err != nil {
			continue
		}
		args = append([]string{"-O2", "-o", program, file}, args...)
		out, err := exec.CommandContext(ctx, cc, args...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%s: %w: %s", cc, err, firstError(string(out)))
		}
		return program, nil
	}
	return "", fmt.Errorf("%w: install %s", ErrNoCompiler, strings.Join(compilers, " or "))
}

// firstError returns a compiler's first line with an error.
func firstError(text string) string {
	for l := range strings.Lines(text) {
		if strings.Contains(l, "error") || strings.Contains(l, "undefined") || strings.Contains(l, "cannot find") {
			return strings.TrimSpace(l)
		}
	}
	return strings.TrimSpace(text)
}

// Holdfast returns a command of the program holdfast: beside this executable, otherwise in PATH.
func Holdfast(ctx context.Context, args ...string) (*exec.Cmd, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program := filepath.Join(filepath.Dir(own), "holdfast")
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("holdfast"); err != nil {
			return nil, fmt.Errorf("no holdfast in %s or PATH: run make build or make install", filepath.Dir(own))
		}
	}
	if program, err = filepath.Abs(program); err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, program, args...), nil
}
