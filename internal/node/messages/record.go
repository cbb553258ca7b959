package messages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// headBytes is the length of the numbers that a record of the layer begins with.
const headBytes = 36

var errBroken = errors.New("the record that libholdfast-mpi has made of the messages is broken")

// reader takes a record of the layer apart. It trusts no length.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return make([]byte, 8)
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) u32() uint32  { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64  { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *reader) i32() int     { return int(int32(r.u32())) }
func (r *reader) text() string { return string(r.take(uint64(r.u32()))) }

// decode makes a record for a checkpoint of one of the layer. Before are those of its receives that the checkpoint
// before had pending, too. What no checkpoint can keep is an error that matches mpiwrap.ErrPending.
func decode(b []byte, rank, size int) (out *endpoint.Record, before []endpoint.PendingReceive, err error) {
	r := &reader{b: b}
	magic, version, ofRank, ofSize := r.u32(), r.u32(), r.i32(), r.i32()
	comms, boxes, receives, refused, data := r.u32(), r.u32(), r.u32(), r.u32(), uint64(r.u32())
	if r.bad || magic != RecordMagic || version != RecordVersion || ofRank != rank || ofSize != size ||
		data < headBytes || data > uint64(len(b)) {
		return nil, nil, errBroken
	}
	bytes := &reader{b: b[data:]}
	r.b = b[headBytes:data]
	out = &endpoint.Record{Version: endpoint.RecordVersion, Rank: rank, Size: size}
	for range comms {
		c := endpoint.RecordComm{Name: r.text(), How: endpoint.RecordCreation{Parent: r.text(), Op: r.text()},
			Children: int(r.u32())}
		n := uint64(r.u32())
		members := &reader{b: r.take(4 * n)}
		for range n {
			if r.bad {
				return nil, nil, errBroken
			}
			c.Members = append(c.Members, members.i32())
		}
		out.Comms = append(out.Comms, c)
	}
	for range boxes {
		m := endpoint.RecordMessage{Comm: r.text(), Source: r.i32(), Tag: r.i32(), Receive: r.i32()}
		m.Data = bytes.take(r.u64())
		if r.bad || bytes.bad {
			return nil, nil, errBroken
		}
		out.Boxes = append(out.Boxes, m)
	}
	for range receives {
		p := endpoint.PendingReceive{Comm: r.text(), Source: r.i32(), Tag: r.i32()}
		flags := r.u32()
		if r.bad {
			return nil, nil, errBroken
		}
		p.Came = flags&ReceiveCame != 0
		if out.Receives = append(out.Receives, p); flags&ReceiveBefore != 0 {
			before = append(before, p)
		}
	}
	var why []string
	for range refused {
		if why = append(why, r.text()); r.bad {
			return nil, nil, errBroken
		}
	}
	if len(r.b) > 0 || len(bytes.b) > 0 {
		return nil, nil, errBroken
	}
	if len(why) > 0 {
		err = fmt.Errorf("%w: %s", mpiwrap.ErrPending, strings.Join(why, "; "))
	}
	return out, before, err
}

// encode is the reverse of decode.
func encode(rec *endpoint.Record) []byte {
	le := binary.LittleEndian
	text := func(b []byte, s string) []byte { return append(le.AppendUint32(b, uint32(len(s))), s...) }
	var b, data []byte
	for _, c := range rec.Comms {
		b = text(text(text(b, c.Name), c.How.Parent), c.How.Op)
		b = le.AppendUint32(le.AppendUint32(b, uint32(c.Children)), uint32(len(c.Members)))
		for _, r := range c.Members {
			b = le.AppendUint32(b, uint32(r))
		}
	}
	for _, m := range rec.Boxes {
		b = le.AppendUint32(le.AppendUint32(text(b, m.Comm), uint32(m.Source)), uint32(m.Tag))
		b = le.AppendUint64(le.AppendUint32(b, uint32(m.Receive)), uint64(len(m.Data)))
		data = append(data, m.Data...)
	}
	for _, p := range rec.Receives {
		came := uint32(0)
		if p.Came {
			came = ReceiveCame
		}
		b = le.AppendUint32(le.AppendUint32(text(b, p.Comm), uint32(p.Source)), uint32(p.Tag))
		b = le.AppendUint32(b, came)
	}
	var head []byte
	for _, v := range []int{RecordMagic, RecordVersion, rec.Rank, rec.Size, len(rec.Comms), len(rec.Boxes),
		len(rec.Receives), 0, headBytes + len(b)} {
		head = le.AppendUint32(head, uint32(v))
	}
	return append(append(head, b...), data...)
}
