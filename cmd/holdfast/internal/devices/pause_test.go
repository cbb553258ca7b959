package devices

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
)

// TestPauseVerbs: what cannot be paused is said, with a code for scripts.
func TestPauseVerbs(t *testing.T) {
	self := fmt.Sprint(os.Getpid())
	const gpu = "GPU-43e2c0df-dabc-cf59-c9af-9b59c62a57e5"
	for _, c := range []struct{ line, want string }{
		{"pause " + self, "it is no CUDA program that can be paused"},
		{"resume " + self, "it is no CUDA program that can be paused"},
		{"migrate " + self + " " + gpu, "it is no CUDA program that can be paused"},
		{"pause x", `"x" is neither a process ID nor a directory`},
		{"pause -- -5", `"-5" is neither a process ID nor a directory`},
		{"pause", "needs an argument"},
		{"migrate " + self + " GPU-x", "is no UUID of a GPU"},
		{"pause 1073741824 --json", `{"error":"there is no process 1073741824"}`},
	} {
		if out := outcome(t, cli.NoLook, strings.Fields(c.line)...); !strings.Contains(out, c.want) {
			t.Errorf("%s: got %q, want %q", c.line, out, c.want)
		}
	}
}
