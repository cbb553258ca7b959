package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Stores use each other's directories over a connection as if they were files
// of their own. A connection carries requests and replies in turn; each is a
// frame: u8 what, u32 length, u32 CRC-32C of the payload, u32 CRC-32C of the nine
// bytes before, payload.
//
// A write has no reply. The next sync reports its failure.
type wireOp uint8

const (
	wireCreate wireOp = iota + 1
	wireOpen
	wireRead
	wireWrite
	wireSync
	wireSize
	wireMkdir
	wireReadDir
	wireStat
	wireRename
	wireRemove
	wireSyncDir
	wireFree
)

// createDirect as the second argument of wireCreate asks for direct writes.
const createDirect = "direct"

// Statuses of replies. They stand for the errors that storage tells apart.
const (
	wireOK uint8 = iota
	wireFailed
	wireNotExist
	wireExist
	wireNoSpace
	wirePermission
	wireEOF
)

const frameHeadLen = 13

// maxFrame bounds a payload: a block and the fields before it.
const maxFrame = shard.BlockBytes + 64<<10

func writeFrame(w io.Writer, what uint8, head, data []byte) error {
	b := make([]byte, frameHeadLen, frameHeadLen+len(head))
	b[0] = what
	binary.LittleEndian.PutUint32(b[1:], uint32(len(head)+len(data)))
	binary.LittleEndian.PutUint32(b[5:], format.UpdateCRC(format.CRC(head), data))
	binary.LittleEndian.PutUint32(b[9:], format.CRC(b[:9]))
	b = append(b, head...)
	if _, err := w.Write(b); err != nil {
		return err
	}
	if len(data) > 0 {
		_, err := w.Write(data)
		return err
	}
	return nil
}

// frameHead is the fixed part of a frame.
type frameHead struct {
	what uint8
	n    int
	crc  uint32
}

func readFrameHead(r io.Reader) (frameHead, error) {
	var b [frameHeadLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return frameHead{}, err
	}
	h := frameHead{b[0], int(binary.LittleEndian.Uint32(b[1:])), binary.LittleEndian.Uint32(b[5:])}
	if format.CRC(b[:9]) != binary.LittleEndian.Uint32(b[9:]) {
		return h, fmt.Errorf("checksum of a frame's head does not match: %w", ErrDamaged)
	}
	if h.n > maxFrame {
		return h, fmt.Errorf("frame of %d bytes: %w", h.n, ErrDamaged)
	}
	return h, nil
}

// body reads the payload into buf, which is long enough.
func (h frameHead) body(r io.Reader, buf []byte) ([]byte, error) {
	p := buf[:h.n]
	if _, err := io.ReadFull(r, p); err != nil {
		return nil, err
	}
	if format.CRC(p) != h.crc {
		return nil, fmt.Errorf("checksum of a frame does not match: %w", ErrDamaged)
	}
	return p, nil
}

// ErrDamaged marks bytes on a connection that are not the protocol's.
var ErrDamaged = errors.New("damaged on the way between ranks")

// wireError is an error that another rank's store reports.
type wireError struct {
	rank int
	text string
	is   error // may be nil
}

func (e *wireError) Error() string { return fmt.Sprintf("at rank %d: %s", e.rank, e.text) }
func (e *wireError) Unwrap() error { return e.is }

// wireErrors pairs statuses with the errors they stand for.
var wireErrors = []struct {
	status uint8
	err    error
}{
	{wireNotExist, fs.ErrNotExist},
	{wireExist, fs.ErrExist},
	{wireNoSpace, syscall.ENOSPC},
	{wirePermission, fs.ErrPermission},
	{wireEOF, io.EOF},
}

func statusOf(err error) uint8 {
	for _, w := range wireErrors {
		if errors.Is(err, w.err) {
			return w.status
		}
	}
	return wireFailed
}

func errorOf(rank int, status uint8, text string) error {
	e := &wireError{rank: rank, text: text}
	for _, w := range wireErrors {
		if w.status == status {
			e.is = w.err
		}
	}
	return e
}

func entryFields(f format.Fields, v *vfs.Entry) {
	f.Str(&v.Name)
	f.I64(&v.Size)
	f.Flag(&v.Dir)
	at := v.ModTime.UnixNano()
	f.Time(&at)
	v.ModTime = time.Unix(0, at)
}

func entriesFields(f format.Fields, list *[]vfs.Entry) {
	format.List(f, list, 19, func(v *vfs.Entry) { entryFields(f, v) })
}

// Transport carries bytes between the stores of a job's ranks, for the levels that keep redundancy on other nodes. Its
// connections are authenticated: the other end is a rank of this job.
type Transport interface {
	// Dial opens a connection to the store of a rank. The caller closes it.
	Dial(ctx context.Context, rank int) (net.Conn, error)
	// Accept waits for a connection that another rank's store dialled. The
	// caller closes it. An error ends the accepting.
	Accept(ctx context.Context) (conn net.Conn, from int, err error)
}
