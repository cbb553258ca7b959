package mailbox

import (
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
)

// Mail is the part of a checkpoint's record that holds messages.
type Mail struct {
	Boxes []BoxRecord
	// Receives are those that were pending and are not protected; see Unposted.
	Receives []endpoint.PendingReceive `json:",omitempty"`
}

// BoxRecord is one drained message. Its bytes follow the record in order.
type BoxRecord struct {
	endpoint.RecordMessage
	unposted *unposted // the one of its Receive, after NewUnposted
}

// Held is a message that a receive or a probe of the program had matched, and
// that the program had not got at the cut.
type Held struct {
	Order       uint64 // of the receive or probe
	Box         *Box   // of its communicator
	Source, Tag int    // as the receive or probe was made
	Record      BoxRecord
}

// Record describes a message of a communicator.
func (r *Mail) Record(comm string, m *Message) BoxRecord {
	return BoxRecord{RecordMessage: endpoint.RecordMessage{Comm: comm, Source: m.Source, Tag: m.Tag, Cut: m.Cut,
		Data: m.Data, Receive: r.stillUnposted(m.unposted)}}
}

// AddBox describes the messages of a box, and among them those that were held: each
// before the first that the same receive or probe could take, so that it finds its own
// when it is made again, in the order in which the program made them.
func (r *Mail) AddBox(comm string, b *Box, held []Held) {
	var list []BoxRecord
	for _, m := range b.list {
		list = append(list, r.Record(comm, m))
	}
	for _, k := range slices.Backward(held) {
		if k.Box != b {
			continue
		}
		at := slices.IndexFunc(list, func(b BoxRecord) bool { return fits(k.Source, k.Tag, b.Source, b.Tag) })
		if at < 0 {
			at = len(list)
		}
		list = slices.Insert(list, at, k.Record)
	}
	r.Boxes = append(r.Boxes, list...)
}

// AddRest carries over an earlier record's messages for communicators that are not made again yet, and the receives
// that this run has not posted again and that have no message.
func (r *Mail) AddRest(waiting *Mail, u Unposted) {
	if waiting != nil {
		for _, b := range waiting.Boxes {
			m := b.RecordMessage
			m.Receive = r.stillUnposted(b.unposted)
			r.Boxes = append(r.Boxes, BoxRecord{RecordMessage: m})
		}
	}
	for _, o := range u {
		if o.waits() {
			r.Receives = append(r.Receives, o.PendingReceive)
		}
	}
}

// stillUnposted carries a receive that this run has not posted again into the next
// record and returns its number there.
func (r *Mail) stillUnposted(o *unposted) int {
	if o == nil {
		return 0
	}
	r.Receives = append(r.Receives, o.PendingReceive)
	return len(r.Receives)
}

// Messages are those of the boxes, in the order of their bytes.
func (r *Mail) Messages(yield func(*endpoint.RecordMessage) bool) {
	for i := range r.Boxes {
		if !yield(&r.Boxes[i].RecordMessage) {
			return
		}
	}
}

// Fits returns an error if the messages cannot be those of a world of size ranks.
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

// Deliver moves the messages of a communicator to the front of its box. They were sent before
// everything this run sends.
func (r *Mail) Deliver(comm string, b *Box) {
	var rest []BoxRecord
	var mine []*Message
	for _, m := range r.Boxes {
		if m.Comm == comm {
			mine = append(mine, &Message{Source: m.Source, Tag: m.Tag, Data: m.Data, Cut: m.Cut, unposted: m.unposted})
		} else {
			rest = append(rest, m)
		}
	}
	r.Boxes = rest
	b.set(append(mine, b.list...))
}

// Unposted is the receives that were pending at the checkpoint this run was restored from,
// without protection. nil is none, in a run that was not restored.
type Unposted []*unposted

// unposted is one of them. It is taken when the program has posted it again, or has
// received its message.
type unposted struct {
	endpoint.PendingReceive
	taken bool
}

// waits reports whether the receive has not been posted again, and no message waits for it.
func (o *unposted) waits() bool { return !o.taken && !o.Came }

// NewUnposted ties the messages of a record that has been read to the receives that had them,
// which the program has to post again.
func NewUnposted(r *Mail) (u Unposted) {
	for _, rec := range r.Receives {
		u = append(u, &unposted{PendingReceive: rec})
	}
	for i := range r.Boxes {
		if n := r.Boxes[i].Receive; n > 0 {
			r.Boxes[i].unposted = u[n-1]
		}
	}
	return u
}

// Receives returns those that the program has not posted again.
func (u Unposted) Receives() (out []endpoint.PendingReceive) {
	for _, o := range u {
		if !o.taken {
			out = append(out, o.PendingReceive)
		}
	}
	return out
}

// Waiting reports whether a receive without a message has not been posted again.
func (u Unposted) Waiting() bool { return slices.ContainsFunc(u, (*unposted).waits) }

// Posted notes that the program has posted a receive.
func (u Unposted) Posted(comm string, source, tag int) {
	for _, o := range u {
		if o.waits() && o.Comm == comm && o.Source == source && o.Tag == tag {
			o.taken = true
			return
		}
	}
}
