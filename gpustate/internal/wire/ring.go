package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
)

// The memory that a client grants first holds the slots, and behind them two
// rings of bytes: from the client to the server, and back. A ring is a page with
// three numbers, each in a cache line of its own, and its bytes.
const (
	ringBytes  = 128 << 10 // a power of 2
	ringHead   = 4096
	atWritten  = 0   // bytes ever written, 8 bytes; the writer's
	atRead     = 64  // bytes ever read, 8 bytes; the reader's
	atAsleep   = 128 // 4 bytes: 1 when the reader wants to be woken
	ringsBytes = 2 * (ringHead + ringBytes)

	// SharedBytes is the size of the memory with the slots and the rings.
	SharedBytes = ArenaBytes + ringsBytes
)

// Ring is a connection of two processes of one machine through memory that both
// map. The Unix socket beside it carries one byte to wake a side that sleeps, and
// tells when the other side is gone.
//
// What the other side writes to the memory is not trusted: each side keeps its
// own count and checks the other's once it has read it, and bytes are copied out
// before anything looks at them.
//
// One goroutine at a time reads, and one writes.
type Ring struct {
	*net.UnixConn
	raw      interface{ Control(func(uintptr)) error }
	wakePeer func(fd uintptr)

	reading sync.Mutex
	in      half
	closing atomic.Bool // CloseRead
	polls   uint        // since the last look at the socket
	spare   bool        // there are cores to stay awake on

	// OnWait, if it is set, is called by Read while it waits: again and again as long as it stays awake, and with
	// sleeps before it sleeps. It lets other goroutines run that have something to do.
	OnWait func(sleeps bool)

	short atomic.Int32 // above 0 when waits have been short of late

	writing sync.Mutex
	out     half
	until   atomic.Int64 // when the other side must have made room, in ns; 0 without end
}

// half is one direction.
type half struct {
	data          []byte // nil when the ring is over
	written, read *atomic.Uint64
	asleep        *atomic.Uint32
	count         uint64 // this side's own: what it has written, or read
}

// NewRing makes a connection of mapped memory of SharedBytes that begins as
// zeros, and of the socket it was granted through.
func NewRing(c *net.UnixConn, shared []byte, client bool) (*Ring, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	r := &Ring{UnixConn: c, raw: raw, in: newHalf(shared[ArenaBytes:]),
		out: newHalf(shared[ArenaBytes+ringHead+ringBytes:]), spare: runtime.GOMAXPROCS(0) >= spareCores}
	if client {
		r.in, r.out = r.out, r.in
	}
	// a socket that is full of wakings needs no other one
	r.wakePeer = func(fd uintptr) { _ = unix.Send(int(fd), []byte{1}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) }
	return r, nil
}

func newHalf(b []byte) half {
	return half{data: b[ringHead : ringHead+ringBytes : ringHead+ringBytes],
		written: (*atomic.Uint64)(unsafe.Pointer(&b[atWritten])),
		read:    (*atomic.Uint64)(unsafe.Pointer(&b[atRead])),
		asleep:  (*atomic.Uint32)(unsafe.Pointer(&b[atAsleep]))}
}

// Release ends the use of the memory, which may be unmapped then.
func (r *Ring) Release() {
	r.reading.Lock()
	r.in = half{}
	r.reading.Unlock()
	r.writing.Lock()
	r.out = half{}
	r.writing.Unlock()
}

// CloseRead makes Read end.
func (r *Ring) CloseRead() error {
	r.closing.Store(true)
	return r.UnixConn.CloseRead()
}

// Read waits for bytes: for a moment awake, then until the socket brings a byte.
func (r *Ring) Read(b []byte) (int, error) {
	for {
		n, err := r.Poll(b)
		if n > 0 || err != nil {
			return n, err
		}
		if r.Spin(betweenCommands, r.meanwhile) {
			continue
		}
		if r.OnWait != nil {
			r.OnWait(true)
		}
		if !r.PrepareSleep() {
			continue
		}
		begin := time.Now()
		if err := r.Sleep(); err != nil {
			if n, _ := r.Poll(b); n > 0 {
				return n, nil
			}
			return 0, err
		}
		r.Waited(betweenCommands, time.Since(begin))
		r.Watch()
	}
}

// meanwhile is what Read does while it stays awake.
func (r *Ring) meanwhile() bool {
	if r.OnWait != nil {
		r.OnWait(false)
	}
	return false
}

// StaysAwake tells that Read stays awake for a moment when there is nothing to read.
func (r *Ring) StaysAwake() bool { return r.spare && r.short.Load() > 0 }

// Poll gives the bytes that are there, if any.
func (r *Ring) Poll(b []byte) (int, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.closing.Load() {
		return 0, io.EOF
	}
	if r.in.data == nil {
		return 0, net.ErrClosed
	}
	if r.polls++; r.polls%256 == 0 { // who never sleeps does not hear of the end
		if err := r.raw.Control(func(uintptr) {}); err != nil {
			return 0, err
		}
	}
	return r.in.take(b)
}

// take copies bytes out.
func (h *half) take(b []byte) (int, error) {
	n := h.written.Load() - h.count
	if n > ringBytes {
		return 0, fmt.Errorf("%w: a ring with %d bytes in %d", ErrProtocol, n, ringBytes)
	}
	b = b[:min(uint64(len(b)), n)]
	at := h.count % ringBytes
	k := copy(b, h.data[at:])
	copy(b[k:], h.data)
	if len(b) > 0 {
		h.count += uint64(len(b))
		h.read.Store(h.count)
	}
	return len(b), nil
}

// put copies bytes in, as many as there is room for.
func (h *half) put(b []byte) (int, error) {
	used := h.count - h.read.Load()
	if used > ringBytes {
		return 0, fmt.Errorf("%w: a ring with %d bytes in %d", ErrProtocol, used, ringBytes)
	}
	b = b[:min(uint64(len(b)), ringBytes-used)]
	at := h.count % ringBytes
	k := copy(h.data[at:], b)
	copy(h.data, b[k:])
	if len(b) > 0 {
		h.count += uint64(len(b))
		h.written.Store(h.count)
	}
	return len(b), nil
}

// Write waits for room until the time of SetWriteDeadline, and wakes the other
// side if it sleeps.
func (r *Ring) Write(b []byte) (n int, err error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	pause := sleep.Backoff{First: 20 * time.Microsecond, Longest: time.Millisecond}
	for {
		if r.out.data == nil {
			return n, net.ErrClosed
		}
		k, err := r.out.put(b[n:])
		if err != nil {
			return n, err
		}
		if n += k; k > 0 && r.out.asleep.Load() != 0 && r.out.asleep.Swap(0) != 0 {
			if err := r.raw.Control(r.wakePeer); err != nil {
				return n, err
			}
		}
		if n == len(b) {
			return n, nil
		}
		if k > 0 {
			pause.Last = 0
		}
		if err := r.full(pause.Next()); err != nil {
			return n, err
		}
	}
}

// full waits while the ring has no room. Nothing wakes the writer: whoever reads
// so slowly does not gain from it.
func (r *Ring) full(pause time.Duration) error {
	if t := r.until.Load(); t != 0 && time.Now().UnixNano() > t {
		return fmt.Errorf("write to a ring: %w", os.ErrDeadlineExceeded)
	}
	time.Sleep(pause)
	if pause < time.Millisecond {
		return nil
	}
	hungUp := false
	err := r.raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, _ := unix.Poll(p, 0)
		hungUp = n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	if err == nil && hungUp {
		err = unix.EPIPE
	}
	return err
}

// SetWriteDeadline bounds the wait for room, also of a write that waits already.
func (r *Ring) SetWriteDeadline(t time.Time) error {
	var ns int64
	if !t.IsZero() {
		ns = t.UnixNano()
	}
	r.until.Store(ns)
	return nil
}

// peerAwake tells that the other side looks at the ring.
func (r *Ring) peerAwake() bool {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.out.data != nil && r.out.asleep.Load() == 0
}

// Watch says that somebody looks at the ring, so that nobody needs waking.
func (r *Ring) Watch() {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.in.data != nil {
		r.in.asleep.Store(0)
	}
}

// PrepareSleep asks to be woken. It returns false when there is something to read.
func (r *Ring) PrepareSleep() bool {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.in.data == nil {
		return true // Sleep tells of the end
	}
	r.in.asleep.Store(1)
	if r.in.written.Load() == r.in.count {
		return true
	}
	r.in.asleep.Store(0)
	return false
}

// Sleep returns when it was woken after PrepareSleep; the error says that the other side
// is gone, and why if somebody has told so in its place.
func (r *Ring) Sleep() error {
	var b [64]byte
	n, err := r.UnixConn.Read(b[:])
	if rest := bytes.TrimLeft(b[:n], "\x01"); len(rest) > 0 {
		return r.lastWord(rest)
	}
	if errors.Is(err, unix.ECONNRESET) { // it went with a waking unread
		err = io.EOF
	}
	return err
}

// lastWord reads a Bye that came through the socket: from the server of a process
// that has died.
func (r *Ring) lastWord(begun []byte) error {
	const most = 4096
	in := io.LimitReader(io.MultiReader(bytes.NewReader(begun), r.UnixConn), most)
	op, body, _, err := ReadFrame(bufio.NewReader(in), nil)
	if err != nil {
		return err
	}
	var bye Bye
	if err := Decode(body, &bye); err != nil || op != OpBye {
		return errors.Join(ErrProtocol, err)
	}
	return errors.New(bye.Why)
}

// How waits go on. Who waits for short times stays awake for them; who waits for
// long ones gains nothing from it. To be woken takes 10 to 40 us.
const (
	betweenCommands = time.Millisecond // that Read stays awake at most: a transfer of 32 MiB
	mostShort       = 8
	spareCores      = 4 // with fewer, staying awake takes the other side's core
)

// Waited takes in how long a wait was that outlasted Spin.
func (r *Ring) Waited(most, d time.Duration) {
	if n := r.short.Load(); d < 2*most {
		r.short.Store(min(n+2, mostShort))
	} else {
		r.short.Store(max(n-1, 0))
	}
}

// Spin stays awake, at most for so long, until there is something to read or
// over is true.
func (r *Ring) Spin(most time.Duration, over func() bool) bool {
	if r.short.Load() == 0 || !r.spare {
		return false
	}
	if r.OnWait == nil {
		runtime.Gosched() // to what became ready by what was read
	}
	begin := time.Now()
	for yield := yieldEvery; ; {
		for range 32 {
			if r.there() || over != nil && over() {
				r.short.Store(min(r.short.Load()+1, mostShort))
				return true
			}
		}
		spent := time.Since(begin)
		if spent > most {
			return false
		}
		if spent > yield {
			runtime.Gosched()
			yield = spent + yieldEvery
		}
	}
}

// yieldEvery is for how long who stays awake does not let others have the processor. Where some are idle, which is
// where anybody stays awake, Gosched wakes one each time.
const yieldEvery = 50 * time.Microsecond

// there tells that Poll has something to say.
func (r *Ring) there() bool {
	r.reading.Lock()
	defer r.reading.Unlock()
	return r.in.data == nil || r.closing.Load() || r.in.written.Load() != r.in.count
}
