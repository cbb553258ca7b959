package gputest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Suite checks that a device keeps what package gpustate promises. It opens and
// closes the device that sel names several times.
func Suite(t *testing.T, sel gpustate.Select) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"names", names}, {"arguments", arguments}, {"null", nulls}, {"queries", queries}, {"transfers", transfers},
		{"events", events}, {"window", window}, {"ranges", ranges},
		{"fills", fills}, {"boxes", boxes}, {"shares", shares}, {"barriers", barriers},
		{"image commands", imageCommands},
		{"across", across}, {"images", images}, {"image arrays", imageArrays}, {"views", views}, {"linked", linked},
		{"shared", shared}, {"limits", limits},
		{"build", build}, {"variables", variables}, {"constants", constants},
		{"sizes", sizes}, {"capture", captureGoesOn},
		{"shadow", shadows}, {"hashes", hashes}, {"pinned", pinned}, {"scratch", scratch},
		{"restore", restores}, {"migrate", migrations}, {"foreign", lending},
		{"lent ranges", lentRanges}, {"lent for good", lentForGood}, {"adopt", adoption},
		{"adopt queues", queueAdoption}, {"adopt contexts", contextAdoption},
		{"signals", signals}, {"random", random},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, &bench{T: t, sel: sel}) })
	}
}

// bench opens devices for one test and ends it at the first error.
type bench struct {
	*testing.T
	sel gpustate.Select
}

func (b *bench) open() *gpustate.Device {
	b.Helper()
	d, err := gpustate.Open(b.sel)
	b.ok(err)
	b.Cleanup(func() {
		if err := d.Close(); err != nil {
			b.Errorf("close: %v", err)
		}
	})
	return d
}

func (b *bench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// want fails the test unless err matches.
func (b *bench) want(err, target error) {
	b.Helper()
	if !errors.Is(err, target) {
		b.Errorf("got error %v, want one that matches %q", err, target)
	}
}

func (b *bench) world(d *gpustate.Device) *world {
	b.Helper()
	w, err := open(d)
	b.ok(err)
	return w
}

func names(t *testing.T, b *bench) {
	d := b.open()
	x, err := d.Buffer("x", 4096)
	b.ok(err)
	again, err := d.Buffer("x", 4096)
	b.ok(err)
	if x != again {
		t.Error("the same name gave two buffers")
	}
	_, err = d.Buffer("x", 8192)
	b.want(err, gpustate.ErrConflict)
	if !strings.Contains(err.Error(), "has 4096 bytes, not 8192") {
		t.Errorf("got %v, want an error with both sizes", err)
	}
	one, err := d.Buffer("", 64)
	b.ok(err)
	two, err := d.Buffer("", 64)
	b.ok(err)
	if one == two {
		t.Error("no name gave one buffer twice")
	}
	b.ok(x.Release())
	other, err := d.Buffer("x", 8192) // the name is free again
	b.ok(err)
	if other.Bytes() != 8192 {
		t.Errorf("got %d bytes, want 8192", other.Bytes())
	}
	if n := d.StateBytes(); n != 8192+128 {
		t.Errorf("StateBytes is %d, want %d", n, 8192+128)
	}
}

func arguments(t *testing.T, b *bench) {
	d := b.open()
	w := b.world(d)
	_, err := w.queue.Launch(w.axpy, []int{items}, nil)
	b.want(err, gpustate.ErrArgNotSet)
	b.ok(w.begin())
	b.want(w.axpy.SetArg(3, 7), gpustate.ErrArgType)
	b.want(w.axpy.SetArg(3, struct{ P *int }{}), gpustate.ErrArgType)
	b.want(w.axpy.SetArg(3, true), gpustate.ErrArgType)
	b.want(w.axpy.SetArg(0, (*gpustate.Buffer)(nil)), gpustate.ErrArgType)
	b.want(w.axpy.SetArg(-1, int32(1)), gpustate.ErrRange)
	b.want(w.axpy.SetArg(5000, int32(1)), gpustate.ErrRange)
	other := b.open()
	strange, err := other.Buffer("x", 64)
	b.ok(err)
	b.want(w.axpy.SetArg(0, strange), gpustate.ErrOtherDevice)
	_, err = w.queue.Launch(w.axpy, []int{items}, []int{items - 1})
	b.want(err, gpustate.ErrRange)
	_, err = w.queue.Launch(w.axpy, nil, nil)
	b.want(err, gpustate.ErrRange)
	b.ok(w.step())
	b.ok(w.check(1))
	b.ok(w.x.Release())
	_, err = w.queue.Launch(w.axpy, []int{items}, nil)
	b.want(err, gpustate.ErrReleased)
	b.want(w.axpy.SetArg(0, w.x), gpustate.ErrReleased)
}

func limits(t *testing.T, b *bench) {
	d := b.open()
	i := d.Info()
	if i.MaxAllocBytes > 0 {
		_, err := d.Buffer("huge", int(i.MaxAllocBytes)+4096)
		b.want(err, gpustate.ErrLimit)
		var object *gpustate.ObjectError
		if !errors.As(err, &object) || object.Name != "huge" || object.Device.Name != i.Name {
			t.Errorf("the error does not name object and device: %v", err)
		}
	}
	_, err := d.Buffer("none", 0)
	b.want(err, gpustate.ErrRange)
	_, err = d.Buffer("less", -1)
	b.want(err, gpustate.ErrRange)
	if !i.FP64 {
		_, err = d.Program("double", gpustate.Sources{OpenCL: "__kernel void k(__global double *x) {}"}, "")
		b.want(err, gpustate.ErrFP64)
	}
	_, err = gpustate.Open(gpustate.Select{Name: "no such device"})
	var missing *gpustate.NoDeviceError
	if !errors.As(err, &missing) {
		t.Errorf("got %v, want a NoDeviceError", err)
	}
}

func build(t *testing.T, b *bench) {
	d := b.open()
	_, err := d.Program("broken", gpustate.Sources{
		OpenCL: "#error \"the reason\"\n__kernel void k(__global int *x) {}",
		CUDA:   "#error \"the reason\"\n",
	}, "")
	var failed *gpustate.BuildError
	if !errors.As(err, &failed) || !strings.Contains(failed.Log, "error") {
		t.Errorf("got %v, want a BuildError with the compiler's log", err)
	}
	p, err := d.Program("ops", Sources, "")
	b.ok(err)
	_, err = p.Kernel("nothing")
	b.want(err, gpustate.ErrNoKernel)
	_, err = d.Program("ops", Sources, "-DX=1")
	b.want(err, gpustate.ErrConflict)
	_, err = d.Program("empty", gpustate.Sources{}, "")
	b.want(err, gpustate.ErrNoSource)
	if i := d.Info(); i.Kind == "opencl" && i.IL == "" {
		_, err = d.Program("il", gpustate.Sources{IL: []byte{3, 2, 35, 7}}, "")
		b.want(err, gpustate.ErrNoSource)
	}
}

// signals checks that the platform's libraries, which are loaded and have
// compiled by now, have not taken the program's signals.
func signals(t *testing.T, b *bench) {
	d := b.open()
	b.ok(b.world(d).begin())
	src := Sources // that no cache has
	src.OpenCL += fmt.Sprint("// ", time.Now())
	src.CUDA += fmt.Sprint("// ", time.Now())
	_, err := d.Program("new", src, "")
	b.ok(err)
	const onStack = 0x08000000
	for s := syscall.Signal(1); s < 32; s++ {
		var a struct{ handler, flags, restorer, mask uintptr } // the kernel's
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), 0,
			uintptr(unsafe.Pointer(&a)), 8, 0, 0)
		if errno != 0 || a.handler > 1 && a.flags&onStack == 0 {
			t.Errorf("%v: handler %#x without SA_ONSTACK (%v): Go's runtime ends the program", s, a.handler, errno)
		}
	}
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM, syscall.SIGHUP} {
		got := make(chan os.Signal, 1)
		signal.Notify(got, s)
		b.ok(syscall.Kill(os.Getpid(), s))
		select {
		case <-got:
		case <-time.After(time.Minute):
			t.Errorf("%v did not arrive", s)
		}
		signal.Stop(got)
	}
}

// TestSuite is what a child runs on its platform.
func TestSuite(t *testing.T) {
	if os.Getenv(roleEnv) != "suite" {
		t.Skip("TestConformance runs it on each platform")
	}
	p, err := current()
	if err != nil {
		t.Fatal(err)
	}
	Suite(t, p.Select)
}

// TestConformance runs the suite on every platform of the machine.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	here := present(t, dir)
	served := map[string]bool{}
	compiled := "" // the OpenCL platform that has run
	for _, p := range append(here, remotes(t, dir, here)...) {
		device := p.Name[strings.LastIndexByte(p.Name, ':')+1:]
		again := served[device] // by another kind of connection
		served[device] = p.Serve != ""
		t.Run(p.Name, func(t *testing.T) {
			if again && *programs == 0 {
				t.Skip("the device was served by another kind of connection; test/remote and make soak take this one")
			}
			if p.Select.Platform == "rusticl" && p.Serve != "" && *programs == 0 {
				t.Skip("a server's own code is the same as with PoCL; test/remote and make soak take this one")
			}
			if testing.Short() && p.Select.Kind == "opencl" && compiled != "" {
				t.Skipf("-short takes one OpenCL platform, which was %s: our own code is the same, and that of "+
					"servers with the fakes", compiled)
			} else if p.Select.Kind == "opencl" {
				compiled = p.Name
			}
			begin := time.Now()
			args := []string{"-test.run=^TestSuite$", "-test.v"}
			n := *programs
			if testing.Short() {
				args = append(args, "-test.short")
			}
			if testing.Short() && n == 0 {
				n = 1
			}
			args = append(args, fmt.Sprint("-programs=", n))
			c := child(t, p, dir, "suite", "", args...)
			out, err := c.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			t.Logf("suite took %v, %v of processors", time.Since(begin).Round(time.Millisecond),
				(c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Round(time.Millisecond))
		})
	}
}

// TestBuildsAtOnce starts four processes that build the same new program.
func TestBuildsAtOnce(t *testing.T) {
	dir := t.TempDir()
	for _, p := range present(t, dir) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			unique := dir + time.Now().String()
			done := make(chan error, 4)
			for range cap(done) {
				c := child(t, p, dir, "build", unique)
				c.Stderr = os.Stderr
				go func() { done <- c.Run() }()
			}
			for range cap(done) {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}
