package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// find returns the directory of an installation.
func (l library) find() (string, error) {
	for _, home := range []string{os.Getenv(l.env), "/usr/local", "/usr", "/opt/" + strings.ToLower(l.name)} {
		if home == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(home, "include", l.header)); err == nil {
			return home, nil
		}
	}
	if home := os.Getenv(l.env); home != "" {
		return "", fmt.Errorf("%s is %s, but there is no include/%s", l.env, home, l.header)
	}
	return "", fmt.Errorf("not installed; to get it: %s", l.get)
}

// libraryDirs are the directories of an installation that may hold its libraries.
func libraryDirs(home string) []string {
	var dirs []string
	for _, d := range []string{"lib", "lib64", "lib/x86_64-linux-gnu"} {
		if info, err := os.Stat(filepath.Join(home, d)); err == nil && info.IsDir() {
			dirs = append(dirs, filepath.Join(home, d))
		}
	}
	return dirs
}

func (l library) libraryPath(home string) string {
	dirs := libraryDirs(home)
	if old := os.Getenv("LD_LIBRARY_PATH"); old != "" {
		dirs = append(dirs, old)
	}
	return "LD_LIBRARY_PATH=" + strings.Join(dirs, ":")
}

// build compiles the driver.
func (l library) build(ctx context.Context, launcher mpirun.Launcher, home, dir string) (string, error) {
	source, program := filepath.Join(dir, "driver.c"), filepath.Join(dir, "driver")
	if err := os.WriteFile(source, driverSource, 0o644); err != nil {
		return "", err
	}
	args := []string{"-O2", "-D" + l.define, "-I" + filepath.Join(home, "include"), "-o", program, source}
	for _, d := range libraryDirs(home) {
		args = append(args, "-L"+d)
	}
	return program, compile(ctx, []string{launcher.Compiler(), "mpicc"}, append(args, "-l"+l.link))
}

// compile runs the first compiler that there is.
func compile(ctx context.Context, compilers, args []string) error {
	for _, cc := range compilers {
		if _, err := exec.LookPath(cc); err != nil {
			continue
		}
		out, err := exec.CommandContext(ctx, cc, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", cc, err, firstError(string(out)))
		}
		return nil
	}
	return errors.New("no C compiler for it: " + strings.Join(compilers, " or "))
}

// firstError is the first line of a compiler that says what is wrong.
func firstError(text string) string {
	for l := range strings.Lines(text) {
		if strings.Contains(l, "error") || strings.Contains(l, "undefined") || strings.Contains(l, "cannot find") {
			return strings.TrimSpace(l)
		}
	}
	return firstLine(text)
}
