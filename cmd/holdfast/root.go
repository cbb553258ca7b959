package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Exit codes. Scripts rely on them.
const (
	exitGood    = 0 // looked, and all is well
	exitBad     = 1 // looked, and something is corrupt, missing or unmet
	exitNoLook  = 2 // could not look: bad arguments, no such directory, I/O error
	exitCodeDoc = `Exit codes: 0 all is well; 1 something is corrupt or missing; 2 could not look
(bad arguments, not a checkpoint directory, I/O error).`
)

// errBad ends a verb with exitBad after it has said on stdout what is bad.
var errBad = errors.New("found something bad")

// errFailed ends a verb with exitNoLook after it has said on stdout what failed.
var errFailed = errors.New("failed")

// Run runs holdfast with arguments and returns its exit code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case errors.As(err, &code):
		return int(code)
	case err == nil:
		return exitGood
	case errors.Is(err, errBad):
		return exitBad
	case errors.Is(err, errFailed):
		return exitNoLook
	}
	fmt.Fprintln(stderr, "holdfast:", err)
	return exitNoLook
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "holdfast",
		Short:         "look after the checkpoints of MPI programs on GPUs",
		Long:          "holdfast looks after the checkpoints of MPI programs on GPUs: it lists, checks and\nprunes them, asks running jobs for them, and measures what they cost.\n\n" + exitCodeDoc,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newRun(), newLs(), newShow(), newVerify(), newPrune(), newFlush(), newRequest(), newStatus(), newReport(), newBench(), newConfig(), newDoctor(), newDoctorRank(), newMan())
	root.AddCommand(newGpud(), newMigrate(), newBalance())
	return root
}
