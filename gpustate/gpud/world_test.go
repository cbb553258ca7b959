package gpud

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// place is a server of fake devices, with a worker for each client.
type place struct {
	*Server
	addr string
	sel  gpustate.Select
	stop func()
}

// serve starts a server for the test. Its address is a Unix socket unless the
// options say otherwise.
func serve(t testing.TB, o Options) *place { return serveWith(t, o, "") }

// serveWith is serve with a driver around that of the fake devices, see late.
func serveWith(t testing.TB, o Options, around string) *place {
	t.Helper()
	dir := t.TempDir()
	p := &place{}
	if len(o.Worker) == 0 {
		o.Worker = []string{"/proc/self/exe", workerArg, gateDir, around}
		o.WorkerDirs = append(o.WorkerDirs, gateDir)
	}
	if o.Offer == nil {
		o.Offer = func(i driver.Info) bool { return i.Kind == "fake" }
	}
	if o.KeyFile == "" {
		o.KeyFile = filepath.Join(dir, "key")
	}
	if o.Listen == nil {
		o.Listen = []string{"unix:" + filepath.Join(dir, "s")}
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	p.Server, p.addr = s, s.Addrs()[0]
	p.sel = gpustate.Select{Kind: "fake", Remote: p.addr, KeyFile: o.KeyFile}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Serve(ctx); err != nil {
			t.Error(err)
		}
	}()
	p.stop = func() { cancel(); <-ended }
	t.Cleanup(func() {
		p.stop()
		if n := len(s.clients); n != 0 {
			t.Errorf("%d clients are left", n)
		}
	})
	return p
}

// unfinished returns the number of commands on the first device.
func (p *place) unfinished() int64 { return p.status().Devices[0].Unfinished }

// clients returns the number of clients of all devices.
func (p *place) clients() (n int64) {
	for _, d := range p.status().Devices {
		n += d.Clients
	}
	return n
}

// list returns the clients that have a device, by number.
func (p *place) list() []*client {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listLocked()
}

// quiet waits until all clients have gone.
func (p *place) quiet(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		p.mu.Lock()
		n, left := len(p.Server.clients), p.left
		p.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-left:
		case <-ctx.Done():
			t.Fatalf("%d clients are still there", n)
		}
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

const elements = 1 << 10

// gateDir is a directory in which the file "closed" holds the kernel "gated" back.
var gateDir string

func gate() string { return filepath.Join(gateDir, "closed") }

// closeGate holds kernels back until open.
func closeGate() (open func()) {
	if err := os.WriteFile(gate(), nil, 0o644); err != nil {
		panic(err)
	}
	return func() { _ = os.Remove(gate()) }
}

// waitForGate calls look again and again while the gate is closed.
func waitForGate(look func()) {
	for {
		if _, err := os.Stat(gate()); err != nil {
			return
		}
		look()
		time.Sleep(time.Millisecond)
	}
}

// faults are what the kernel "fault" makes fail in its worker: the nth command from then on.
var faults = map[byte]func(*fake.Faults, int){
	'l': (*fake.Faults).FailLaunch, 'r': (*fake.Faults).FailRead, 'w': (*fake.Faults).FailWrite,
}

// fault makes the nth launch, read or write of the program's worker fail.
func (c *counter) fault(t testing.TB, of byte, n int) {
	t.Helper()
	k := must(must(c.d.Program("f", gpustate.Sources{OpenCL: "fault"}, ""))(t).NewKernel("fault"))(t)
	ok(t, k.SetArgs(gpustate.Value{of, byte(n)}))
	must(c.q.Launch(k, []int{1}, nil))(t)
	ok(t, c.q.Finish())
	ok(t, k.Release())
}

// fakes returns the library of fake devices of this process.
func fakes() (at int, lib *fake.Library) {
	for i, d := range drivers.All {
		if l, ok := d.(*fake.Library); ok {
			return i, l
		}
	}
	panic("no fake devices")
}

func init() {
	fake.Register("count", 1, func(l fake.Launch) {
		for b := l.Args[0].Bytes; len(b) > 0; b = b[4:] {
			v := math.Float32frombits(binary.NativeEndian.Uint32(b))
			binary.NativeEndian.PutUint32(b, math.Float32bits(v+1))
		}
	})
	fake.Register("gated", 1, func(fake.Launch) { waitForGate(func() {}) })
	fake.Register("fault", 1, func(l fake.Launch) {
		_, lib := fakes()
		faults[l.Args[0].Bytes[0]](&lib.Faults, int(l.Args[0].Bytes[1]))
	})
}

// counter is a program whose kernel adds 1 to every element.
type counter struct {
	d *gpustate.Device
	q *gpustate.Queue
	b *gpustate.Buffer
	k *gpustate.Kernel
	n int
}

func open(t testing.TB, sel gpustate.Select) *counter {
	t.Helper()
	c := &counter{d: must(gpustate.Open(sel))(t)}
	c.q = must(c.d.Queue("q"))(t)
	c.b = must(c.d.Buffer("b", 4*elements))(t)
	p := must(c.d.Program("p", gpustate.Sources{OpenCL: "count gated"}, ""))(t)
	c.k = must(p.Kernel("count"))(t)
	ok(t, c.k.SetArgs(c.b))
	ok(t, c.q.Write(c.b, 0, make([]byte, 4*elements)))
	return c
}

func (c *counter) step() error {
	if _, err := c.q.Launch(c.k, []int{elements}, nil); err != nil {
		return err
	}
	c.n++
	return nil
}

func (c *counter) check() error {
	got := make([]float32, elements)
	if err := c.q.Read(c.b, 0, gpustate.Bytes(got)); err != nil {
		return err
	}
	for i, v := range got {
		if v != float32(c.n) {
			return fmt.Errorf("element %d is %g after %d steps", i, v, c.n)
		}
	}
	return nil
}

// again repeats a program's step until stop is closed or it fails.
func again(t *testing.T, stop <-chan struct{}, step func() error) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if err := step(); err != nil {
			t.Error(err)
			return
		}
	}
}

// moveAll moves every program of a server to another device.
func moveAll(t *testing.T, from *place, to string) (list []Moved) {
	t.Helper()
	admin := must(DialAdmin(t.Context(), from.addr, MoveKeyFile(from.sel.KeyFile)))(t)
	st := must(admin.Status(t.Context()))(t)
	for _, c := range st.Clients {
		list = append(list, must(admin.Move(t.Context(), c.ID, to))(t))
	}
	ok(t, admin.Close())
	return list
}
