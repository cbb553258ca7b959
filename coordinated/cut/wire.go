package cut

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/holdfast-hpc/holdfast/internal/codec"
)

// ErrMalformed marks bytes that are no message of this version.
var ErrMalformed = errors.New("malformed control message")

// wireVersion is the first byte of every encoded message. Ranks of one job run
// one binary, so there is no ladder: another version is refused.
const wireVersion = 2

// Limits of a decoded message. The lengths on the wire are checked against the
// bytes that are left before anything is allocated.
const (
	maxName  = 1 << 10
	maxRank  = 1 << 31 // of numbers that count or name ranks
	maxBlobs = 1 << 20 // of all runs together: the ranks of a job
)

// The bits of the flags byte.
const (
	flagYes = 1 << 0
	flagAny = 1 << 1
)

// Append appends the encoding of m to b: version, kind, flags, then every number as an unsigned varint and every string
// and blob with its length before it. Blobs come in runs of first rank, number of ranks and their common bytes.
func (m *Message) Append(b []byte) []byte {
	var flags byte
	if m.Yes {
		flags |= flagYes
	}
	if m.Any {
		flags |= flagAny
	}
	f := codec.Fields{W: codec.Writer{B: append(b, wireVersion, byte(m.Kind), flags)}}
	m.fields(&f)
	return f.W.B
}

// Decode reads one message that fills b. Errors match ErrMalformed. The
// message shares no memory with b.
func Decode(b []byte) (Message, error) {
	if len(b) < 3 || b[0] != wireVersion {
		return Message{}, fmt.Errorf("%w: %d bytes, version not %d", ErrMalformed, len(b), wireVersion)
	}
	m := Message{Kind: Kind(b[1]), Yes: b[2]&flagYes != 0, Any: b[2]&flagAny != 0}
	f := codec.Fields{Reading: true, R: codec.Reader{B: b[3:]}}
	m.fields(&f)
	if f.R.End() != nil || m.Kind == 0 || m.Kind > KindWaiting || b[2] > flagYes|flagAny {
		return Message{}, fmt.Errorf("%w: kind %v, %d bytes", ErrMalformed, m.Kind, len(b))
	}
	return m, nil
}

// fields passes what follows the flags.
func (m *Message) fields(f *codec.Fields) {
	f.Uint((*uint64)(&m.Epoch), &m.Round)
	codec.Small(f, &m.Rank, maxRank)
	f.Uint(&m.Had, &m.Min, &m.Max, &m.Sum)
	name(f, &m.Comm)
	codec.List(f, &m.Colls, math.MaxInt, func(c *Standing) {
		name(f, &c.Comm)
		codec.Small(f, &c.Size, maxRank)
		codec.Small(f, &c.Members, maxRank)
		f.Uint(&c.Min, &c.Max)
	})
	codec.List(f, &m.Found, math.MaxInt, func(c *Candidate) {
		codec.Small(f, &c.Rank, maxRank)
		f.Uint(&c.Points)
	})
	name(f, &m.Stage)
	if f.Reading {
		m.Blobs = takeBlobs(&f.R)
	} else {
		appendBlobs(&f.W, m.Blobs)
	}
}

func name(f *codec.Fields, s *string) {
	f.Str(s)
	f.Check(len(*s) <= maxName, "a name is too long")
}

// appendBlobs writes blobs of neighbouring ranks with the same bytes as one: a hundred thousand equal votes take the
// room of one.
func appendBlobs(w *codec.Writer, blobs []Blob) {
	runs := 0
	for i := range blobs {
		if !continues(blobs, i) {
			runs++
		}
	}
	w.Uint(uint64(runs))
	for i := 0; i < len(blobs); {
		n := 1
		for i+n < len(blobs) && continues(blobs, i+n) {
			n++
		}
		w.Uint(uint64(blobs[i].Rank))
		w.Uint(uint64(n))
		w.Bytes(blobs[i].Data)
		i += n
	}
}

// continues reports whether the i-th blob belongs to the run of the one before.
func continues(blobs []Blob, i int) bool {
	return i > 0 && blobs[i].Rank == blobs[i-1].Rank+1 && bytes.Equal(blobs[i].Data, blobs[i-1].Data)
}

func takeBlobs(r *codec.Reader) (out []Blob) {
	for range r.Count() {
		first, n, data := r.Small(maxRank), r.Uint(), r.Bytes()
		if n == 0 || n > uint64(maxBlobs-len(out)) {
			r.Fail("a run of no ranks, or of too many")
			return nil
		}
		for i := range int(n) {
			out = append(out, Blob{Rank: first + i, Data: append([]byte{}, data...)})
		}
	}
	return out
}
