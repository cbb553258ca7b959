package imports

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHello bounds what a program links that only takes checkpoints. The AWS library comes by importing storage/s3,
// and what only the tool needs stays out of the packages that programs import. One more room of a library is one more.
func TestHello(t *testing.T) {
	const most = 217
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

// TestWithoutImport gives a program that does not import storage/s3 the URL of an object store: one error says what to
// import.
func TestWithoutImport(t *testing.T) {
	hello := filepath.Join(t.TempDir(), "hello")
	if out, err := exec.Command("go", "build", "-o", hello, module+"/examples/hello").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.Command(hello, "-steps", "1")
	cmd.Env = append(cmd.Environ(), "HOLDFAST_LOCAL="+t.TempDir(), "HOLDFAST_GLOBAL=s3://bucket/prefix")
	out, err := cmd.CombinedOutput()
	want := `import _ "` + module + `/storage/s3"`
	if err == nil || strings.Count(string(out), want) != 1 {
		t.Errorf("got %v and %q, want an error with %s", err, out, want)
	}
}
