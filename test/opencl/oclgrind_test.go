package opencl

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOclgrind: oclgrind takes tables and the texts of printf for variables; programs with them build all the
// same, and what their kernels print is not left in a buffer of the process with the device.
func TestOclgrind(t *testing.T) {
	onPoCL(t)
	l := newLab(t)
	const library = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"
	if !exists(library) {
		t.Skip("no " + library + ": make setup installs it")
	}
	vendors := filepath.Join(l.dir, "vendors")
	if err := os.Mkdir(vendors, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(vendors, "oclgrind.icd"), []byte(library+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := l.command(append(through("opencl"), "HOLDFAST_OPENCL_VENDORS="+vendors), "printed")
	printed, theirs, err := os.Pipe() // the process with the device has it longer than the program
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	var errs strings.Builder
	c.Stdout, c.Stderr, c.WaitDelay = theirs, &errs, deadline
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	_ = theirs.Close()
	_ = printed.SetReadDeadline(time.Now().Add(deadline))
	got, err := io.ReadAll(printed)
	if want := "kernel: 5\nkernel: 6\nkernel: 7\nkernel: 8\n"; string(got) != want || err != nil {
		t.Errorf("printed %q, %v, want %q", got, err, want)
	}
	if want := "got 5\ngot 6\ngot 7\ngot 8\n"; errs.String() != want {
		t.Errorf("got %q, want %q", errs.String(), want)
	}
}
