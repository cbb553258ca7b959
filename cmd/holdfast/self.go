package main

import "os"

// self is the command that starts this program with args.
func self(args ...string) ([]string, error) {
	program, err := os.Executable()
	return append([]string{program}, args...), err
}
