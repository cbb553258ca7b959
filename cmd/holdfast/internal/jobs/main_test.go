package jobs

import (
	"bytes"
	"context"
	"io"
	"os"
	"testing"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/epochs"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/test/schema"
	"github.com/spf13/cobra"
)

// TestMain lets the test binary be the processes that holdfast run starts of itself, and its program.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "guard" || len(os.Args) > 2 && (os.Args[1] == "start-rank" ||
		os.Args[1] == "node" || os.Args[1] == "flush" && os.Args[2] == "--salvage") {
		os.Exit(Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	if os.Getenv("VICTIM") != "" { // TestRun starts this binary as its program
		victim()
		os.Exit(cli.Good)
	}
	os.Exit(m.Run())
}

// Run is holdfast with no other verbs than these and those of epochs, of which holdfast run uses flush.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "holdfast"}
	root.AddCommand(Commands()...)
	root.AddCommand(epochs.Commands()...)
	return cli.Run(ctx, root, args, stdout, stderr)
}

// run runs a verb of this package.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), args, &out, &errs)
	schema.Output(t, args, out.String())
	return code, out.String(), errs.String()
}
