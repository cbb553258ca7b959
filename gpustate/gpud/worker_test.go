package gpud

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/test/pocl"
)

// workerArg makes the test binary a worker.
const workerArg = "gpud-worker"

func TestMain(m *testing.M) {
	pocl.Alone()
	if len(os.Args) == 4 && os.Args[1] == workerArg {
		gateDir = os.Args[2]
		at, lib := fakes()
		if around := late[os.Args[3]]; around != nil {
			drivers.All[at] = around(lib)
		}
		if err := RunWorker(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(inGateDir(m.Run))
}

// inGateDir runs the tests with a directory for the gate.
func inGateDir(run func() int) int {
	var err error
	if gateDir, err = os.MkdirTemp("", "gpud-gate-*"); err == nil {
		err = os.Chmod(gateDir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(gateDir)
	return run()
}

func init() {
	fake.Register("wild", 1, func(fake.Launch) {
		b, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err == nil {
			b[0] = 1 // no process may
		}
	})
}

// lost checks that err says that the server is lost, and which one.
func lost(t *testing.T, err error, p *place, why string) {
	t.Helper()
	var server *gpustate.ServerError
	if !errors.As(err, &server) || !errors.Is(err, gpustate.ErrDeviceLost) || server.Server != p.addr ||
		!strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want a ServerError with %s that matches ErrDeviceLost and says %q", err, p.addr, why)
	}
}

// TestWildKernel: a kernel that writes where it must not ends its own client; the
// others and the server go on.
func TestWildKernel(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		p := serve(t, o)
		good, bad := open(t, p.sel), open(t, p.sel)
		ok(t, good.step())
		prog := must(bad.d.Program("w", gpustate.Sources{OpenCL: "wild"}, ""))(t)
		k := must(prog.Kernel("wild"))(t)
		ok(t, k.SetArgs(bad.b))
		_, err := bad.q.Launch(k, []int{1}, nil)
		if err == nil {
			err = bad.q.Finish()
		}
		lost(t, err, p, "the process that served this client died")
		_ = bad.d.Close()
		for range 100 {
			ok(t, good.step())
		}
		ok(t, good.check())
		again := open(t, p.sel)
		ok(t, again.step())
		ok(t, again.check())
		ok(t, again.d.Close())
		ok(t, good.d.Close())
		p.quiet(t)
		noWorkersLeft(t)
	})
}

const wildSource = `
__kernel void add(__global float *x) { x[get_global_id(0)] += 1; }
__kernel void wild(__global float *x) {
	__global float *far = (__global float *)((size_t)x + ((size_t)1 << 44));
	far[get_global_id(0)] = 1;
}`

// TestWildKernelPoCL is TestWildKernel with a compiled kernel.
func TestWildKernelPoCL(t *testing.T) {
	sel := gpustate.Select{Kind: "opencl", Platform: "Portable Computing Language"}
	var none *gpustate.NoDeviceError
	if d, err := gpustate.Open(sel); errors.As(err, &none) {
		t.Skip("PoCL is not on this machine")
	} else {
		ok(t, err)
		ok(t, d.Close())
	}
	p := serve(t, Options{Offer: func(i driver.Info) bool { return i.Kind == "opencl" }})
	sel.Remote, sel.KeyFile = p.addr, p.sel.KeyFile
	begin := func() (*gpustate.Device, *gpustate.Queue, *gpustate.Program, *gpustate.Buffer) {
		d := must(gpustate.Open(sel))(t)
		q := must(d.Queue("q"))(t)
		b := must(d.Buffer("b", 4096))(t)
		ok(t, q.Write(b, 0, make([]byte, 4096)))
		return d, q, must(d.Program("p", gpustate.Sources{OpenCL: wildSource}, ""))(t), b
	}
	good, gq, gp, gb := begin()
	bad, bq, bp, bb := begin()
	add, wild := must(gp.Kernel("add"))(t), must(bp.Kernel("wild"))(t)
	ok(t, add.SetArgs(gb))
	ok(t, wild.SetArgs(bb))
	add1 := func(n int) {
		for range n {
			must(gq.Launch(add, []int{1024}, nil))(t)
		}
	}
	add1(100)
	must(bq.Launch(wild, []int{1024}, nil))(t)
	lost(t, bq.Finish(), p, "the process that served this client died")
	add1(100)
	got := make([]float32, 1024)
	ok(t, gq.Read(gb, 0, gpustate.Bytes(got)))
	for i, v := range got {
		if v != 200 {
			t.Fatalf("element %d is %g after 200 launches", i, v)
		}
	}
	ok(t, good.Close())
	_ = bad.Close()
	p.quiet(t)
	noWorkersLeft(t)
}

// pids returns the processes of workers.
func (p *place) pids() (list []int) {
	for _, l := range p.backends() {
		list = append(list, l.PID())
	}
	return list
}

// noWorkersLeft checks that no worker is left, alive or as a zombie.
func noWorkersLeft(t *testing.T) {
	t.Helper()
	tasks := must(os.ReadDir("/proc/self/task"))(t)
	for _, task := range tasks {
		b, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		for _, pid := range strings.Fields(string(b)) {
			cmd, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			t.Errorf("process %s is still there: %q", pid, cmd)
		}
	}
}

// TestWorkerKilled: the client of a worker that is killed knows at once, in a call
// that waits, and no other client notices.
func TestWorkerKilled(t *testing.T) {
	p := serve(t, Options{})
	bad := open(t, p.sel)
	pid := p.pids()[0]
	good := open(t, p.sel)
	ok(t, syscall.Kill(pid, syscall.SIGKILL))
	var err error
	for err == nil { // it may still take a message or two
		if err = bad.step(); err == nil {
			err = bad.q.Finish()
		}
	}
	lost(t, err, p, "signal: killed")
	_ = bad.d.Close()
	ok(t, good.step())
	ok(t, good.check())
	ok(t, good.d.Close())
	p.quiet(t)
	noWorkersLeft(t)
}

// TestWorkerStopped: a worker that is stopped does not outlive its client, nor
// does it keep the server.
func TestWorkerStopped(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}, grace: 200 * time.Millisecond})
	gone := raw(t, p)
	say(t, gone, &wire.Open{Index: 0})
	for len(p.list()) == 0 {
		time.Sleep(time.Millisecond)
	}
	ok(t, syscall.Kill(p.pids()[0], syscall.SIGSTOP))
	ok(t, gone.Close())
	p.quiet(t)
	c := open(t, p.sel)
	ok(t, syscall.Kill(p.pids()[0], syscall.SIGSTOP))
	p.stop()
	lost(t, c.q.Finish(), p, "")
	_ = c.d.Close()
	noWorkersLeft(t)
}

// TestLeftBehind: a client that has closed its device is not listed, nor moved, while its
// worker has not ended.
func TestLeftBehind(t *testing.T) {
	p := serve(t, Options{Peers: []string{"unix:/nowhere"}, Listen: []string{"127.0.0.1:0"}, grace: time.Minute})
	gone := raw(t, p)
	say(t, gone, &wire.Open{Index: 0})
	for len(p.status().Clients) == 0 {
		time.Sleep(time.Millisecond)
	}
	pid, id := p.pids()[0], p.status().Clients[0].ID
	ok(t, syscall.Kill(pid, syscall.SIGSTOP))
	if n := len(p.status().Clients); n != 1 {
		t.Errorf("%d clients are listed, want the one whose worker stands still", n)
	}
	ok(t, gone.Close())
	for len(p.status().Clients) > 0 {
		time.Sleep(time.Millisecond)
	}
	if n := p.status().Devices[0].Clients; n != 1 {
		t.Errorf("%d clients have the device open, want 1: the worker is there", n)
	}
	if _, err := p.move(t.Context(), id, "pocl"); err == nil || !strings.Contains(err.Error(), "no client has number") {
		t.Errorf("move: %v, want that there is no such client", err)
	}
	if list, err := p.Evacuate(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("evacuate: moved %v, %v, want none", list, err)
	}
	ok(t, syscall.Kill(pid, syscall.SIGCONT))
	p.quiet(t)
	noWorkersLeft(t)
}

// TestNoWorker: a server that cannot start workers reports that to its clients, and
// one without an option for either way does not begin.
func TestNoWorker(t *testing.T) {
	p := serve(t, Options{Worker: []string{"/nowhere/worker"}})
	_, err := gpustate.Open(p.sel)
	var server *gpustate.ServerError
	if !errors.As(err, &server) || !strings.Contains(err.Error(), "/nowhere/worker") {
		t.Errorf("got %v, want a ServerError that says what could not be started", err)
	}
	p = serve(t, Options{Worker: []string{"/bin/false"}})
	if _, err = gpustate.Open(p.sel); !errors.As(err, &server) || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("got %v, want a ServerError that says how the worker ended", err)
	}
	noWorkersLeft(t)
	if _, err := New(Options{Listen: []string{"unix:/x"}, KeyFile: p.sel.KeyFile}); err == nil ||
		!strings.Contains(err.Error(), "Worker") {
		t.Errorf("got %v, want what to choose", err)
	}
}

// TestWorkerSignals: signals to a whole step or terminal are for the server.
func TestWorkerSignals(t *testing.T) {
	p := serve(t, Options{})
	c := open(t, p.sel)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1,
		syscall.SIGUSR2} {
		ok(t, syscall.Kill(p.pids()[0], s))
	}
	ok(t, c.step())
	ok(t, c.check())
	ok(t, c.d.Close())
}

// TestNoSecrets: neither the key nor a token stands where other users see it.
func TestNoSecrets(t *testing.T) {
	p := serve(t, Options{})
	c := open(t, p.sel)
	defer c.d.Close()
	key := must(os.ReadFile(p.sel.KeyFile))(t)
	for _, pid := range append(p.pids(), os.Getpid()) {
		for _, file := range []string{"cmdline", "environ"} {
			b := must(os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + file))(t)
			if strings.Contains(string(b), strings.TrimSpace(string(key))) {
				t.Errorf("the key stands in %s of process %d", file, pid)
			}
		}
	}
}

// TestDrainWhileOpening: a client that had proven the key when the server was
// drained, and had not chosen its device, is refused.
func TestDrainWhileOpening(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	c := raw(t, p)
	for len(p.backends()) == 0 {
		time.Sleep(time.Millisecond)
	}
	p.Drain()
	say(t, c, &wire.Open{Index: 0}, &wire.CreateMem{Req: 1, ID: 1, Mem: driver.Mem{Kind: driver.MemBuffer, Bytes: 64}})
	p.quiet(t)
	if n := len(p.list()); n != 0 {
		t.Errorf("%d clients came in", n)
	}
}

// BenchmarkOpen is what a client pays for its worker.
func BenchmarkOpen(b *testing.B) {
	p := serve(b, Options{})
	for b.Loop() {
		d, err := gpustate.Open(p.sel)
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
