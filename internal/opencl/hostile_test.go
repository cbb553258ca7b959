package opencl

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"golang.org/x/sys/unix"
)

// hostile is the other side: it says what it likes.
type hostile struct {
	t       *testing.T
	control *net.UnixConn
	lane    net.Conn
	served  chan error
}

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var list [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		list[i] = c.(*net.UnixConn)
	}
	return list[0], list[1]
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	sel, err := gpustate.ParseSelect("fake")
	if err != nil {
		t.Fatal(err)
	}
	mine, its := pair(t)
	h := &hostile{t: t, control: mine, served: make(chan error, 1)}
	go func() { h.served <- Serve(context.Background(), its, Options{Select: sel}) }()
	near, far := pair(t)
	h.lane = near
	file, err := far.File()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := mine.WriteMsgUnix([]byte{'L'}, unix.UnixRights(int(file.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	_ = far.Close()
	t.Cleanup(func() {
		_ = near.Close()
		_ = mine.Close()
	})
	return h
}

func (h *hostile) send(op uint32, body []byte, bulk []byte) error {
	parts := net.Buffers{header(len(body), op, len(bulk), 0), body, bulk}
	_, err := parts.WriteTo(h.lane)
	return err
}

// ask sends a request that is right and returns the status.
func (h *hostile) ask(op uint32, fields ...any) int32 {
	h.t.Helper()
	if err := h.send(op, pack(fields...), nil); err != nil {
		h.t.Fatal(err)
	}
	status, err := h.reply()
	if err != nil {
		h.t.Fatalf("operation %d: %v: %v", op, err, h.end())
	}
	return status
}

func (h *hostile) reply() (int32, error) {
	var head [headerBytes]byte
	if _, err := io.ReadFull(h.lane, head[:]); err != nil {
		return 0, err
	}
	n := int64(binary.LittleEndian.Uint32(head[:])) + int64(binary.LittleEndian.Uint64(head[8:]))
	_, err := io.CopyN(io.Discard, h.lane, n)
	return int32(binary.LittleEndian.Uint32(head[4:])), err
}

// pack makes a body of numbers, texts and lists.
func pack(fields ...any) []byte {
	var r reply
	for _, f := range fields {
		switch f := f.(type) {
		case uint32:
			r.u32(f)
		case uint64:
			r.u64(f)
		case string:
			r.text(f)
		case []uint64:
			r.u32(uint32(len(f)))
			for _, v := range f {
				r.u64(v)
			}
		}
	}
	return r.body
}

// populate makes a queue, a buffer, a user event and a command that waits for it.
func (h *hostile) populate() {
	h.t.Helper()
	none := []uint64{}
	zero := uint64(0)
	for i, status := range []int32{
		h.ask(opHello, uint32(Version), uint32(1), "hostile"),
		h.ask(opDevices),
		h.ask(opCreateQueue, uint64(1), zero, uint32(0)),
		h.ask(opCreateQueue, uint64(2), zero, uint32(1)),
		h.ask(opCreateBuffer, uint64(3), zero, uint32(0), uint64(65536)),
		h.ask(opCreateSub, uint64(4), uint64(3), uint32(0), uint64(4096), uint64(4096)),
		h.ask(opUserEvent, uint64(9)),
		h.ask(opFill, uint64(1), uint64(10), none, uint32(0), uint64(3), uint32(0), zero, zero, zero, uint64(64),
			uint64(1), uint64(1), zero, zero, "abcd"),
		h.ask(opRead, uint64(1), uint64(11), []uint64{9}, uint32(0), uint64(3), uint32(0), zero, zero, zero, uint64(64),
			uint64(1), uint64(1), zero, zero),
		h.ask(opWatch, uint64(77), uint64(11), uint32(0)),
	} {
		if status != 0 {
			h.t.Fatalf("request %d: status %d", i, status)
		}
	}
}

// end waits for the server's end.
func (h *hostile) end() error {
	h.t.Helper()
	select {
	case err := <-h.served:
		return err
	case <-time.After(time.Minute):
		h.t.Fatal("the server does not end")
		return nil
	}
}

// TestGarbage: whatever a program sends ends its own service at most, with an error that says so.
func TestGarbage(t *testing.T) {
	for _, c := range []struct {
		name string
		op   uint32
		body []byte
		bulk []byte
	}{
		{"unknown operation", 99, nil, nil},
		{"no body", opLaunch, nil, nil},
		{"too much", opFlush, pack(uint64(1), uint32(1)), nil},
		{"no such queue", opFlush, pack(uint64(3)), nil},
		{"a number twice", opCreateBuffer, pack(uint64(3), uint64(0), uint32(0), uint64(64)), nil},
		{"bulk unasked", opFlush, pack(uint64(1)), []byte("abc")},
		{"another length", opCreateBuffer, pack(uint64(50), uint64(0), uint32(0), uint64(64)), []byte("abc")},
		{"a long list", opWait, pack(uint32(1 << 30)), nil},
		{"beyond the buffer", opFill, pack(uint64(1), uint64(0), []uint64{}, uint32(0), uint64(3), uint32(0),
			uint64(65530), uint64(0), uint64(0), uint64(64), uint64(1), uint64(1), uint64(0), uint64(0), "ab"), nil},
		{"rows that wrap", opRead, pack(uint64(1), uint64(0), []uint64{}, uint32(1), uint64(3), uint32(1),
			uint64(1<<61), uint64(1<<61), uint64(1<<61), uint64(4), uint64(2), uint64(2), uint64(1<<62), uint64(1<<62)),
			nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHostile(t)
			h.populate()
			if err := h.send(c.op, c.body, c.bulk); err != nil {
				t.Fatal(err)
			}
			if err := h.end(); !errors.Is(err, errProtocol) {
				t.Errorf("got %v, want %v", err, errProtocol)
			}
		})
	}
}

// TestRandomMessages: messages at random, right ones among them, harm nothing but their own
// service. The seed is printed.
func TestRandomMessages(t *testing.T) {
	for seed := range uint64(20) {
		h := newHostile(t)
		h.populate()
		r := rand.New(rand.NewPCG(seed, 18))
		for range 200 {
			var body []byte
			for range r.IntN(14) {
				if r.IntN(3) == 0 {
					body = binary.LittleEndian.AppendUint32(body, uint32(r.IntN(5)))
				} else {
					body = binary.LittleEndian.AppendUint64(body, uint64(r.IntN(12)))
				}
			}
			if h.send(uint32(r.IntN(32)), body, nil) != nil {
				break
			}
			if err := h.lane.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := h.reply(); err != nil {
				break
			}
		}
		_ = h.control.Close()
		if err := h.end(); err != nil && !errors.Is(err, errProtocol) {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// TestHangUp: a program that ends, with a command that waits for ever, leaves nothing behind.
func TestHangUp(t *testing.T) {
	h := newHostile(t)
	h.populate()
	_ = h.control.Close()
	if err := h.end(); err != nil {
		t.Error(err)
	}
}
