package devmsg

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/holdfast-hpc/holdfast/internal/codec"
)

// HeaderBytes is the length of a header: a receiver looks only at the bytes of messages
// with this length.
const HeaderBytes = 128

// Route is how the bytes of a message travel beside its header.
type Route uint32

// The routes.
const (
	OverMPI   Route = 1 // in pieces, as messages that only the library sees
	ByMapping Route = 2 // in the sender's slab, which the receiver has mapped
	// Rendezvous is OverMPI, and RendezvousMapped either of the two, as the first slot's state says: the
	// sender waits in its call a short time for the receiver's CTS, to send from the device.
	Rendezvous       Route = 3
	RendezvousMapped Route = 4
)

// meets reports whether the sender waits for a CTS.
func (r Route) meets() bool { return r == Rendezvous || r == RendezvousMapped }

// Header is an RTS. It takes the place of a large message among those of its communicator, so that it is
// matched, probed and counted like any other. The receiver's library replaces it by the bytes.
type Header struct {
	Route  Route
	Source int    // world rank of the sender
	Dest   int    // world rank of the receiver
	Bytes  int64  // of the message
	Unit   int    // of one piece, but for the last
	Tag    int    // of the pieces, OverMPI
	Slab   ID     // the sender's; where it lies, also OverMPI, so that the receiver can map it
	Slot   int    // of the first piece, ByMapping and RendezvousMapped
	Seq    uint64 // of the sender's large messages
}

// ID identifies the slab, and its place for another process of the node.
type ID struct {
	Nonce [16]byte
	PID   int
	FD    int
	Slots int
}

var magic = [32]byte{0x9e, 0x1b, 0x5f, 0xc4, 0x27, 0xa8, 0x03, 0x71, 0xd6, 0xef, 0x4d, 0x88, 0x12, 0x6a, 0xb9, 0x35,
	0xfa, 0x60, 0xc7, 0x2c, 0x93, 0x0e, 0x58, 0xb1, 0x7d, 0xe2, 0x49, 0xa4, 0x1f, 0x86, 0xdb, 0x3e}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode writes the header.
func (h *Header) Encode() []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, HeaderBytes), magic[:]...)
	b = le.AppendUint32(b, uint32(h.Route))
	b = le.AppendUint32(b, uint32(h.Source))
	b = le.AppendUint32(b, uint32(h.Dest))
	b = le.AppendUint64(b, uint64(h.Bytes))
	b = le.AppendUint32(b, uint32(h.Unit))
	b = le.AppendUint32(b, uint32(h.Tag))
	b = append(b, h.Slab.Nonce[:]...)
	b = le.AppendUint32(b, uint32(h.Slab.PID))
	b = le.AppendUint32(b, uint32(h.Slab.FD))
	b = le.AppendUint32(b, uint32(h.Slab.Slots))
	b = le.AppendUint32(b, uint32(h.Slot))
	b = le.AppendUint64(b, h.Seq)
	b = b[:HeaderBytes-4]
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Parse reports whether a message is a header, and which. A message of a program is none: it
// would have to begin with 32 bytes that only headers begin with, and fit its checksum.
func Parse(b []byte) (h Header, ok bool) {
	if len(b) != HeaderBytes || !bytes.Equal(b[:32], magic[:]) {
		return h, false
	}
	if crc32.Checksum(b[:HeaderBytes-4], castagnoli) != binary.LittleEndian.Uint32(b[HeaderBytes-4:]) {
		return h, false
	}
	r := codec.Reader{B: b[len(magic):]}
	u := func() int { return int(r.Fixed(4)) }
	h = Header{Route: Route(u()), Source: u(), Dest: u(), Bytes: int64(r.Fixed(8)), Unit: u(), Tag: u(),
		Slab: ID{Nonce: [16]byte(r.Take(16)), PID: u(), FD: u(), Slots: u()}, Slot: u(), Seq: r.Fixed(8)}
	return h, h.Bytes >= 0 && h.Unit > 0
}

// Pieces returns how many pieces the message has.
func (h *Header) Pieces() int { return int((h.Bytes + int64(h.Unit) - 1) / int64(h.Unit)) }

// Piece returns where piece i lies in the message.
func (h *Header) Piece(i int) (off, n int) {
	off = i * h.Unit
	return off, int(min(int64(h.Unit), h.Bytes-int64(off)))
}
