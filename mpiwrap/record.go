package mpiwrap

import (
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/mailbox"
)

// PendingReceive is a receive that was pending at the checkpoint this run was
// restored from, was not protected, and has not been posted again:
// coordinated.NotReceivedError lists them.
//
//	Comm        string
//	Source, Tag int    // as it was posted: wildcards stay
//	At          string // file:line of the program; "" if that was not noted
//	Came        bool   // its message had come by the checkpoint and is still in the mailbox
type PendingReceive = endpoint.PendingReceive

// record has the state of a rank's message layer for a checkpoint.
type record struct {
	Version int
	Rank    int    // world rank
	Size    int    // of the world
	Build   string `json:",omitempty"` // of the executable; "" if it is not known
	Comms   []commRecord
	mailbox.Mail
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

func (r *record) encode() ([]byte, error) { return endpoint.EncodeRecord(r, r.Messages) }

// decode is the reverse of encode. It trusts no length.
func (r *record) decode(b []byte) error {
	rest, err := endpoint.TakeDescription(b, r)
	if err != nil {
		return err
	}
	return endpoint.TakeMessages(rest, r.Messages)
}

func (e *rankEndpoint) SaveMailbox() ([]byte, error) {
	s := e.s
	r := record{Version: endpoint.PlainVersion, Rank: s.world.rank, Size: s.world.size, Build: buildID()}
	for _, c := range s.communicators() {
		r.add(c.record())
	}
	for _, c := range s.communicators() { // a restart comes to them by way of those that they were made on
		for p := range c.freedBelow {
			r.add(p.record())
		}
	}
	var waiting *mailbox.Mail
	if s.restored != nil { // for communicators that are not made again yet
		for _, c := range s.restored.unclaimed() {
			r.add(c)
		}
		waiting = &s.restored.Mail
	}
	if err := s.SaveMail(&r.Mail, s.channels, waiting); err != nil {
		return nil, err
	}
	return r.encode()
}

// add adds a communicator that is not there yet.
func (r *record) add(c commRecord) {
	if !slices.ContainsFunc(r.Comms, func(k commRecord) bool {
		return k.Name == c.Name && slices.Equal(k.Members, c.Members)
	}) {
		r.Comms = append(r.Comms, c)
	}
}

func (e *rankEndpoint) StageMailbox(b []byte) (apply func(), err error) {
	s := e.s
	r := &record{}
	if err := r.decode(b); err != nil {
		return nil, s.world.ch.Fail("Restore", NoPeer, NoTag, ErrMailbox, err.Error())
	}
	if err := r.fits(s); err != nil {
		return nil, s.world.ch.Fail("Restore", NoPeer, NoTag, ErrMailbox, err.Error())
	}
	if err := s.NonePosted(); err != nil {
		return nil, err
	}
	for _, c := range s.communicators() {
		if err := r.matches(c); err != nil {
			return nil, err
		}
		if before := r.find(c.ch.Name, c.ch.Members); before != nil {
			if err := r.misplaced(c, before); err != nil {
				return nil, err
			}
		}
		for p := range c.freedBelow {
			if before := r.find(p.ch.Name, p.ch.Members); before != nil {
				before.claimed = true
			}
		}
	}
	return func() {
		s.restored = r
		s.NoteUnposted(&r.Mail)
		for _, c := range s.communicators() {
			s.deliverRestored(c)
		}
	}, nil
}

func (r *record) fits(s *state) error {
	switch {
	case r.Version < 1 || r.Version > endpoint.PlainVersion:
		return fmt.Errorf("version %d, this library reads 1 to %d", r.Version, endpoint.PlainVersion)
	case r.Size != s.world.size:
		return fmt.Errorf("written by a world of %d ranks, this one has %d", r.Size, s.world.size)
	case r.Rank != s.world.rank:
		return fmt.Errorf("written by rank %d, this is rank %d", r.Rank, s.world.rank)
	}
	if name := r.twice(); name != "" {
		return fmt.Errorf("two groups are named %s and messages wait for them; the version that wrote the record "+
			"could not tell them apart", name)
	}
	return r.Mail.Fits(r.Size)
}

// deliverRestored moves restored messages of c into its mailbox.
func (s *state) deliverRestored(c *Comm) {
	if s.restored != nil {
		c.ch.Deliver(&s.restored.Mail)
	}
}
