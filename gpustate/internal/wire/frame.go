package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/holdfast-hpc/holdfast/internal/codec"
)

// ErrProtocol marks bytes that the other side cannot have meant.
var ErrProtocol = codec.ErrMalformed

// The writer and the reader of messages.
type (
	// Fields writes or reads the fields of a message, in order.
	Fields = codec.Fields
	// Writer appends to a body.
	Writer = codec.Writer
	// Reader takes a body apart.
	Reader = codec.Reader
)

// A frame is a little-endian length, an operation and a body; the length counts
// the body alone. Bytes of bulk data may follow a frame, as many as it says.
const (
	frameHeader = 5
	// MaxBody bounds a frame: sources and binaries of programs are the largest.
	MaxBody = 64 << 20
)

// Append appends a message as a frame.
func Append(b []byte, m Message) []byte {
	f := &Fields{W: Writer{B: append(b, 0, 0, 0, 0, byte(m.op()))}}
	m.fields(f)
	binary.LittleEndian.PutUint32(f.W.B[len(b):], uint32(len(f.W.B)-len(b)-frameHeader))
	return f.W.B
}

// Decode reads a message from the body of a frame.
func Decode(body []byte, m Message) error { return new(Decoder).Decode(body, m) }

// Decoder reads messages, one at a time, without memory for each. Its zero value is ready.
type Decoder struct{ fields Fields }

// Decode reads a message from the body of a frame.
func (d *Decoder) Decode(body []byte, m Message) error {
	d.fields = Fields{Reading: true, R: Reader{B: body}}
	m.fields(&d.fields)
	return d.fields.R.End()
}

// ReadFrame reads a frame. The body is valid until the next call: it reuses buf,
// which may be nil. Memory grows only as bytes arrive.
func ReadFrame(r *bufio.Reader, buf []byte) (op Op, body, kept []byte, err error) {
	return readFrame(r, buf, MaxBody)
}

// ReadFrames calls take with each frame until take or the connection fails. A body is
// valid until take returns.
func ReadFrames(r *bufio.Reader, take func(op Op, body []byte) error) error {
	var buf []byte
	for {
		op, body, kept, err := ReadFrame(r, buf)
		if err == nil {
			err = take(op, body)
		}
		if err != nil {
			return err
		}
		buf = kept
	}
}

// FrameBuffered reports whether a whole frame has been read from the connection.
func FrameBuffered(r *bufio.Reader) bool {
	if r.Buffered() < frameHeader {
		return false
	}
	h, _ := r.Peek(frameHeader)
	return r.Buffered()-frameHeader >= int(binary.LittleEndian.Uint32(h))
}

// ReadSmallFrame is ReadFrame for a connection whose frames have at most so many
// bytes.
func ReadSmallFrame(r *bufio.Reader, most int) (op Op, body []byte, err error) {
	op, body, _, err = readFrame(r, nil, most)
	return op, body, err
}

func readFrame(r *bufio.Reader, buf []byte, most int) (op Op, body, kept []byte, err error) {
	h, err := r.Peek(frameHeader)
	if err != nil {
		if len(h) > 0 && err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, buf, err
	}
	op = Op(h[4])
	n := int(binary.LittleEndian.Uint32(h))
	if n > most {
		return 0, nil, buf, fmt.Errorf("%w: frame of %d bytes", ErrProtocol, n)
	}
	_, _ = r.Discard(frameHeader)
	if n <= cap(buf) && n <= r.Buffered() { // nearly all
		b, _ := r.Peek(n)
		body = buf[:copy(buf[:n], b)]
		_, _ = r.Discard(n)
		return op, body, buf, nil
	}
	const step = 1 << 20
	buf = buf[:0]
	for len(buf) < n {
		at, m := len(buf), min(n-len(buf), step)
		if cap(buf)-at < m {
			buf = append(buf, make([]byte, m)...)
		} else {
			buf = buf[:at+m]
		}
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return 0, nil, buf, fmt.Errorf("%w: truncated frame: %w", ErrProtocol, err)
		}
	}
	body = buf
	if cap(buf) > step { // do not keep the memory of a large program
		buf = nil
	}
	return op, body, buf, nil
}

// Frames finds frames in bytes that come bit by bit. The zero value is ready.
type Frames struct {
	buf  []byte
	from int // the part before was given out
}

// Fill takes bytes that read gives, which may be none. It makes the last frame of
// Next invalid.
func (f *Frames) Fill(read func([]byte) (int, error)) (int, error) {
	const least, usual = 16 << 10, 64 << 10
	if f.from == len(f.buf) {
		f.buf, f.from = f.buf[:0], 0
		if cap(f.buf) > 4*usual { // do not keep the memory of a large frame
			f.buf = nil
		}
	}
	if cap(f.buf)-len(f.buf) < least {
		f.buf, f.from = append(f.buf[:0], f.buf[f.from:]...), 0
	}
	if cap(f.buf)-len(f.buf) < least {
		f.buf = append(make([]byte, 0, max(2*cap(f.buf), usual)), f.buf...)
	}
	n, err := read(f.buf[len(f.buf):cap(f.buf)])
	f.buf = f.buf[:len(f.buf)+n]
	return n, err
}

// Next gives the next frame if it is there wholly.
func (f *Frames) Next() (op Op, body []byte, ok bool, err error) {
	b := f.buf[f.from:]
	if len(b) < frameHeader {
		return 0, nil, false, nil
	}
	n := int(binary.LittleEndian.Uint32(b))
	if n > MaxBody {
		return 0, nil, false, fmt.Errorf("%w: frame of %d bytes", ErrProtocol, n)
	}
	if len(b)-frameHeader < n {
		return 0, nil, false, nil
	}
	f.from += frameHeader + n
	return Op(b[4]), b[frameHeader : frameHeader+n : frameHeader+n], true, nil
}
