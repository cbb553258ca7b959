package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// newBench becomes holdfast-bench, which lies next to this program: the suites link packages that no job needs.
func newBench() *cobra.Command {
	cmd := newVerb("bench", "measure what checkpoints cost on this machine", cobra.ArbitraryArgs,
		func(_ *cobra.Command, args []string) error {
			program, err := benchProgram()
			if err != nil {
				return err
			}
			err = syscall.Exec(program, append([]string{program}, args...), os.Environ())
			return fmt.Errorf("%s: %w", program, err)
		})
	cmd.DisableFlagParsing = true
	return cmd
}

func benchProgram() (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(own), "holdfast-bench")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	found, err := exec.LookPath("holdfast-bench")
	if err != nil {
		return "", fmt.Errorf("no holdfast-bench in %s or PATH: make build and make install make it", filepath.Dir(own))
	}
	return found, nil
}

// forBench gives the command bench the answers that the shell and help ask of the commands below it.
func forBench(args []string) []string {
	if len(args) < 2 || args[1] != "bench" {
		return args
	}
	switch {
	case args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case strings.HasPrefix(args[0], "__complete") && len(args) > 2:
		return append([]string{"bench", args[0]}, args[2:]...)
	}
	return args
}

// benchPages has holdfast-bench write its manual pages, and returns their files.
func benchPages(ctx context.Context, program, dir string) (files []string, err error) {
	out, err := exec.CommandContext(ctx, program, "man", dir).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s: %w: %s", program, err, exit.Stderr)
	}
	for line := range strings.Lines(string(out)) {
		var file string
		if err := json.Unmarshal([]byte(line), &file); err != nil {
			return nil, fmt.Errorf("%s: %w in %q", program, err, line)
		}
		files = append(files, file)
	}
	return files, err
}
