package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/session"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// control is the socket between a server and a worker. Messages keep their
// bounds, and connections travel with them.
type control struct{ c *net.UnixConn }

// controlBytes bounds a message.
const controlBytes = 128 << 10

// message is a message between a server and a worker: one of the fields.
type message struct {
	Start *start `json:",omitempty"` // first; with the usages and the client's connection

	Move      *wire.Move `json:",omitempty"`
	Share     bool       `json:",omitempty"` // with a connection for memory
	Dismiss   string     `json:",omitempty"`
	Admission *admission `json:",omitempty"` // the answer to Open

	Open  *wire.Open  `json:",omitempty"` // from the worker
	Moved *wire.Moved `json:",omitempty"` // from the worker
}

// admission answers whether a client that has chosen its device may stay.
type admission struct{ Refused bool }

// start is all that a worker needs to know.
type start struct {
	Service session.Service
	Client  session.Identity
	Usage   int // page of the client's
	Usages  int
}

// newControl makes the two ends of a control socket.
func newControl() (ours *control, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket for a worker: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "control")
	if ours, err = openControl(os.NewFile(uintptr(fds[0]), "control")); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// openControl takes over an end of a control socket.
func openControl(f *os.File) (*control, error) {
	c, err := net.FileConn(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok || u.LocalAddr().Network() != "unixpacket" {
		return nil, errors.Join(errors.New("no control socket"), c.Close())
	}
	return &control{u}, nil
}

// send sends a message and files with it. Goroutines may call it at once.
func (k *control) send(m message, files ...syscall.Conn) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > controlBytes {
		return fmt.Errorf("%w: %d bytes for a worker or its server", wire.ErrProtocol, len(b))
	}
	return withFiles(files, nil, func(fds []int) error {
		_, _, err := k.c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
		return err
	})
}

// withFiles calls do with the file descriptors of files, which stay open.
func withFiles(files []syscall.Conn, fds []int, do func(fds []int) error) error {
	if len(files) == 0 {
		return do(fds)
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = withFiles(files[1:], append(fds, int(fd)), do) })
	return errors.Join(err, inner)
}

// receive gives the next message and the files that came with it, which are the
// caller's. The error is io.EOF when the other side is gone.
func (k *control) receive() (m message, files []*os.File, err error) {
	b, oob := make([]byte, controlBytes), make([]byte, unix.CmsgSpace(2*4))
	n, oobn, _, _, err := k.c.ReadMsgUnix(b, oob)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return m, nil, err
	}
	files, err = shm.Files(oob[:oobn])
	return m, files, errors.Join(err, json.Unmarshal(b[:n], &m))
}

// connection turns a file into the connection that it is.
func connection(f *os.File) (net.Conn, error) {
	c, err := net.FileConn(f)
	return c, errors.Join(err, f.Close())
}
