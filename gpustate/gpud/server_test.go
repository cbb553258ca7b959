package gpud

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/remote"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// TestNoServer: errors distinguish what can be wrong at the other end of an address,
// and name it.
func TestNoServer(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	other := filepath.Join(t.TempDir(), "other")
	must(wire.EnsureKey(other))(t)
	answering := func(say string) string {
		l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte(say))
				_ = c.(*net.TCPConn).CloseWrite()
			}
		}()
		return l.Addr().String()
	}
	newer := "HFGPUD\r\n\x63\x00\x00\x00" + strings.Repeat("n", 32)
	for _, c := range []struct {
		name, addr, key string
		want            any
		text            string
	}{
		{"wrong key", p.addr, other, gpustate.ErrKey, "a different key"},
		{"nobody there", "127.0.0.1:1", "", nil, "is `holdfast gpud` running there?"},
		{"no such socket", "unix:/nowhere/s", "", nil, "is `holdfast gpud` running there?"},
		{"a long path", "unix:/" + strings.Repeat("x", 107), "", nil, "the path has 108 bytes, sockets allow 107"},
		{"no such host", "no-such-host.invalid:70", "", nil, "no-such-host.invalid"},
		{"no address", "node7", "", nil, "want unix:PATH or HOST:PORT"},
		{"another service", answering("HTTP/1.1 400 Bad Request\r\n" + strings.Repeat("x", 100)), "",
			gpustate.ErrNoServer, ""},
		{"a service that hangs up", answering("bye"), "", gpustate.ErrNoServer, ""},
		{"newer server", answering(newer), "", nil, "version 99"},
		{"no key file", p.addr, "/nowhere/key", os.ErrNotExist, "/nowhere/key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sel := gpustate.Select{Remote: c.addr, KeyFile: c.key, Kind: "fake"}
			if c.key == "" {
				sel.KeyFile = p.sel.KeyFile
			}
			_, err := gpustate.Open(sel)
			if err == nil {
				t.Fatal("a device was opened")
			}
			if want, is := c.want.(error); is && !errors.Is(err, want) {
				t.Errorf("got %v, want one that matches %v", err, want)
			}
			var server *gpustate.ServerError
			if c.key != "/nowhere/key" && (!errors.As(err, &server) || server.Server != c.addr) {
				t.Errorf("got %T %v, want a ServerError that names %s", err, err, c.addr)
			}
			if !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %q, want it to say %q", err, c.text)
			}
		})
	}
	var version *gpustate.VersionError
	_, err := gpustate.Open(gpustate.Select{Remote: answering(newer), KeyFile: p.sel.KeyFile})
	if !errors.As(err, &version) || version.Server != 99 {
		t.Errorf("got %v, want a VersionError with 99", err)
	}
	_, err = gpustate.Open(gpustate.Select{Remote: "127.0.0.1:1 " + p.addr, KeyFile: p.sel.KeyFile, Name: "nothing"})
	var none *gpustate.NoDeviceError
	if !errors.As(err, &none) || !strings.Contains(err.Error(), p.addr) {
		t.Errorf("got %v, want a NoDeviceError that names the server", err)
	}
	c := open(t, gpustate.Select{Remote: "127.0.0.1:1 " + p.addr, KeyFile: p.sel.KeyFile, Kind: "fake"})
	ok(t, c.d.Close()) // the second server has it
}

// TestRefusedObjects: what a server does not make has no handle, so that it is never
// released.
func TestRefusedObjects(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	d := must(remote.Open(t.Context(), remote.Options{Addr: p.addr, Key: must(wire.ReadKey(p.sel.KeyFile))(t),
		Pick: func([]driver.Info) int { return 0 }}))(t)
	program := must(d.Build(driver.ProgramDesc{OpenCL: "text"}))(t)
	for name, create := range map[string]func() (driver.Handle, error){
		"kernel": func() (driver.Handle, error) { return d.CreateKernel(program, "none of the text") },
		"memory": func() (driver.Handle, error) {
			return d.CreateMem(driver.MemDesc{Kind: driver.MemBuffer, Bytes: 1 << 50})
		},
		"program": func() (driver.Handle, error) { return d.Build(driver.ProgramDesc{OpenCL: "#error"}) },
	} {
		if h, err := create(); h != nil || err == nil {
			t.Errorf("%s: got handle %v, %v, want none and an error", name, h, err)
		}
	}
	ok(t, d.Close())
}

// TestKeyFile: a key that others can read, or that is none, is refused.
func TestKeyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dir", "key")
	k := must(wire.EnsureKey(file))(t)
	if again := must(wire.EnsureKey(file))(t); again != k {
		t.Error("the key changed")
	}
	ok(t, os.Chmod(file, 0o640))
	if _, err := wire.ReadKey(file); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("got %v, want advice", err)
	}
	ok(t, os.Chmod(file, 0o600))
	ok(t, os.WriteFile(file, []byte("secret"), 0o600))
	if _, err := wire.ReadKey(file); err == nil {
		t.Error("a short key was read")
	}
}

// TestQuota: a client gets as much memory as it may have; others are not
// touched, and what is released counts no more.
func TestQuota(t *testing.T) {
	p := serve(t, Options{Quota: 1 << 20})
	a, b := must(gpustate.Open(p.sel))(t), must(gpustate.Open(p.sel))(t)
	defer a.Close()
	defer b.Close()
	x := must(a.Buffer("x", 1<<19))(t)
	must(b.Buffer("x", 1<<20))(t)
	_, err := a.Buffer("y", 1<<20)
	if !errors.Is(err, gpustate.ErrQuota) || !errors.Is(err, gpustate.ErrOutOfMemory) {
		t.Errorf("got %v, want one that matches ErrQuota and ErrOutOfMemory", err)
	}
	ok(t, x.Release())
	must(a.Buffer("y", 1<<20))(t)
}

// TestRefused: a full server and one that drains refuse new clients and keep the
// others.
func TestRefused(t *testing.T) {
	p := serve(t, Options{MaxClients: 1})
	c := open(t, p.sel)
	if _, err := gpustate.Open(p.sel); !errors.Is(err, gpustate.ErrRefused) {
		t.Errorf("a full server: got %v, want ErrRefused", err)
	}
	p.Drain()
	ok(t, c.step())
	ok(t, c.check())
	left := make(chan struct{})
	go func() { p.Leave(context.Background()); close(left) }()
	ok(t, c.step())
	ok(t, c.check())
	ok(t, c.d.Close())
	<-left
}

// TestLost: when the server goes, calls and waits that are under way fail at
// once, with its name; and closing succeeds.
func TestLost(t *testing.T) {
	release := closeGate()
	p := serve(t, Options{})
	c := open(t, p.sel)
	prog := must(c.d.Program("p", gpustate.Sources{OpenCL: "count gated"}, ""))(t)
	k := must(prog.Kernel("gated"))(t)
	ok(t, k.SetArgs(c.b))
	e := must(c.q.Launch(k, []int{1}, nil))(t)
	waited := make(chan error, 1)
	go func() { waited <- e.Wait() }()
	for p.unfinished() == 0 { // the server has the command
		time.Sleep(time.Millisecond)
	}
	go p.stop()
	err := <-waited
	var server *gpustate.ServerError
	if !errors.As(err, &server) || !errors.Is(err, gpustate.ErrDeviceLost) || server.Server != p.addr {
		t.Errorf("got %v, want a ServerError with the address that matches ErrDeviceLost", err)
	}
	if !strings.Contains(err.Error(), "the server is shutting down") {
		t.Errorf("got %v, want the server's reason", err)
	}
	if _, err := c.q.Launch(c.k, []int{1}, nil); !errors.Is(err, gpustate.ErrDeviceLost) {
		t.Errorf("launch: got %v, want ErrDeviceLost", err)
	}
	if _, err := c.d.Buffer("new", 64); !errors.Is(err, gpustate.ErrDeviceLost) {
		t.Errorf("buffer: got %v, want ErrDeviceLost", err)
	}
	if _, err := c.d.Capture(context.Background(), nil); !errors.Is(err, gpustate.ErrDeviceLost) {
		t.Errorf("capture: got %v, want ErrDeviceLost", err)
	}
	<-c.d.Lost()
	_ = c.d.Close()
	release()
	p.quiet(t)
}

// TestLostSince: a program loses the device that it is on now, neither that which it has left nor
// one that it has closed.
func TestLostSince(t *testing.T) {
	a := serve(t, Options{})
	b := serve(t, Options{KeyFile: a.sel.KeyFile})
	c, closed := open(t, a.sel), open(t, b.sel)
	moveAll(t, a, "remote="+b.addr+",fake")
	ok(t, closed.d.Close())
	a.stop()
	ok(t, c.step())
	for _, d := range []*gpustate.Device{c.d, closed.d} {
		select {
		case <-d.Lost():
			t.Errorf("%s counts as lost", d.Info())
		default:
		}
	}
	b.stop()
	<-c.d.Lost()
	select {
	case <-closed.d.Lost():
		t.Error("a closed device counts as lost")
	default:
	}
	_ = c.d.Close()
}

// raw returns a client that speaks the protocol by hand.
func raw(t *testing.T, p *place) net.Conn {
	t.Helper()
	k := must(wire.ReadKey(p.sel.KeyFile))(t)
	c := must(wire.Dial(context.Background(), p.addr, k, wire.ForDevice))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func say(t *testing.T, c net.Conn, list ...wire.Message) {
	t.Helper()
	var b []byte
	for _, m := range list {
		b = wire.Append(b, m)
	}
	_, err := c.Write(b)
	ok(t, err)
}

// TestClientStopsReading: a client that asks for bytes and does not take them is
// dropped, and frees what it had.
func TestClientStopsReading(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}, patience: time.Second})
	good := open(t, p.sel)
	c := raw(t, p)
	say(t, c, &wire.Open{Index: 0},
		&wire.CreateMem{Req: 1, ID: 1, Mem: driver.Mem{Kind: driver.MemBuffer, Bytes: wire.SlotBytes}},
		&wire.CreateQueue{Req: 2, ID: 2})
	for p.clients() < 2 {
		time.Sleep(time.Millisecond)
	}
	for i := range 200 { // far more than the sockets hold
		m := &wire.Transfer{Queue: 2, Mem: 1, Event: uint64(100 + i), Slot: i % wire.Slots, Last: true,
			Place: driver.Bytes(0, wire.SlotBytes)}
		if _, err := c.Write(wire.Append(nil, m)); err != nil {
			break // dropped already
		}
	}
	for p.clients() > 1 {
		time.Sleep(10 * time.Millisecond)
	}
	ok(t, good.step())
	ok(t, good.check())
	ok(t, good.d.Close())
}

// TestHalfOpen: a connection that says nothing is closed, and does not keep
// others out.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	silent := must(net.Dial("tcp", p.addr))(t)
	defer silent.Close()
	c := open(t, p.sel)
	ok(t, c.d.Close())
	_ = silent.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 1000)
	for {
		if _, err := silent.Read(b); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the silent connection is still open")
			}
			break
		}
	}
}

// TestGarbage: clients that know the key and send nonsense are dropped one after
// the other; a good one beside them goes on.
func TestGarbage(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}, Logger: nil})
	good := open(t, p.sel)
	r := rand.New(rand.NewPCG(9, 9))
	for round := range 150 {
		c := raw(t, p)
		var b []byte
		if round%3 > 0 {
			b = wire.Append(b, &wire.Open{Index: round % 3}) // the last is no device
			b = wire.Append(b, &wire.CreateMem{Req: 1, ID: 1, Mem: driver.Mem{Kind: driver.MemBuffer, Bytes: 4096}})
			b = wire.Append(b, &wire.CreateQueue{Req: 2, ID: 2})
		}
		for range 1 + r.IntN(4) {
			frame := []byte{byte(r.IntN(40)), 0, 0, 0, byte(r.IntN(24))}
			for range frame[0] {
				frame = append(frame, byte(r.IntN(5)))
			}
			b = append(b, frame...)
		}
		_, _ = c.Write(b)
		_ = c.Close()
		ok(t, good.step())
	}
	for p.clients() > 1 {
		time.Sleep(10 * time.Millisecond)
	}
	ok(t, good.check())
	ok(t, good.d.Close())
}

// TestImpossible: each thing that no client of ours sends ends the connection.
func TestImpossible(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	mem := func(m wire.CreateMem) *wire.CreateMem { m.Req, m.ID = 5, 5; return &m }
	for name, m := range map[string]wire.Message{
		"kernel that is none": &wire.Launch{Queue: 2, Kernel: 1, Grid: driver.Grid{Dims: 1, Global: [3]int{1},
			Local: [3]int{1}}},
		"transfer beyond the end": &wire.Transfer{Queue: 2, Mem: 1, Event: 7, Last: true,
			Place: driver.Bytes(4090, 64)},
		"transfer without event": &wire.Transfer{Queue: 2, Mem: 1, Last: true, Place: driver.Bytes(0, 64)},
		"image transfer of buffer": &wire.Transfer{Queue: 2, Mem: 1, Event: 7, Last: true,
			Place: driver.Place{Form: driver.FormPixels, Bytes: 64}},
		"box beyond the end": &wire.Transfer{Queue: 2, Mem: 1, Event: 7, Last: true, Place: driver.Place{
			Form: driver.FormBox, Bytes: 64, Size: driver.Box{32, 2, 1},
			At: driver.Layout{Off: 4000, Row: 80, Slice: 160}}},
		"fill beyond the end": &wire.Fill{Queue: 2, Mem: 1, Place: driver.Bytes(4092, 8), Pattern: make([]byte, 4)},
		"fill of no image": &wire.Fill{Queue: 2, Mem: 1, Place: driver.Pixels(driver.Region{}),
			Pattern: make([]byte, 16)},
		"copy beyond the end": &wire.Copy{Queue: 2, Dst: 1, Src: 1, To: driver.Bytes(0, 100),
			From: driver.Bytes(4000, 100)},
		"release of nothing":     &wire.Release{ID: 9},
		"marker without event":   &wire.Marker{Queue: 2},
		"question about nothing": &wire.Ask{Req: 1, What: wire.AskWorkGroup, Object: 9},
		"server's own message":   &wire.Bye{},
	} {
		t.Run(name, func(t *testing.T) {
			c := raw(t, p)
			say(t, c, &wire.Open{Index: 0},
				&wire.CreateMem{Req: 1, ID: 1, Mem: driver.Mem{Kind: driver.MemBuffer, Bytes: 4096}},
				&wire.CreateQueue{Req: 2, ID: 2}, m)
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			b := make([]byte, 4096)
			for {
				if _, err := c.Read(b); err != nil {
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Error("the connection is still open")
					}
					return
				}
			}
		})
	}
	c := raw(t, p)
	say(t, c, &wire.Open{Index: 0}, mem(wire.CreateMem{Mem: driver.Mem{Kind: driver.MemImage, Bytes: 1 << 40,
		Image: driver.ImageDesc{Dims: 2, Width: 2, Height: 2, Depth: 1, Order: 0x10B5, Type: 0x10DE}}}))
	ok(t, c.Close())
	p.quiet(t)
}

// TestSocketTaken: the socket of a server that does not answer, because too many
// wait for it already, stays its own; that of one that has gone is replaced.
func TestSocketTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd := must(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	ok(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	ok(t, unix.Listen(fd, 0))
	first := must(net.Dial("unix", path))(t)
	defer first.Close()
	err := clearSocket(path)
	if !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("got %v, want EAGAIN: nobody accepts", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket of another server was removed: %v", err)
	}
	ok(t, unix.Close(fd))
	ok(t, clearSocket(path))
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of a server that has gone: got %v, want it removed", err)
	}
}
