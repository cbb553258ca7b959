package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/handshake"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"golang.org/x/sys/unix"
)

// conn is the socket of a client of this user, and its process.
type conn struct {
	sock    *net.UnixConn
	process int // pidfd; -1: the kernel did not give one
	wake    int // eventfd, readable once the connection is closed; -1: the process is not watched
	pid     int32
	closing sync.Once

	mu     sync.Mutex // guards closed
	closed bool
}

var errForeign = errors.New("it belongs to another user")

// newConn asks the kernel for the process at the other end.
func newConn(c *net.UnixConn) (*conn, error) {
	who, err := handshake.Peer(c)
	if err != nil {
		return nil, err
	}
	if int(who.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("process %d of user %d: %w", who.Pid, who.Uid, errForeign)
	}
	k := &conn{sock: c, pid: who.Pid, process: -1, wake: -1}
	if who.Pid > 0 { // 0: it is in a process namespace that this one does not see
		if fd, err := unix.PidfdOpen(int(who.Pid), 0); err == nil {
			k.process = fd
		}
	}
	if k.process >= 0 {
		if k.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			k.wake = -1
			k.free()
			return nil, fmt.Errorf("watch process %d: %w", who.Pid, err)
		}
	}
	return k, nil
}

// watch hangs up when the process ends: a child of it may hold the socket open.
func (k *conn) watch() {
	if k.process < 0 {
		return
	}
	fds := []unix.PollFd{{Fd: int32(k.process), Events: unix.POLLIN}, {Fd: int32(k.wake), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(fds, -1); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			k.hangUp()
			return
		}
	}
}

func (k *conn) exited() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.process < 0 {
		return k.closed
	}
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(k.process), Events: unix.POLLIN}}, 0) // interrupted: not yet
	return n > 0
}

func (k *conn) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.process >= 0 && !k.closed {
		_ = unix.PidfdSendSignal(k.process, syscall.SIGKILL, nil, 0) // it may have ended
	}
}

// hangUp ends reads and writes.
func (k *conn) hangUp() { k.closing.Do(func() { _ = k.sock.Close() }) }

// close frees everything; no call is under way.
func (k *conn) close() {
	k.hangUp()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.wake >= 0 {
		_, _ = unix.Write(k.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // of an empty counter, it never fails
	}
}

// free closes the descriptors of the watch, after watch has returned.
func (k *conn) free() {
	for _, fd := range []int{k.process, k.wake} {
		if fd >= 0 {
			_ = unix.Close(fd) // of no consequence
		}
	}
}

func (k *conn) read(b []byte) (wire.Message, error) {
	n, _, flags, _, err := k.sock.ReadMsgUnix(b, nil) // descriptors, which no client sends, are dropped
	if err != nil {
		return wire.Message{}, err
	}
	if n == 0 {
		return wire.Message{}, errDisconnected
	}
	if flags&unix.MSG_TRUNC != 0 {
		return wire.Message{}, fmt.Errorf("%w: longer than %d bytes", wire.ErrMalformed, wire.MaxBytes)
	}
	return wire.Decode(b[:n])
}

func (k *conn) write(b []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err := k.sock.WriteMsgUnix(b, oob, nil)
	return err
}
