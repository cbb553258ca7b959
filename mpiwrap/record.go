package mpiwrap

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// recordVersion is the version of the record that SaveMailbox writes. Older ones
// stay readable.
const recordVersion = 1

// record is what a checkpoint keeps of a rank's message layer.
type record struct {
	Version int
	Rank    int // world rank
	Size    int // of the world
	Comms   []commRecord
	Boxes   []boxRecord
}

// commRecord is a communicator that lived at the checkpoint.
type commRecord struct {
	Name     string
	How      creation
	Members  []int
	Children int            // creations begun on it
	Groups   map[string]int `json:",omitempty"` // creations by groups

	claimed bool // it exists in this run
}

// boxRecord is one drained message. Its bytes follow the record in order.
type boxRecord struct {
	Comm        string
	Source, Tag int
	Bytes       int
	data        []byte
}

// encode writes the length of the description, the description and the bytes of
// the messages.
func (r *record) encode() ([]byte, error) {
	n := 0
	for i := range r.Boxes {
		r.Boxes[i].Bytes = len(r.Boxes[i].data)
		n += r.Boxes[i].Bytes
	}
	head, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, 8+len(head)+n)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(head)))
	out = append(out, head...)
	for _, m := range r.Boxes {
		out = append(out, m.data...)
	}
	return out, nil
}

// decode is the reverse of encode. It trusts no length.
func (r *record) decode(b []byte) error {
	if len(b) < 8 {
		return fmt.Errorf("%d bytes, too short", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(len(b)-8) {
		return fmt.Errorf("description of %d bytes in a record of %d", n, len(b))
	}
	if err := json.Unmarshal(b[8:8+n], r); err != nil {
		return err
	}
	b = b[8+n:]
	for i := range r.Boxes {
		m := &r.Boxes[i]
		if m.Bytes < 0 || m.Bytes > len(b) {
			return fmt.Errorf("message %d of %d bytes, %d are left", i, m.Bytes, len(b))
		}
		m.data = bytes.Clone(b[:m.Bytes])
		b = b[m.Bytes:]
	}
	if len(b) != 0 {
		return fmt.Errorf("%d bytes too many", len(b))
	}
	return nil
}

// SaveMailbox returns the drained messages that the program has not received,
// and the communicators that live, as a versioned record of plain data.
func (e *Endpoint) SaveMailbox() ([]byte, error) {
	s := e.s
	r := record{Version: recordVersion, Rank: s.world.rank, Size: s.world.size}
	for _, c := range s.communicators() {
		r.Comms = append(r.Comms, c.record())
		r.Boxes = append(r.Boxes, asideRecords(s, c)...)
		for _, m := range c.box.list {
			if m.h != 0 {
				return nil, c.fail("SaveMailbox", m.source, m.tag, ErrDrainIncomplete, "a message is still coming in; call Settle first")
			}
			r.Boxes = append(r.Boxes, boxRecord{Comm: c.name, Source: m.source, Tag: m.tag, data: m.data})
		}
	}
	if s.restored != nil {
		r.Comms = append(r.Comms, s.restored.unclaimed()...)
		r.Boxes = append(r.Boxes, s.restored.Boxes...)
	}
	return r.encode()
}

// asideRecords are messages that Mprobe took and the program has not received:
// they come first, as no later one of the mailbox was sent before them.
func asideRecords(s *state, c *Comm) (out []boxRecord) {
	for _, m := range s.aside {
		if m.c == c && m.box != nil {
			out = append(out, boxRecord{Comm: c.name, Source: m.box.source, Tag: m.box.tag, data: m.box.data})
		}
	}
	return out
}

// LoadMailbox puts the messages of a record into the mailboxes of this run. Those
// of communicators that do not exist yet wait for their creation. A record of
// another rank or of a world of another size is refused.
func (e *Endpoint) LoadMailbox(b []byte) error {
	s := e.s
	var r record
	if err := r.decode(b); err != nil {
		return s.world.fail("LoadMailbox", NoPeer, NoTag, ErrMailbox, err.Error())
	}
	if err := r.fits(s); err != nil {
		return s.world.fail("LoadMailbox", NoPeer, NoTag, ErrMailbox, err.Error())
	}
	for _, c := range s.communicators() {
		if err := r.matches(c); err != nil {
			return err
		}
	}
	s.restored = &r
	for _, c := range s.communicators() {
		s.deliverRestored(c)
	}
	return nil
}

func (r *record) fits(s *state) error {
	switch {
	case r.Version < 1 || r.Version > recordVersion:
		return fmt.Errorf("version %d, this library reads 1 to %d", r.Version, recordVersion)
	case r.Size != s.world.size:
		return fmt.Errorf("written by a world of %d ranks, this one has %d", r.Size, s.world.size)
	case r.Rank != s.world.rank:
		return fmt.Errorf("written by rank %d, this is rank %d", r.Rank, s.world.rank)
	}
	for _, m := range r.Boxes {
		if m.Source < 0 || m.Source >= r.Size || m.Tag < 0 {
			return fmt.Errorf("message from rank %d with tag %d", m.Source, m.Tag)
		}
	}
	return nil
}

// deliverRestored moves restored messages of c into its mailbox. They were sent
// before everything this run sends.
func (s *state) deliverRestored(c *Comm) {
	if s.restored == nil || c.private {
		return
	}
	var rest []boxRecord
	var mine []*boxed
	for _, m := range s.restored.Boxes {
		if m.Comm == c.name {
			mine = append(mine, &boxed{source: m.Source, tag: m.Tag, data: m.data})
		} else {
			rest = append(rest, m)
		}
	}
	s.restored.Boxes = rest
	c.box.prepend(mine)
}
