package cut

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
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
	b = append(b, wireVersion, byte(m.Kind), m.flags())
	for _, v := range []uint64{uint64(m.Epoch), m.Round, uint64(m.Rank), m.Had, m.Min, m.Max, m.Sum} {
		b = binary.AppendUvarint(b, v)
	}
	b = appendString(b, m.Comm)
	b = binary.AppendUvarint(b, uint64(len(m.Colls)))
	for _, c := range m.Colls {
		b = appendString(b, c.Comm)
		for _, v := range []uint64{uint64(c.Size), uint64(c.Members), c.Min, c.Max} {
			b = binary.AppendUvarint(b, v)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(m.Found)))
	for _, c := range m.Found {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(c.Rank)), c.Points)
	}
	b = appendString(b, m.Stage)
	return appendBlobs(b, m.Blobs)
}

// appendBlobs writes blobs of neighbouring ranks with the same bytes as one: a hundred thousand equal votes take the
// room of one.
func appendBlobs(b []byte, blobs []Blob) []byte {
	runs := 0
	for i := range blobs {
		if !continues(blobs, i) {
			runs++
		}
	}
	b = binary.AppendUvarint(b, uint64(runs))
	for i := 0; i < len(blobs); {
		n := 1
		for i+n < len(blobs) && continues(blobs, i+n) {
			n++
		}
		b = binary.AppendUvarint(b, uint64(blobs[i].Rank))
		b = binary.AppendUvarint(b, uint64(n))
		b = binary.AppendUvarint(b, uint64(len(blobs[i].Data)))
		b = append(b, blobs[i].Data...)
		i += n
	}
	return b
}

// continues reports whether the i-th blob belongs to the run of the one before.
func continues(blobs []Blob, i int) bool {
	return i > 0 && blobs[i].Rank == blobs[i-1].Rank+1 && bytes.Equal(blobs[i].Data, blobs[i-1].Data)
}

func (m *Message) flags() byte {
	var f byte
	if m.Yes {
		f |= flagYes
	}
	if m.Any {
		f |= flagAny
	}
	return f
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Decode reads one message that fills b. Errors match ErrMalformed. The
// message shares no memory with b.
func Decode(b []byte) (Message, error) {
	if len(b) < 3 || b[0] != wireVersion {
		return Message{}, fmt.Errorf("%w: %d bytes, version not %d", ErrMalformed, len(b), wireVersion)
	}
	m := Message{Kind: Kind(b[1]), Yes: b[2]&flagYes != 0, Any: b[2]&flagAny != 0}
	d := decoder{b: b[3:]}
	m.Epoch = Epoch(d.number())
	m.Round = d.number()
	m.Rank = d.small()
	m.Had, m.Min, m.Max, m.Sum = d.number(), d.number(), d.number(), d.number()
	m.Comm = d.name()
	for range d.count() {
		m.Colls = append(m.Colls, Standing{Comm: d.name(), Size: d.small(), Members: d.small(), Min: d.number(),
			Max: d.number()})
	}
	for range d.count() {
		m.Found = append(m.Found, Candidate{Rank: d.small(), Points: d.number()})
	}
	m.Stage = d.name()
	m.Blobs = d.blobs()
	if d.bad || len(d.b) > 0 || m.Kind == 0 || m.Kind > KindWaiting || b[2] > flagYes|flagAny {
		return Message{}, fmt.Errorf("%w: kind %v, %d bytes", ErrMalformed, m.Kind, len(b))
	}
	return m, nil
}

// decoder takes values off the front of b; after the first failure all values are zero and bad stays set.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || d.bad {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// small returns a number that counts or names ranks.
func (d *decoder) small() int {
	v := d.number()
	if v > 1<<31 {
		d.bad, d.b = true, nil
		return 0
	}
	return int(v)
}

// count returns the length of a list; each entry takes at least a byte.
func (d *decoder) count() int {
	v := d.number()
	if v > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return 0
	}
	return int(v)
}

func (d *decoder) blobs() []Blob {
	var out []Blob
	for range d.count() {
		first, n := d.small(), d.number()
		data := d.text(len(d.b))
		if n == 0 || n > uint64(maxBlobs-len(out)) {
			d.bad, d.b = true, nil
			return nil
		}
		for i := range int(n) {
			out = append(out, Blob{Rank: first + i, Data: []byte(data)})
		}
	}
	return out
}

func (d *decoder) name() string { return d.text(maxName) }

func (d *decoder) text(limit int) string {
	n := d.number()
	if n > uint64(len(d.b)) || n > uint64(limit) {
		d.bad, d.b = true, nil
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}
