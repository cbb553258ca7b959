package opencl

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
	"golang.org/x/sys/unix"
)

// hostile is the other side: it says what it likes.
type hostile struct {
	t       *testing.T
	control *net.UnixConn
	conn    net.Conn
	ring    []byte // that it shares
	server  *Server
	served  chan error
}

func pair(t testing.TB) (a, b *net.UnixConn) {
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
	h := &hostile{t: t, control: mine, server: newServer(its, Options{Select: sel}), served: make(chan error, 1)}
	go func() { h.served <- h.server.run(context.Background(), nil) }()
	f, err := sealed(wire.RingData + wire.RingBytes)
	if err != nil {
		t.Fatal(err)
	}
	if h.ring, err = mapSealed(f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(h.ring) })
	h.give('R', f)
	near, far := pair(t)
	h.conn = near
	file, err := far.File()
	if err != nil {
		t.Fatal(err)
	}
	h.give('L', file)
	_ = far.Close()
	t.Cleanup(func() {
		_ = near.Close()
		_ = mine.Close()
	})
	return h
}

// sealed makes memory of a fixed number of bytes.
func sealed(bytes int) (*os.File, error) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "memory")
	if err := f.Truncate(int64(bytes)); err != nil {
		return nil, err
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	return f, err
}

// give passes a file, and closes it.
func (h *hostile) give(what byte, f *os.File) {
	h.t.Helper()
	if _, _, err := h.control.WriteMsgUnix([]byte{what}, unix.UnixRights(int(f.Fd())), nil); err != nil {
		h.t.Fatal(err)
	}
	_ = f.Close()
}

// put writes into the ring and wakes the server.
func (h *hostile) put(b []byte) {
	written := (*atomic.Uint64)(unsafe.Pointer(&h.ring[wire.RingWritten]))
	at := written.Load()
	for i := range b {
		h.ring[wire.RingData+(at+uint64(i))%wire.RingBytes] = b[i]
	}
	written.Store(at + uint64(len(b)))
	_, _ = h.control.Write([]byte{'D'}) // a server that has ended is no failure
}

func (h *hostile) send(op uint32, body []byte, bulk []byte) error {
	parts := net.Buffers{wire.Header(len(body), op, len(bulk), 0), body, bulk}
	_, err := parts.WriteTo(h.conn)
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
	var head [wire.HeaderBytes]byte
	if _, err := io.ReadFull(h.conn, head[:]); err != nil {
		return 0, err
	}
	n := int64(binary.LittleEndian.Uint32(head[:])) + int64(binary.LittleEndian.Uint64(head[8:]))
	_, err := io.CopyN(io.Discard, h.conn, n)
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
	zero, context := uint64(0), uint64(5)
	for i, status := range []int32{
		h.ask(wire.OpHello, uint32(wire.Version), uint32(1), "hostile"),
		h.ask(wire.OpDevices),
		h.ask(wire.OpContext, context, []uint64{0}),
		h.ask(wire.OpCreateQueue, uint64(1), context, zero, uint32(0)),
		h.ask(wire.OpCreateQueue, uint64(2), context, zero, uint32(1)),
		h.ask(wire.OpCreateBuffer, uint64(3), context, uint32(0), uint64(65536)),
		h.ask(wire.OpCreateSub, uint64(4), uint64(3), uint32(0), uint64(4096), uint64(4096)),
		h.ask(wire.OpUserEvent, uint64(9)),
		h.ask(wire.OpFill, uint64(1), uint64(10), none, uint32(0), uint64(3), uint32(0), zero, zero, zero, uint64(64),
			uint64(1), uint64(1), zero, zero, "abcd"),
		h.ask(wire.OpRead, uint64(1), uint64(11), []uint64{9}, uint32(0), uint64(3), uint32(0), zero, zero, zero,
			uint64(64),
			uint64(1), uint64(1), zero, zero),
		h.ask(wire.OpWatch, uint64(77), uint64(11), uint32(0)),
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
		{"no body", wire.OpLaunch, nil, nil},
		{"too much", wire.OpFlush, pack(uint64(1), uint32(1)), nil},
		{"no such queue", wire.OpFlush, pack(uint64(3)), nil},
		{"a number twice", wire.OpCreateBuffer, pack(uint64(3), uint64(5), uint32(0), uint64(64)), nil},
		{"a device twice", wire.OpContext, pack(uint64(60), []uint64{0, 0}), nil},
		{"a context of another kind", wire.OpCreateBuffer, pack(uint64(60), uint64(3), uint32(0), uint64(64)), nil},
		{"a form of build", wire.OpBuild, pack(uint64(60), uint64(5), uint64(0), uint32(7), []uint64{0}, "", uint32(1),
			"",
			""), nil},
		{"builds of no program", wire.OpBuild, pack(uint64(60), uint64(5), uint64(3), uint32(0), []uint64{0}, "",
			uint32(1),
			"", ""), nil},
		{"many sources", wire.OpBuild, pack(uint64(60), uint64(5), uint64(0), uint32(2), []uint64{0}, "",
			uint32(1<<20)),
			nil},
		{"an image on an image's shape", wire.OpCreateImage, pack(uint64(60), uint64(5), uint32(0), uint32(2),
			uint32(0x10B5), uint32(0x10DA), uint64(4), uint64(4), uint64(1), uint32(4), uint64(3)), nil},
		{"bulk unasked", wire.OpFlush, pack(uint64(1)), []byte("abc")},
		{"another length", wire.OpCreateBuffer, pack(uint64(50), uint64(5), uint32(0), uint64(64)), []byte("abc")},
		{"a long list", wire.OpWait, pack(uint32(1 << 30)), nil},
		{"beyond the buffer", wire.OpFill, pack(uint64(1), uint64(0), []uint64{}, uint32(0), uint64(3), uint32(0),
			uint64(65530), uint64(0), uint64(0), uint64(64), uint64(1), uint64(1), uint64(0), uint64(0), "ab"), nil},
		{"rows that wrap", wire.OpRead, pack(uint64(1), uint64(0), []uint64{}, uint32(1), uint64(3), uint32(1),
			uint64(1<<61), uint64(1<<61), uint64(1<<61), uint64(4), uint64(2), uint64(2), uint64(1<<62), uint64(1<<62)),
			nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHostile(t)
			h.populate()
			if err := h.send(c.op, c.body, c.bulk); err != nil {
				t.Fatal(err)
			}
			if err := h.end(); !errors.Is(err, wire.ErrProtocol) {
				t.Errorf("got %v, want %v", err, wire.ErrProtocol)
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
			if h.send(uint32(r.IntN(33)), body, nil) != nil {
				break
			}
			if err := h.conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := h.reply(); err != nil {
				break
			}
		}
		_ = h.control.Close()
		if err := h.end(); err != nil && !errors.Is(err, wire.ErrProtocol) {
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

// inRing returns a request as the ring has it.
func inRing(op uint32, slot uint64, body []byte) []byte {
	b := append(wire.Header(len(body), op, 0, slot), body...)
	return append(b, make([]byte, -len(b)&7)...)
}

// TestRing: requests of the ring are carried out in order, before one of a connection that comes after
// them, and answered in their slots.
func TestRing(t *testing.T) {
	h := newHostile(t)
	h.populate()
	fill := func(event uint64, text string) []byte {
		zero, one := uint64(0), uint64(1)
		return inRing(wire.OpFill, 0, pack(uint64(2), event, []uint64{}, uint32(0), uint64(3), uint32(0), zero, zero,
			zero,
			uint64(64), one, one, zero, zero, text))
	}
	h.put(append(fill(21, "efgh"), fill(22, "ijkl")...))
	h.put(inRing(wire.OpFinish, 5, pack(uint64(2))))
	status := func(slot int) uint32 {
		return (*atomic.Uint32)(unsafe.Pointer(&h.ring[wire.RingReplies+slot*wire.RingSlot])).Load()
	}
	for status(5) != wire.SlotAnswered {
		select {
		case err := <-h.served:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	if got := h.ask(wire.OpWait, []uint64{21, 22}); got != 0 {
		t.Errorf("wait for commands of the ring: status %d", got)
	}
}

// TestRingOfGarbage: whatever the ring holds ends its own service at most.
func TestRingOfGarbage(t *testing.T) {
	for seed := range uint64(40) {
		h := newHostile(t)
		h.populate()
		r := rand.New(rand.NewPCG(seed, 4))
		for range 50 {
			body := make([]byte, r.IntN(120))
			for i := range body {
				body[i] = byte(r.IntN(12))
			}
			b := inRing(uint32(r.IntN(32)), uint64(r.IntN(70)), body)
			switch r.IntN(20) {
			case 0: // any bytes
				for i := range b {
					b[i] = byte(r.Uint32())
				}
			case 1: // a number that lies
				at := []int{wire.RingWritten, wire.RingRead, wire.RingAsleep, wire.RingLost,
					wire.RingReplies + 64*r.IntN(64)}[r.IntN(5)]
				binary.LittleEndian.PutUint64(h.ring[at:], r.Uint64())
			case 2: // a request that is cut
				b = b[:r.IntN(len(b))]
			}
			h.put(b)
		}
		if r.IntN(2) == 0 {
			_ = h.control.Close()
		} else {
			h.put(make([]byte, 7)) // no multiple of eight, whatever was before
			h.put(make([]byte, 6))
		}
		if err := h.end(); err != nil && !errors.Is(err, wire.ErrProtocol) {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// TestSharedGarbage: places outside of an area, slots that are none and memory that can shrink
// end the service of who sends them.
func TestSharedGarbage(t *testing.T) {
	transfer := func(flags uint32, host ...any) []byte {
		zero, one := uint64(0), uint64(1)
		return append(pack(uint64(2), zero, []uint64{}, flags, uint64(3), uint32(0), zero, zero, zero, uint64(64), one,
			one, zero, zero), pack(host...)...)
	}
	for _, c := range []struct {
		name string
		op   uint32
		body []byte
	}{
		{"beyond the area", wire.OpRead, transfer(wire.InArea, uint64(1), uint64(4096-63), uint64(0), uint64(0))},
		{"an offset that wraps", wire.OpWrite, transfer(wire.InArea, uint64(1), uint64(1<<62), uint64(0), uint64(0))},
		{"rows of a range", wire.OpWrite, transfer(wire.InArea, uint64(1), uint64(0), uint64(64), uint64(64))},
		{"no such area", wire.OpRead, transfer(wire.InArea, uint64(1<<40), uint64(0), uint64(0), uint64(0))},
		{"slots of a small area", wire.OpRead, transfer(wire.InSlots, uint64(1), []uint64{0})},
		{"no slots", wire.OpWrite, transfer(wire.InSlots, uint64(2), []uint64{})},
		{"slot 32", wire.OpRead, transfer(wire.InSlots, uint64(2), []uint64{32})},
		{"bytes behind the ring", wire.OpWrite, transfer(0)},
		{"an end of no area", wire.OpUnshare, pack(uint64(1 << 40))},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHostile(t)
			h.populate()
			for _, bytes := range []int{4096, wire.Slots * wire.SlotBytes} {
				f, err := sealed(bytes)
				if err != nil {
					t.Fatal(err)
				}
				h.give('M', f)
			}
			h.put(inRing(wire.OpRead, 7, transfer(wire.InArea|wire.Blocking, uint64(1), uint64(4096-64), uint64(0),
				uint64(0))))
			if got := h.ask(wire.OpFinish, uint64(2)); got != 0 {
				t.Errorf("a read to the end of an area: status %d", got)
			}
			h.put(inRing(c.op, 0, c.body))
			if err := h.end(); !errors.Is(err, wire.ErrProtocol) {
				t.Errorf("got %v, want %v", err, wire.ErrProtocol)
			}
		})
	}
	t.Run("memory that can shrink", func(t *testing.T) {
		h := newHostile(t)
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "memory")
		if err := f.Truncate(4096); err != nil {
			t.Fatal(err)
		}
		h.give('M', f)
		if err := h.end(); !errors.Is(err, wire.ErrProtocol) {
			t.Errorf("got %v, want %v", err, wire.ErrProtocol)
		}
	})
}
