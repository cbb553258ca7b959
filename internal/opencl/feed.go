package opencl

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// tailBytes follow the text of a world: its CRC-32C and its length.
const tailBytes = 12

// Feed passes the state of a paused program, of which read gives the bytes, to the command that serves it next. That
// command takes it from the other end of a pipe, and writes contents to its devices while others are read. Feed closes
// the pipe. The error is one of read: a command that has ended gives its own reason.
func Feed(w *os.File, size int64, read func(b []byte, off int64) error) error {
	defer w.Close()
	_, _ = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 1<<20) // else there are more switches
	tail, text, end, err := lastOf(size, read)
	if err != nil {
		return err
	}
	if _, err := w.Write(append(tail[:], text...)); err != nil {
		return nil // see above
	}
	const piece, ahead = 16 << 20, 8
	free, full := make(chan []byte, ahead), make(chan []byte, ahead)
	gone := make(chan struct{})
	for range ahead {
		free <- nil
	}
	var failed error
	go func() {
		defer close(full)
		for off := int64(0); off < end; off += piece {
			var b []byte
			select {
			case b = <-free:
			case <-gone:
				return
			}
			if b == nil {
				b = make([]byte, piece)
			}
			b = b[:min(piece, end-off)]
			if failed = read(b, off); failed != nil {
				return
			}
			full <- b
		}
	}()
	for b := range full {
		if _, err := w.Write(b); err != nil {
			close(gone)
			break
		}
		free <- b[:piece]
	}
	for range full { // until it reads no more
	}
	return failed
}

// lastOf reads the text of a world and its tail out of size bytes, which begin with the contents, up to end.
func lastOf(size int64, read func(b []byte, off int64) error) (tail [tailBytes]byte, text []byte, end int64,
	err error) {
	if size < tailBytes {
		return tail, nil, 0, errKept
	}
	if err := read(tail[:], size-tailBytes); err != nil {
		return tail, nil, 0, err
	}
	n := int64(binary.LittleEndian.Uint64(tail[4:]))
	if end = size - tailBytes - n; n < 0 || end < 0 {
		return tail, nil, 0, errKept
	}
	text = make([]byte, n)
	return tail, text, end, read(text, end)
}

// contents are those of a paused program: mapped memory, or what comes out of a pipe in order.
type contents struct {
	mapped []byte
	pipe   io.Reader
	at     int64  // read from the pipe
	room   []byte // for that
}

// next returns contents of an object from an offset on, all that are left of them unless less will do. They are there
// until the next call.
func (c *contents) next(o *keptObject, off int, all bool) ([]byte, error) {
	const most = 1 << 20
	n := o.Bytes - off
	if c.pipe == nil {
		return c.mapped[o.At:][off:o.Bytes], nil
	}
	if !all {
		n = min(n, most)
	}
	if len(c.room) < n {
		c.room = make([]byte, n)
	}
	skip := o.At + int64(off) - c.at
	if skip < 0 {
		return nil, errKept
	}
	if _, err := io.CopyN(io.Discard, c.pipe, skip); err != nil {
		return nil, fmt.Errorf("%w: %w", errKept, err)
	}
	if _, err := io.ReadFull(c.pipe, c.room[:n]); err != nil {
		return nil, fmt.Errorf("%w: %w", errKept, err)
	}
	c.at += skip + int64(n)
	return c.room[:n], nil
}

// readKept reads the state of a paused program from a file or from Feed.
func readKept(f *os.File) (*world, *contents, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if st.Mode()&os.ModeNamedPipe == 0 {
		w, mapped, err := readWorld(f)
		return w, &contents{mapped: mapped}, err
	}
	var tail [tailBytes]byte
	if _, err := io.ReadFull(f, tail[:]); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errKept, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(binary.LittleEndian.Uint64(tail[4:]))))
	if err != nil {
		return nil, nil, err
	}
	w, err := decodeWorld(text, tail)
	return w, &contents{pipe: f}, err
}

// decodeWorld checks and reads the text of a world with its tail.
func decodeWorld(text []byte, tail [tailBytes]byte) (*world, error) {
	if crc32.Checksum(text, castagnoli) != binary.LittleEndian.Uint32(tail[:]) ||
		uint64(len(text)) != binary.LittleEndian.Uint64(tail[4:]) {
		return nil, errKept
	}
	w := &world{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(w); err != nil {
		return nil, errors.Join(errKept, err)
	}
	return w, nil
}
