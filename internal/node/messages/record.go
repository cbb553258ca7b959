package messages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// headBytes is the length of the numbers that a record of the layer begins with.
const headBytes = 40

var errBroken = errors.New("the record that libholdfast-mpi has made of the messages is broken")

// reader decodes a record of the layer, whose numbers have a fixed length. It trusts no length.
type reader struct{ codec.Reader }

func (r *reader) u32() uint32  { return uint32(r.Fixed(4)) }
func (r *reader) i32() int     { return int(int32(r.u32())) }
func (r *reader) text() string { return string(r.Take(int(r.u32()))) }

// decode makes a record for a checkpoint of one of the layer. Before are those of its receives that the checkpoint
// before had pending, too. An operation that no checkpoint can keep is an error that matches mpiwrap.ErrPending.
func decode(b []byte, rank, size int) (out *endpoint.Record, before []endpoint.PendingReceive, err error) {
	r := &reader{codec.Reader{B: b}}
	magic, version, ofRank, ofSize := r.u32(), r.u32(), r.i32(), r.i32()
	comms, boxes, receives, refused, requests, data := r.u32(), r.u32(), r.u32(), r.u32(), r.u32(), uint64(r.u32())
	if r.Err != nil || magic != RecordMagic || version != RecordVersion || ofRank != rank || ofSize != size ||
		data < headBytes || data > uint64(len(b)) {
		return nil, nil, errBroken
	}
	bytes := codec.Reader{B: b[data:]}
	r.B = b[headBytes:data]
	out = &endpoint.Record{Rank: rank, Size: size}
	for range comms {
		c := endpoint.RecordComm{Name: r.text(), How: endpoint.RecordCreation{Parent: r.text(), Op: r.text()},
			Children: int(r.u32())}
		n := int(r.u32())
		members := &reader{codec.Reader{B: r.Take(4 * n)}}
		for range n {
			if r.Err != nil {
				return nil, nil, errBroken
			}
			c.Members = append(c.Members, members.i32())
		}
		out.Comms = append(out.Comms, c)
	}
	for range boxes {
		m := endpoint.RecordMessage{Comm: r.text(), Source: r.i32(), Tag: r.i32(), Receive: r.i32()}
		m.Data = bytes.Take(int(min(r.Fixed(8), math.MaxInt)))
		if r.Err != nil || bytes.Err != nil {
			return nil, nil, errBroken
		}
		out.Boxes = append(out.Boxes, m)
	}
	for range receives {
		p := endpoint.PendingReceive{Comm: r.text(), Source: r.i32(), Tag: r.i32()}
		flags := r.u32()
		if r.Err != nil {
			return nil, nil, errBroken
		}
		p.Came = flags&ReceiveCame != 0
		if out.Receives = append(out.Receives, p); flags&ReceiveBefore != 0 {
			before = append(before, p)
		}
	}
	for range requests {
		q := endpoint.RecordRequest{Name: r.text(), Comm: r.text(), Call: r.text(), Array: r.text(), Type: r.text(),
			Peer: r.i32(), Tag: r.i32(), Receive: r.i32(), Started: r.u32()&RequestStarted != 0,
			Offset: int64(r.Fixed(8)), Count: int64(r.Fixed(8))}
		if r.Err != nil || q.Receive < 0 || q.Receive > len(out.Receives) {
			return nil, nil, errBroken
		}
		out.Requests = append(out.Requests, q)
	}
	var why []string
	for range refused {
		if why = append(why, r.text()); r.Err != nil {
			return nil, nil, errBroken
		}
	}
	if r.End() != nil || bytes.End() != nil {
		return nil, nil, errBroken
	}
	if len(why) > 0 {
		err = fmt.Errorf("%w: %s", mpiwrap.ErrPending, strings.Join(why, "; "))
	}
	return out, before, err
}

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
	for _, q := range rec.Requests {
		started := uint32(0)
		if q.Started {
			started = RequestStarted
		}
		b = text(text(text(text(text(b, q.Name), q.Comm), q.Call), q.Array), q.Type)
		for _, v := range []uint32{uint32(q.Peer), uint32(q.Tag), uint32(q.Receive), started} {
			b = le.AppendUint32(b, v)
		}
		b = le.AppendUint64(le.AppendUint64(b, uint64(q.Offset)), uint64(q.Count))
	}
	var head []byte
	for _, v := range []int{RecordMagic, RecordVersion, rec.Rank, rec.Size, len(rec.Comms), len(rec.Boxes),
		len(rec.Receives), 0, len(rec.Requests), headBytes + len(b)} {
		head = le.AppendUint32(head, uint32(v))
	}
	return append(append(head, b...), data...)
}
