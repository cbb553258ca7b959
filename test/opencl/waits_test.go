package opencl

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// waitLine is what a thread of waits.c ends with.
var waitLine = regexp.MustCompile(`(?m)^(.+): (-?\d+)$`)

// TestWaitsEnd: when a process that serves a program is killed, each way to wait returns with an
// error, even for commands behind a user event that is never set. All call-backs are
// called with an error, and each context's once.
func TestWaitsEnd(t *testing.T) {
	l := newPoCLLab(t)
	for _, c := range []struct {
		name, device, told string
		victim             func(program int) int
	}{
		{"command", platform, "holdfast command", func(program int) int { return serverOf(t, program) }},
		{"worker", "", "GPU server", func(int) int { return workerOf(t, l.servers[len(l.servers)-1]) }},
		{"server", "", "GPU server", func(int) int { return l.servers[len(l.servers)-1] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.device == "" {
				_ = os.Remove(filepath.Join(l.dir, "holdfast-gpud.sock")) // the server before has left it
				l.serve()
			}
			p := l.startUntil("waiting", through(c.device), "waits")
			if err := syscall.Kill(c.victim(p.Process.Pid), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			out, err := p.rest()
			if err != nil || !strings.HasSuffix(out, "over\n") {
				t.Fatalf("%v\n%s%s", err, out, p.errs.Bytes())
			}
			for _, m := range waitLine.FindAllStringSubmatch(out, -1) {
				if m[2] != "-2" && m[2] != "-14" && m[0] != "available: 0" && m[0] != "told again: 0" {
					t.Errorf("%s: want -2 or -14", m[0])
				}
			}
			if !strings.Contains(out, "available: 0\ntold: CL_DEVICE_NOT_AVAILABLE: the "+c.told) {
				t.Errorf("the context was not told of the %s:\n%s", c.told, out)
			}
		})
	}
}

// TestMarker: who has waited for a marker finds the kernels before it complete. On rusticl it is not so without
// Holdfast either.
func TestMarker(t *testing.T) {
	l := newPoCLLab(t)
	if got, want := l.run(through(platform), "marker"), "0 not complete\n"; got != want {
		t.Errorf("HOLDFAST_DEVICE=%q: got %q, want %q", platform, got, want)
	}
}

// TestLate: a kernel of which the program has the event is known to be complete while a later one of its queue runs.
// NVIDIA's platform completes nothing of another queue meanwhile, except markers that wait for events: no kernel, and
// no marker without a list of events, which is what the server issues if all of them are complete.
func TestLate(t *testing.T) {
	l := newPoCLLab(t)
	l.serve()
	args, want := []string(nil), "waited\ncalled\nwent on\npolled\n"
	if onGPU {
		args, want = []string{"alone"}, "waited\ncalled\npolled\n"
	}
	p := l.startUntil("polled", through(""), "late", args...)
	_ = p.Process.Kill() // its command would live on for as long as the kernel may take to end
	_ = syscall.Kill(l.servers[0], syscall.SIGKILL)
	if p.before != want {
		t.Errorf("got %q, want %q", p.before, want)
	}
}

// TestRunning: a kernel is seen at work, if the device reports it.
func TestRunning(t *testing.T) {
	if platform != "pocl" {
		t.Skip("other platforms than PoCL do not tell it of an in-order queue's kernel")
	}
	if got, want := newLab(t).run(through(platform), "running"), "running 1, then 0\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
