package gpud

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// place is a server of fake devices in this process.
type place struct {
	*Server
	lib  *fake.Library
	addr string
	sel  gpustate.Select
	stop func()
}

// serve starts a server for the test. Its address is a Unix socket unless the
// options say otherwise.
func serve(t testing.TB, o Options) *place {
	t.Helper()
	return serveWith(t, o, func(d driver.Driver) driver.Driver { return d })
}

// serveWith is serve with a driver around that of the fake devices.
func serveWith(t testing.TB, o Options, around func(driver.Driver) driver.Driver) *place {
	t.Helper()
	dir := t.TempDir()
	p := &place{lib: &fake.Library{}}
	if workers {
		o.Worker = []string{"/proc/self/exe", workerArg}
	}
	if len(o.Worker) == 0 {
		o.libs, o.InProcess = []driver.Driver{around(p.lib)}, true
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
		if n := p.lib.Faults.Live(); n != 0 {
			t.Errorf("%d memory objects are left on the server", n)
		}
		if n := len(s.clients); n != 0 {
			t.Errorf("%d clients are left", n)
		}
	})
	return p
}

// unfinished is the number of commands on the first device.
func (p *place) unfinished() int64 { return p.status().Devices[0].Unfinished }

// clients is the number of clients of all devices.
func (p *place) clients() (n int64) {
	for _, d := range p.status().Devices {
		n += d.Clients
	}
	return n
}

// list are the clients that have a device, by number.
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

// gate holds the kernel "gated" back.
var gate atomic.Pointer[chan struct{}]

// closeGate holds kernels back until open.
func closeGate() (open func()) {
	c := make(chan struct{})
	gate.Store(&c)
	return sync.OnceFunc(func() { close(c) })
}

func init() {
	fake.Register("count", 1, func(l fake.Launch) {
		for b := l.Args[0].Bytes; len(b) > 0; b = b[4:] {
			v := math.Float32frombits(binary.NativeEndian.Uint32(b))
			binary.NativeEndian.PutUint32(b, math.Float32bits(v+1))
		}
	})
	fake.Register("gated", 1, func(l fake.Launch) { <-*gate.Load() })
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
