package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/internal/handshake"
	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// MaxAddress bounds the length of an address.
const MaxAddress = 64

// The beginnings of answers to a question.
const (
	granted = 1 // a file comes with it
	unable  = 2 // there is a file, and it cannot be handed over
)

// Handover gives open files to the other processes of the node, over a Unix socket without a name in any directory: a
// file that one of them has opened costs the others no look at its file system. Both ends make sure that the other one
// belongs to the same user.
type Handover struct {
	l    *net.UnixListener
	open func(key uint32) (syscall.Conn, error)
	ctx  context.Context // until Close
	end  context.CancelFunc
}

// HandOver starts to give away the file that open returns for a key. open is called for every question, by several
// goroutines; the file stays its own. The caller closes the Handover.
func HandOver(open func(key uint32) (syscall.Conn, error)) (*Handover, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: "@holdfast-" + random.Text()})
	if err != nil {
		return nil, fmt.Errorf("listen for the processes of the node: %w", err)
	}
	h := &Handover{l: l, open: open}
	h.ctx, h.end = context.WithCancel(context.Background())
	go h.accept()
	return h, nil
}

// Address returns the address for AskFor, at most MaxAddress bytes.
func (h *Handover) Address() string { return h.l.Addr().String() }

func (h *Handover) accept() {
	for {
		c, err := h.l.AcceptUnix()
		if err != nil {
			return // Close
		}
		go h.answer(c)
	}
}

// answer gives one file away, or closes the connection without a word.
func (h *Handover) answer(c *net.UnixConn) {
	stop := context.AfterFunc(h.ctx, func() { _ = c.Close() })
	defer func() {
		stop()
		_ = c.Close() // the other end has its answer, or sees that it has none
	}()
	var key [4]byte
	if handshake.SameUser(c) != nil {
		return
	}
	if n, err := c.Read(key[:]); n != len(key) || err != nil {
		return
	}
	f, err := h.open(binary.LittleEndian.Uint32(key[:]))
	var raw syscall.RawConn
	if err == nil {
		raw, err = f.SyscallConn()
	}
	if errors.Is(err, errors.ErrUnsupported) {
		_, _ = c.Write([]byte{unable}) // an error is one that the other end sees
	}
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // an error of either is one that the other end sees
		_, _, _ = c.WriteMsgUnix([]byte{granted}, unix.UnixRights(int(fd)), nil)
	})
}

// Close ends all conversations. It does not wait for open, which may hang on a file system; its result goes nowhere
// then. Further calls do nothing.
func (h *Handover) Close() error {
	if h.ctx.Err() != nil {
		return nil
	}
	h.end()
	return h.l.Close()
}

// ErrRefused reports that the other process has no such file to give, or has ended.
var ErrRefused = errors.New("the first process of the node does not hand the file over")

// AskFor gets the file with a key from the Handover at the address, and waits until it is open there. The caller
// closes it. One that cannot be handed over is errors.ErrUnsupported.
func AskFor(ctx context.Context, address string, key uint32) (f *os.File, err error) {
	var d net.Dialer
	any, err := d.DialContext(ctx, "unix", address)
	if err != nil {
		return nil, err
	}
	c := any.(*net.UnixConn)
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer func() {
		stop()
		_ = c.Close() // all has been read
		if ctx.Err() != nil && err != nil {
			err = context.Cause(ctx)
		}
	}()
	if err := handshake.SameUser(c); err != nil {
		return nil, err
	}
	if _, err := c.Write(binary.LittleEndian.AppendUint32(nil, key)); err != nil {
		return nil, err
	}
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.ReadMsgUnix(b, oob)
	files, perr := shm.Files(oob[:oobn])
	switch {
	case len(files) == 1 && err == nil && n == 1 && b[0] == granted:
		return files[0], nil
	case err == nil && n == 1 && b[0] == unable:
		err = errors.ErrUnsupported
	case err == nil || errors.Is(err, io.EOF):
		err = ErrRefused
	}
	for _, f := range files {
		_ = f.Close() // never used
	}
	return nil, errors.Join(err, perr)
}
