package imports

import (
	"os/exec"
	"strings"
	"testing"
)

// TestHello bounds what a program links that only takes checkpoints. The AWS library comes by importing storage/s3,
// and what only the tool needs stays out of the packages that programs import.
func TestHello(t *testing.T) {
	const most = 203
	out, err := exec.Command("go", "list", "-deps", module+"/examples/hello").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := strings.Fields(string(out))
	if len(packages) > most {
		t.Errorf("examples/hello links %d packages, want at most %d", len(packages), most)
	}
	for _, p := range packages {
		if strings.HasPrefix(p, "github.com/aws/") {
			t.Errorf("examples/hello links %s", p)
		}
	}
}
