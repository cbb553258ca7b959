package jobs

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/test/schema"
)

// TestNodeAsJSON: a line of the log has the fields of its schema, and others; a failure is a line of its own.
func TestNodeAsJSON(t *testing.T) {
	t.Setenv("HOLDFAST_GLOBAL", t.TempDir())
	code, out, _ := run(t, "node", "--json", "--key", "none", "--wait", "1ms")
	if code != cli.NoLook || !strings.Contains(out, `"error":"no rank has connected within 1ms`) {
		t.Errorf("exit code %d, %s", code, out)
	}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Warn("a copy failed", "epoch", 3, "level", "global")
	if err := schema.Check("node", b.String()); err != nil {
		t.Error(err)
	}
}
