package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

// peers returns the other ends of all connected Unix sockets, by the numbers that /proc/PID/fd has for them.
func peers() (map[uint64]uint64, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	const showPeer = 4 // UDIAG_SHOW_PEER
	ask := make([]byte, unix.NLMSG_HDRLEN+24)
	binary.NativeEndian.PutUint32(ask, uint32(len(ask)))
	binary.NativeEndian.PutUint16(ask[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(ask[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := ask[unix.NLMSG_HDRLEN:]
	body[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(body[4:], ^uint32(0)) // all states
	binary.NativeEndian.PutUint32(body[12:], showPeer)
	if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	of := map[uint64]uint64{}
	for b := make([]byte, 1<<16); ; {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return nil, err
		}
		list, err := syscall.ParseNetlinkMessage(b[:n])
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return of, nil
			case unix.NLMSG_ERROR:
				return nil, errors.New("the kernel does not tell about Unix sockets (CONFIG_UNIX_DIAG)")
			}
			notePeer(of, m.Data)
		}
	}
}

// notePeer reads a struct unix_diag_msg and its attributes.
func notePeer(of map[uint64]uint64, b []byte) {
	const head, peer = 16, 2 // UNIX_DIAG_PEER
	if len(b) < head {
		return
	}
	own := uint64(binary.NativeEndian.Uint32(b[4:]))
	for b = b[head:]; len(b) >= 4; {
		n, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if n < 4 || n > len(b) {
			return
		}
		if kind == peer && n >= 8 {
			of[own] = uint64(binary.NativeEndian.Uint32(b[4:]))
		}
		b = b[min((n+3)&^3, len(b)):]
	}
}

func inode(f *os.File) (uint64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Sys().(*syscall.Stat_t).Ino, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written
	}
}

// peek reads the waiting bytes of a socket, up to a limit at a time, and leaves them there. Each piece goes to a
// function with the files that came with it or with the next one, which the function keeps.
func peek(f *os.File, atOnce int, each func(b []byte, files []*os.File) error) (err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	e := raw.Control(func(at uintptr) {
		fd := int(at)
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEEK_OFF, 0); err != nil {
			return
		}
		b, oob := make([]byte, atOnce), make([]byte, unix.CmsgSpace(4*4))
		for err == nil {
			n, oobn, flags, _, e := unix.Recvmsg(fd, b, oob, unix.MSG_PEEK|unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			if errors.Is(e, unix.EAGAIN) {
				break
			}
			var files []*os.File
			if e == nil && n == 0 {
				e = errors.New("the program has closed a connection to its helper")
			}
			if e == nil {
				files, e = shm.Files(oob[:oobn])
			}
			if e == nil && flags&unix.MSG_CTRUNC != 0 {
				e = errors.New("no room for the files of a message (ulimit -n)")
			}
			if err = e; err == nil {
				err = each(b[:n], files)
			}
		}
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEEK_OFF, -1))
	})
	return errors.Join(err, e)
}

// pair makes two sockets. The second gets all bytes that are written to the first, the program's, before the program
// runs.
func pair() (program, helper *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(ends[0]), "program's end"), os.NewFile(uintptr(ends[1]), "helper's end"), nil
}

// widen makes room for bytes at the program's end of a connection while put runs. The room does not stay: the next
// image would have as many bytes on the way as it holds.
func widen(f *os.File, bytes int, put func() error) error {
	fd := int(f.Fd())
	before, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, before+bytes); err != nil {
		return err
	}
	err = put()
	return errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, before/2)) // the kernel doubles it
}

// put writes to the program's end of a connection, without waiting.
func put(f *os.File, b []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for len(b) > 0 {
		n, err := unix.SendmsgN(int(f.Fd()), b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != nil {
			return fmt.Errorf("what was on the way to the helper has no room: %w", err)
		}
		b, oob = b[n:], nil
	}
	return nil
}
