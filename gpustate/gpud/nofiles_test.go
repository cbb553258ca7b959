package gpud

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/source/sourcetest"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// TestNoFiles: a hostile client learns nothing of a file of the server, from no
// build log, whatever its source or its options say; trusted ones may include.
func TestNoFiles(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_GPU") != "" {
		t.Skip("asks PoCL's compiler, in this process; that of PoCL 5 with LLVM 16 aborts on one of these sources")
	}
	file := filepath.Join(t.TempDir(), "secret")
	ok(t, os.WriteFile(file, []byte("top secret words\n"), 0o600))
	for _, trusts := range []bool{false, true} {
		// unconfined: what the search lets through is to be seen
		p := serveHere(t, Options{TrustSources: trusts, Unconfined: true, Offer: func(i driver.Info) bool {
			return i.Platform == "Portable Computing Language"
		}})
		d := must(gpustate.Open(gpustate.Select{Remote: p.addr, KeyFile: p.sel.KeyFile}))(t)
		sources := sourcetest.Hostile(file)
		for _, options := range []string{"-include " + file, "-I " + filepath.Dir(file), "-imacros " + file} {
			sources[options] = "__kernel void k(void) {}"
		}
		seen := 0
		for name, text := range sources {
			options := ""
			if strings.HasPrefix(name, "-") {
				options = name
			}
			_, err := d.Program("", gpustate.Sources{OpenCL: text}, options)
			if err != nil && (strings.Contains(err.Error(), "secret words") || strings.Contains(err.Error(), "'top'")) {
				seen++
			}
			if !trusts && (err == nil || !strings.Contains(err.Error(), "--trust-sources")) {
				t.Errorf("%s: got %v, want a refusal", name, err)
			}
		}
		for name, desc := range sourcetest.Assembly(file) {
			_, err := d.Program("", gpustate.Sources{OpenCL: desc.OpenCL}, desc.Options)
			if trusts != (err == nil) || !trusts && !strings.Contains(err.Error(), "--trust-sources") {
				t.Errorf("hidden assembler, %s, trusting %v: got %v", name, trusts, err)
			}
		}
		if trusts != (seen > 0) {
			t.Errorf("trusting %v: %d logs showed the file", trusts, seen)
		}
		_, err := d.Program("good", gpustate.Sources{OpenCL: "__kernel void k(__global int *a) { a[0] = N; }"},
			"-D N=3 -cl-mad-enable")
		ok(t, err)
		ok(t, d.Close())
	}
}

// serveHere is serve with this machine's devices instead of fake ones.
func serveHere(t *testing.T, o Options) *place {
	t.Helper()
	o.Worker = []string{"/proc/self/exe", workerArg}
	return serve(t, o)
}
