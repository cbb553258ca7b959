package epochs

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/spf13/cobra"
)

// Run is holdfast with no other verbs than these.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "holdfast"}
	root.AddCommand(Commands()...)
	return cli.Run(ctx, root, args, stdout, stderr)
}

// run runs a verb of this package.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}
