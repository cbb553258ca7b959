package main

import (
	"os"
	"path/filepath"
)

// self is the command that starts this program with args.
func self(args ...string) ([]string, error) {
	program, err := os.Executable()
	return append([]string{program}, args...), err
}

// appDir is the absolute path of dir, by default of where this program is: the
// applications are installed beside it.
func appDir(dir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	program, err := os.Executable()
	return filepath.Dir(program), err
}
