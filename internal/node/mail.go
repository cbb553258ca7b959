package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/node/messages"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

// counts is the page in which the client counts its messages.
type counts struct {
	file *os.File
	b    []byte
}

// newCounts makes the page. Most of its memory is never touched.
func newCounts(bytes int) (*counts, error) {
	f, b, err := shm.New("messages", bytes)
	if err != nil {
		return nil, fmt.Errorf("share the counts of messages: %w", err)
	}
	return &counts{f, b}, nil
}

// close gives the memory back. A goroutine of the agent may still look: it finds zeros there.
func (c *counts) close() error {
	if c == nil {
		return nil
	}
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(c.b)), uintptr(len(c.b)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return errors.Join(err, c.file.Close())
}

// Messages is nil for a client without libholdfast-mpi.
func (r *rank) Messages(exchange program.Exchange) endpoint.Endpoint {
	if r.counts == nil {
		return nil
	}
	return messages.New(messages.NewPage(r.counts.b, r.size), r.rank, (*mail)(r), exchange)
}

// mail is a rank as its messages see it.
type mail rank

// ask has the client do something with its messages, and returns how many bytes that is about.
func (r *mail) ask(what uint32, bytes uint64, fds ...int) (uint64, error) {
	m, err := r.s.ask(context.Background(), wire.TypeMailed, wire.Mail(what, bytes), fds...)
	if err == nil && m.Text != "" {
		err = errors.New(m.Text)
	}
	return m.Count, err
}

func (r *mail) Cut() error {
	_, err := r.ask(wire.MailCut, 0)
	return err
}

func (r *mail) Sync(busy bool) error {
	how := uint64(0)
	if busy {
		how = 1
	}
	_, err := r.ask(wire.MailSync, how)
	return err
}

func (r *mail) Save() ([]byte, error) {
	n, err := r.ask(wire.MailSave, 0)
	if err != nil {
		return nil, err
	}
	seg, err := newSegment("mail", int(n))
	if err != nil {
		return nil, err
	}
	if _, err = r.ask(wire.MailTake, n, int(seg.file.Fd())); err != nil {
		return nil, errors.Join(err, seg.close())
	}
	b := append([]byte(nil), seg.bytes...)
	return b, seg.close()
}

func (r *mail) Load(record []byte) error {
	seg, err := newSegment("mail", len(record))
	if err != nil {
		return err
	}
	copy(seg.bytes, record)
	_, err = r.ask(wire.MailLoad, uint64(len(record)), int(seg.file.Fd()))
	return errors.Join(err, seg.close())
}

func (r *mail) Failed(err error) { r.s.fail(err) }
