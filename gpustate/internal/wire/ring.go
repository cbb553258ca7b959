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

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/internal/shm"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
)

// The memory that a client grants first holds the slots, and behind them two
// rings of bytes: from the client to the server, and back. A ring is a page with
// its numbers, and its bytes.
const (
	ringBytes  = 128 << 10 // a power of 2
	ringHead   = 4096
	ringsBytes = 2 * (ringHead + ringBytes)

	// SharedBytes is the size of the memory with the slots and the rings.
	SharedBytes = ArenaBytes + ringsBytes
)

// ringLayout is that of each of the two.
var ringLayout = shm.RingLayout{Written: 0, Read: 64, Asleep: 128, Data: ringHead, Bytes: ringBytes}

// Ring is a connection of two processes of one machine through memory that both
// map. The Unix socket next to it carries one byte to wake a side that sleeps, and
// ends when the other side does.
//
// One goroutine at a time reads, and one writes.
type Ring struct {
	*net.UnixConn
	raw      interface{ Control(func(uintptr)) error }
	wakePeer func(fd uintptr)

	reading sync.Mutex
	in      shm.RingReader
	closing atomic.Bool // CloseRead
	polls   uint        // since the last look at the socket
	awake   shm.Awake

	// OnWait, if it is set, is called by Read while it waits: again and again as long as it stays awake, and with
	// sleeps before it sleeps. It lets other goroutines run that have something to do.
	OnWait func(sleeps bool)

	writing sync.Mutex
	out     shm.RingWriter
	until   atomic.Int64 // when the other side must have made room, in ns; 0 without end
}

// NewRing makes a connection of mapped memory of SharedBytes that begins as
// zeros, and of the socket it was granted through.
func NewRing(c *net.UnixConn, shared []byte, client bool) (*Ring, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	in, out := shared[ArenaBytes:], shared[ArenaBytes+ringHead+ringBytes:]
	if client {
		in, out = out, in
	}
	r := &Ring{UnixConn: c, raw: raw, in: shm.NewRingReader(in, ringLayout), out: shm.NewRingWriter(out, ringLayout)}
	r.awake.Spare = shm.SpareCores()
	// a socket that is full of wakings needs no other one
	r.wakePeer = func(fd uintptr) { _ = unix.Send(int(fd), []byte{1}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) }
	return r, nil
}

// Release ends the use of the memory, which may be unmapped then.
func (r *Ring) Release() {
	r.reading.Lock()
	r.in = shm.RingReader{}
	r.reading.Unlock()
	r.writing.Lock()
	r.out = shm.RingWriter{}
	r.writing.Unlock()
}

// CloseRead makes Read end.
func (r *Ring) CloseRead() error {
	r.closing.Store(true)
	return r.UnixConn.CloseRead()
}

// Read waits for bytes: it spins shortly, then waits until the socket brings a byte.
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

// meanwhile does Read's work while it stays awake.
func (r *Ring) meanwhile() bool {
	if r.OnWait != nil {
		r.OnWait(false)
	}
	return false
}

// StaysAwake reports whether Read spins when there is nothing to read.
func (r *Ring) StaysAwake() bool { return r.awake.Stays() }

// Poll gives the bytes that are there, if any.
func (r *Ring) Poll(b []byte) (int, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.closing.Load() {
		return 0, io.EOF
	}
	if r.in.Over() {
		return 0, net.ErrClosed
	}
	if r.polls++; r.polls%256 == 0 { // a reader that never sleeps does not see the end
		if err := r.raw.Control(func(uintptr) {}); err != nil {
			return 0, err
		}
	}
	n, err := r.in.Read(b)
	return n, ringError(err)
}

// ringError returns the error of a ring as one of this package.
func ringError(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return err
}

// Write waits for room until the time of SetWriteDeadline, and wakes the other
// side if it sleeps.
func (r *Ring) Write(b []byte) (n int, err error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	pause := sleep.Backoff{First: 20 * time.Microsecond, Longest: time.Millisecond}
	for {
		if r.out.Over() {
			return n, net.ErrClosed
		}
		k, err := r.out.Write(b[n:])
		if err != nil {
			return n, ringError(err)
		}
		if n += k; k > 0 && r.out.Wakes() {
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

// full waits while the ring has no room.
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

// peerAwake reports whether the other side looks at the ring.
func (r *Ring) peerAwake() bool {
	r.writing.Lock()
	defer r.writing.Unlock()
	return !r.out.Over() && !r.out.Sleeps()
}

// Watch notes that a goroutine looks at the ring, so that none needs waking.
func (r *Ring) Watch() {
	r.reading.Lock()
	defer r.reading.Unlock()
	if !r.in.Over() {
		r.in.Watch()
	}
}

// PrepareSleep asks to be woken. It returns false when there is something to read.
func (r *Ring) PrepareSleep() bool {
	r.reading.Lock()
	defer r.reading.Unlock()
	return r.in.Over() || r.in.Sleep() // Ring.Sleep reports the end
}

// Sleep returns when it was woken after PrepareSleep; the error says that the other side
// is gone, and why if a message in its place said so.
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

// betweenCommands is for how long Read stays awake: a transfer of 32 MiB.
const betweenCommands = time.Millisecond

// Waited takes in how long a wait was that outlasted Spin.
func (r *Ring) Waited(most, d time.Duration) { r.awake.Slept(most, d) }

// Spin stays awake, at most for this time, until there is something to read or
// over is true.
func (r *Ring) Spin(most time.Duration, over func() bool) bool {
	if r.OnWait == nil && r.awake.Stays() {
		runtime.Gosched() // to commands that became ready by it
	}
	return r.awake.Wait(most, func() bool { return r.there() || over != nil && over() }, nil)
}

// there reports whether Poll has a result.
func (r *Ring) there() bool {
	r.reading.Lock()
	defer r.reading.Unlock()
	return r.in.Over() || r.closing.Load() || !r.in.Empty()
}
