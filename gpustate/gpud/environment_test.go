package gpud

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/source/sourcetest"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

func init() {
	fake.Register("tick", 1, func(l fake.Launch) {
		n := l.Globals["ticks"]
		binary.LittleEndian.PutUint32(n, binary.LittleEndian.Uint32(n)+1)
		copy(l.Args[0].Bytes, n)
	})
}

// TestVariables: the variables of a program on a server are captured and restored,
// and move with it, to another server and to the client's own machine.
func TestVariables(t *testing.T) {
	a, b := serve(t, Options{}), serve(t, Options{})
	d := must(gpustate.Open(a.sel))(t)
	q, out := must(d.Queue("q"))(t), must(d.Buffer("out", 4))(t)
	p := must(d.Program("p", gpustate.Sources{OpenCL: "tick global ticks 4"}, ""))(t)
	k := must(p.Kernel("tick"))(t)
	ok(t, k.SetArgs(out))
	tick := func(want uint32) {
		t.Helper()
		must(q.Launch(k, []int{1}, nil))(t)
		got := make([]byte, 4)
		ok(t, q.Read(out, 0, got))
		if v := binary.LittleEndian.Uint32(got); v != want {
			t.Fatalf("the variable is %d, want %d", v, want)
		}
	}
	tick(1)
	c := must(d.Capture(t.Context(), nil))(t)
	tick(2)
	ok(t, d.Restore(t.Context(), c.Record(), func(i int, dst []byte, off int64) error {
		return c.ReadAt(t.Context(), i, dst, off)
	}))
	ok(t, c.Release())
	tick(2)
	ok(t, d.MigrateTo(t.Context(), b.sel))
	tick(3)
	ok(t, d.MigrateTo(t.Context(), gpustate.Select{Kind: "fake"}))
	tick(4)
	ok(t, d.MigrateTo(t.Context(), a.sel))
	tick(5)
	if used := a.status().Devices[0].UsedBytes; used != 4 {
		t.Errorf("%d bytes are counted, want those of the buffer", used)
	}
	_, err := d.Program("h", gpustate.Sources{OpenCL: "tick hidden"}, "")
	if !errors.Is(err, gpustate.ErrHidden) {
		t.Errorf("got %v, want ErrHidden", err)
	}
	ok(t, d.Close())
}

// TestConstants: a variable that kernels do not write is state once the program has asked for it, on
// a server as on a device of the machine, and moves from one to the other.
func TestConstants(t *testing.T) {
	a := serve(t, Options{})
	d := must(gpustate.Open(a.sel))(t)
	q := must(d.Queue("q"))(t)
	p := must(d.Program("p", gpustate.Sources{OpenCL: "tick global ticks 4 constant table 8"}, ""))(t)
	if _, err := p.Variable("none"); !errors.Is(err, gpustate.ErrNoVariable) {
		t.Errorf("a variable that is none: got %v, want ErrNoVariable", err)
	}
	table := must(p.Variable("table"))(t)
	holds := func(want string) {
		t.Helper()
		got := make([]byte, 8)
		ok(t, q.Read(table, 0, got))
		if string(got) != want {
			t.Errorf("the table holds %q, want %q", got, want)
		}
	}
	ok(t, q.Write(table, 0, []byte("captured")))
	c := must(d.Capture(t.Context(), nil))(t)
	ok(t, q.Write(table, 0, []byte("changed ")))
	holds("changed ")
	ok(t, d.Restore(t.Context(), c.Record(), func(i int, dst []byte, off int64) error {
		return c.ReadAt(t.Context(), i, dst, off)
	}))
	ok(t, c.Release())
	holds("captured")
	ok(t, d.MigrateTo(t.Context(), gpustate.Select{Kind: "fake"}))
	holds("captured")
	ok(t, d.MigrateTo(t.Context(), a.sel))
	holds("captured")
	ok(t, d.Close())
}

// TestBuiltFromSource: a server tells its client which programs it built from source,
// even when the client moves there, and forgets them with the programs.
func TestBuiltFromSource(t *testing.T) {
	a, b := serve(t, Options{}), serve(t, Options{})
	d := must(gpustate.Open(a.sel))(t)
	want := func(n int) {
		t.Helper()
		list := d.BuiltFromSource()
		if len(list) != n {
			t.Fatalf("got %d programs built from source, want %d", len(list), n)
		}
		for _, s := range list {
			if s.Program != "lost" || !strings.Contains(s.Why, "no binary") {
				t.Errorf("got %+v, want the program lost, and why", s)
			}
		}
	}
	must(d.Program("found", gpustate.Sources{OpenCL: "tick", PTX: fake.Binary("go", "tick")}, ""))(t)
	want(0)
	p := must(d.Program("lost", gpustate.Sources{OpenCL: "tick", PTX: []byte("of another device")}, ""))(t)
	want(1)
	m := must(d.Migrate(t.Context(), b.sel))(t)
	if len(m.FromSource) != 1 {
		t.Errorf("the move tells of %d programs, want 1", len(m.FromSource))
	}
	want(1)
	ok(t, p.Release())
	want(0)
	ok(t, d.Close())
}

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
		p := serve(t, Options{TrustSources: trusts, Unconfined: true, Offer: func(i driver.Info) bool {
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
