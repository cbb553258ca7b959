package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// hostile returns a server that knows the key, serves one client as far as to its
// device, and then does with the shared memory what it likes.
func hostile(t *testing.T, key wire.Key, then func(c *net.UnixConn, shared []byte)) (addr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-ended })
	go func() {
		defer close(ended)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := wire.Admit(c, wire.Keys{Use: key}, func(wire.Purpose) bool { return false }); err != nil {
			t.Error(err)
			return
		}
		out := wire.NewSender(c, 0)
		welcome := &wire.Welcome{Server: "s",
			Devices: []driver.Info{{Kind: "fake", GlobalBytes: 1 << 30, MaxAllocBytes: 1 << 30}}}
		if err := out.Now(welcome); err != nil {
			t.Error(err)
			return
		}
		_, shared, err := wire.Accept(c.(*net.UnixConn))
		if err != nil {
			t.Error(err)
			return
		}
		defer shm.Free(shared)
		if _, _, _, err := wire.ReadFrame(bufio.NewReader(c), nil); err != nil {
			t.Error(err)
			return
		}
		if err := out.Now(&wire.Reply{Body: make([]byte, 32)}); err != nil {
			t.Error(err)
			return
		}
		then(c.(*net.UnixConn), shared)
	}()
	return "unix:" + path
}

// TestHostileRing: a server that writes garbage to the rings, or goes while calls
// wait, is an error that names it. Nothing waits for it.
func TestHostileRing(t *testing.T) {
	const back = 4096 + 128<<10 // the ring to the client begins here
	wake := func(c *net.UnixConn) { _, _ = c.Write([]byte{1}) }
	for name, test := range map[string]struct {
		then func(c *net.UnixConn, ring []byte)
		want string
	}{
		"more than fits": {func(c *net.UnixConn, ring []byte) {
			binary.LittleEndian.PutUint64(ring[back:], 128<<10+1)
			wake(c)
		}, "malformed"},
		"less than nothing": {func(c *net.UnixConn, ring []byte) {
			binary.LittleEndian.PutUint64(ring[back:], ^uint64(0))
			wake(c)
		}, "malformed"},
		"noise": {func(c *net.UnixConn, ring []byte) {
			for i := range 128 << 10 {
				ring[back+4096+i] = byte(200 + 7*i)
			}
			binary.LittleEndian.PutUint64(ring[back:], 128<<10)
			wake(c)
		}, "malformed"},
		"a slot not in use": {func(c *net.UnixConn, ring []byte) {
			n := copy(ring[back+4096:], wire.Append(nil, &wire.Done{Event: 1, Slot: 3}))
			binary.LittleEndian.PutUint64(ring[back:], uint64(n))
			wake(c)
		}, "not in use"},
		"read what was not written": {func(c *net.UnixConn, ring []byte) {
			binary.LittleEndian.PutUint64(ring[64:], 1<<40)
			wake(c)
		}, "malformed"},
		"gone": {func(c *net.UnixConn, ring []byte) {}, "ended the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			var key wire.Key
			addr := hostile(t, key, func(c *net.UnixConn, shared []byte) {
				test.then(c, shared[wire.ArenaBytes:])
				if test.want != "ended the connection" {
					_, _ = c.Read(make([]byte, 1<<16)) // until the client goes
					_, _ = c.Read(make([]byte, 1<<16))
				}
			})
			d, err := Open(context.Background(), Options{Addr: addr, Key: key, Pick: func([]driver.Info) int {
				return 0
			}})
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = d.CreateQueue(driver.QueueDesc{})
			}
			var server *wire.ServerError
			if !errors.As(err, &server) || !errors.Is(err, driver.ErrDeviceLost) ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a ServerError with %q that matches ErrDeviceLost", err, test.want)
			}
			_ = d.Close()
		})
	}
}
