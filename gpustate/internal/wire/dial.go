package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/internal/handshake"
)

// ServerError is a failure of a server of devices: it cannot be reached, refuses, or was lost. A lost one matches
// driver.ErrDeviceLost.
type ServerError struct {
	Server string // its address
	Op     string // "connect to", "open a device of", "lost"
	Lost   bool
	Err    error
}

// Error names the server and the cause.
func (e *ServerError) Error() string {
	if e.Lost {
		return fmt.Sprintf("GPU server %s is lost: %v; its objects are lost too: restart from a checkpoint", e.Server,
			e.Err)
	}
	return fmt.Sprintf("%s GPU server %s: %v", e.Op, e.Server, e.Err)
}

// Unwrap returns the cause.
func (e *ServerError) Unwrap() error { return e.Err }

// Is makes a lost server match driver.ErrDeviceLost.
func (e *ServerError) Is(target error) bool { return e.Lost && target == driver.ErrDeviceLost }

// SplitAddr gives network and address of "unix:PATH", "tcp:HOST:PORT" or
// "HOST:PORT".
func SplitAddr(addr string) (network, address string, err error) {
	if p, ok := strings.CutPrefix(addr, "unix:"); ok {
		if p == "" {
			return "", "", errors.New("want unix:PATH, the path is empty")
		}
		if most := len(unix.RawSockaddrUnix{}.Path) - 1; len(p) > most {
			return "", "", fmt.Errorf("unix:%s: the path has %d bytes, sockets allow %d", p, len(p),
				most)
		}
		return "unix", p, nil
	}
	address = strings.TrimPrefix(addr, "tcp:")
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return "", "", fmt.Errorf("address %q: want unix:PATH or HOST:PORT", addr)
	}
	return "tcp", address, nil
}

// KeepAlive finds connections whose other side is gone without a word.
var KeepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 5}

// LimitSilence makes a TCP connection fail when sent bytes, or probes, have gone
// unacknowledged for this time: a host that lost its power is silent.
func LimitSilence(c net.Conn, silence time.Duration) error {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
	return errors.Join(err, failed)
}

// Dial connects to a server and does the client's side of the handshake.
func Dial(ctx context.Context, addr string, k Key, p Purpose) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &ServerError{Server: addr, Op: "connect to", Err: err}
	}
	network, address, err := SplitAddr(addr)
	if err != nil {
		return fail(err)
	}
	d := net.Dialer{Timeout: HandshakeTime, KeepAliveConfig: KeepAlive}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w (is `holdfast gpud` running there?)", err)
		}
		return fail(err)
	}
	err = errors.Join(trusted(c), LimitSilence(c, Silence), c.SetDeadline(time.Now().Add(HandshakeTime)))
	if err == nil {
		err = Greet(c, k, p)
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = c.Close() // of no use
		return fail(err)
	}
	return c, nil
}

// trusted reports whether the server of a Unix socket runs as this user or root: in a directory
// where all users can make files another one may have been quicker.
func trusted(c net.Conn) error {
	u, ok := c.(*net.UnixConn)
	if !ok || os.Geteuid() == 0 {
		return nil
	}
	who, err := handshake.Peer(u)
	if err != nil {
		return err
	}
	return trustedUser(int(who.Uid), os.Geteuid())
}

func trustedUser(theirs, ours int) error {
	if theirs != ours && theirs != 0 {
		return fmt.Errorf("the socket belongs to user %d, who is neither this user nor root", theirs)
	}
	return nil
}
