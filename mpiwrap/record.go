package mpiwrap

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// recordVersion is the version of the record that SaveMailbox writes. Older ones
// stay readable: 1 has no Receives.
const recordVersion = 2

// record is what a checkpoint keeps of a rank's message layer.
type record struct {
	Version int
	Rank    int    // world rank
	Size    int    // of the world
	Build   string `json:",omitempty"` // of the executable; "" if it is not known
	Comms   []commRecord
	Boxes   []boxRecord
	// Receives are those that were pending and are not protected; see owing.
	Receives []PendingReceive `json:",omitempty"`
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
	Cut         bool `json:",omitempty"` // only the beginning of a message that was too long for its receive
	Receive     int  `json:",omitempty"` // number in Receives of the one that had it, from 1
	data        []byte
	owed        *owing // that number's, after decode
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

func (e *rankEndpoint) SaveMailbox() ([]byte, error) {
	s := e.s
	r := record{Version: recordVersion, Rank: s.world.rank, Size: s.world.size, Build: buildID()}
	held, err := r.held(s)
	if err != nil {
		return nil, err
	}
	for _, c := range s.communicators() {
		r.Comms = append(r.Comms, c.record())
		list, err := r.boxes(c)
		if err != nil {
			return nil, err
		}
		r.Boxes = append(r.Boxes, insertHeld(list, held, c)...)
	}
	if s.restored != nil {
		r.Comms = append(r.Comms, s.restored.unclaimed()...)
		for _, b := range s.restored.Boxes { // of communicators that are not made again yet
			r.Boxes = append(r.Boxes, boxRecord{Comm: b.Comm, Source: b.Source, Tag: b.Tag, Cut: b.Cut,
				Receive: r.stillOwed(b.owed), data: b.data})
		}
	}
	r.addIdle(s.owed)
	return r.encode()
}

// boxes describes the mailbox of c.
func (r *record) boxes(c *Comm) (out []boxRecord, err error) {
	for _, m := range c.box.list {
		if m.h != 0 {
			return nil, c.fail("SaveMailbox", m.source, m.tag, ErrDrainIncomplete,
				"a message is still coming in; call Drain first")
		}
		if m.err != nil {
			return nil, c.fail("SaveMailbox", m.source, m.tag, ErrMailbox, "MPI failed to receive a message: "+
				m.err.Error())
		}
		out = append(out, boxRecord{Comm: c.name, Source: m.source, Tag: m.tag, Cut: m.cut,
			Receive: r.stillOwed(m.owed), data: m.data})
	}
	return out, nil
}

func (e *rankEndpoint) LoadMailbox(b []byte) error {
	apply, err := e.StageMailbox(b)
	if err == nil {
		apply()
	}
	return err
}

func (e *rankEndpoint) StageMailbox(b []byte) (apply func(), err error) {
	s := e.s
	r := &record{}
	if err := r.decode(b); err != nil {
		return nil, s.world.fail("LoadMailbox", NoPeer, NoTag, ErrMailbox, err.Error())
	}
	if err := r.fits(s); err != nil {
		return nil, s.world.fail("LoadMailbox", NoPeer, NoTag, ErrMailbox, err.Error())
	}
	for _, c := range s.communicators() {
		if err := r.matches(c); err != nil {
			return nil, err
		}
		if before := r.find(c.name, c.members); before != nil {
			if err := r.misplaced(c, before); err != nil {
				return nil, err
			}
		}
	}
	return func() {
		s.restored = r
		s.owed = r.owing()
		for _, c := range s.communicators() {
			s.deliverRestored(c)
		}
		s.meetPosted()
	}, nil
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
	if name := r.twice(); name != "" {
		return fmt.Errorf("two groups are called %s and messages wait for them; the version that wrote it could not "+
			"tell them apart", name)
	}
	for _, m := range r.Boxes {
		if m.Source < 0 || m.Source >= r.Size || m.Tag < 0 {
			return fmt.Errorf("message from rank %d with tag %d", m.Source, m.Tag)
		}
		if m.Receive < 0 || m.Receive > len(r.Receives) {
			return fmt.Errorf("message of receive %d, there are %d", m.Receive, len(r.Receives))
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
			mine = append(mine, &boxed{source: m.Source, tag: m.Tag, data: m.data, cut: m.Cut, owed: m.owed})
		} else {
			rest = append(rest, m)
		}
	}
	s.restored.Boxes = rest
	c.box.prepend(mine)
}
