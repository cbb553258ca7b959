package request

import (
	"bytes"
	"fmt"
	"iter"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
)

// Mail is the part of a checkpoint's record that holds messages.
type Mail struct {
	Boxes []BoxRecord
	// Receives are those that were pending and are not protected; see unpostedReceive.
	Receives []endpoint.PendingReceive `json:",omitempty"`
}

// BoxRecord is one drained message. Its bytes follow the record in order.
type BoxRecord struct {
	Comm        string
	Source, Tag int
	Bytes       int
	Cut         bool             `json:",omitempty"` // the beginning of a message that was too long for its receive
	Receive     int              `json:",omitempty"` // number in Receives of the one that had it, from 1
	Data        []byte           `json:"-"`
	unposted    *unpostedReceive // that number's, after NoteUnposted
}

// Save fills the record with the messages and receives of a rank's channels. Waiting is
// what an earlier record holds for communicators that are not made again yet, or nil.
func (r *Mail) Save(s *Rank, channels iter.Seq[*Channel], waiting *Mail) error {
	held, err := r.held(s)
	if err != nil {
		return err
	}
	for c := range channels {
		list, err := r.boxes(c)
		if err != nil {
			return err
		}
		r.Boxes = append(r.Boxes, insertHeld(list, held, c)...)
	}
	if waiting != nil {
		for _, b := range waiting.Boxes {
			r.Boxes = append(r.Boxes, BoxRecord{Comm: b.Comm, Source: b.Source, Tag: b.Tag, Cut: b.Cut,
				Receive: r.stillUnposted(b.unposted), Data: b.Data})
		}
	}
	r.addIdle(s.unposted)
	return nil
}

// boxes describes the mailbox of c.
func (r *Mail) boxes(c *Channel) (out []BoxRecord, err error) {
	for _, m := range c.box.list {
		if m.h != 0 {
			return nil, c.Fail("SaveMailbox", m.source, m.tag, ErrDrainIncomplete,
				"a message is still arriving; call Drain first")
		}
		if m.err != nil {
			return nil, c.Fail("SaveMailbox", m.source, m.tag, ErrMailbox, "MPI failed to receive a message: "+
				m.err.Error())
		}
		out = append(out, BoxRecord{Comm: c.Name, Source: m.source, Tag: m.tag, Cut: m.cut,
			Receive: r.stillUnposted(m.unposted), Data: m.data})
	}
	return out, nil
}

// AppendBytes appends the bytes of the messages to out.
func (r *Mail) AppendBytes(out []byte) []byte {
	for _, m := range r.Boxes {
		out = append(out, m.Data...)
	}
	return out
}

// TakeBytes is the reverse of AppendBytes. It trusts no length.
func (r *Mail) TakeBytes(b []byte) error {
	for i := range r.Boxes {
		m := &r.Boxes[i]
		if m.Bytes < 0 || m.Bytes > len(b) {
			return fmt.Errorf("message %d of %d bytes, %d are left", i, m.Bytes, len(b))
		}
		m.Data = bytes.Clone(b[:m.Bytes])
		b = b[m.Bytes:]
	}
	if len(b) != 0 {
		return fmt.Errorf("%d bytes too many", len(b))
	}
	return nil
}

// Fits says whether the messages can be those of a world of size ranks.
func (r *Mail) Fits(size int) error {
	for _, m := range r.Boxes {
		if m.Source < 0 || m.Source >= size || m.Tag < 0 {
			return fmt.Errorf("message from rank %d with tag %d", m.Source, m.Tag)
		}
		if m.Receive < 0 || m.Receive > len(r.Receives) {
			return fmt.Errorf("message of receive %d, there are %d", m.Receive, len(r.Receives))
		}
	}
	return nil
}

// Deliver moves the messages of c into its mailbox. They were sent before everything this
// run sends.
func (r *Mail) Deliver(c *Channel) {
	if c.Private {
		return
	}
	var rest []BoxRecord
	var mine []*mailboxMessage
	for _, m := range r.Boxes {
		if m.Comm == c.Name {
			mine = append(mine, &mailboxMessage{source: m.Source, tag: m.Tag, data: m.Data, cut: m.Cut,
				unposted: m.unposted})
		} else {
			rest = append(rest, m)
		}
	}
	r.Boxes = rest
	c.box.prepend(mine)
}
