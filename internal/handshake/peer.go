package handshake

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Peer returns the process and the user that the other end of a Unix socket had when it connected or began to listen,
// as the kernel knows them. The process is 0 where it is in a namespace that this one does not see.
func Peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var who *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		who, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("ask who is at the other end of the socket: %w", err)
	}
	return who, nil
}

// SameUser returns an error if another user is at the other end of a Unix socket.
func SameUser(c *net.UnixConn) error {
	who, err := Peer(c)
	if err == nil && int(who.Uid) != os.Geteuid() {
		err = fmt.Errorf("user %d is at the other end", who.Uid)
	}
	return err
}
