package request

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/mailbox"
)

// The program's unprotected operations under way at a checkpoint. The running program sees no difference. For a
// restart:
//
//   - A receive is not pending any more. If its message had come and the program had
//     not been told, the message is kept in the mailbox where the receive, posted
//     again, finds it; else the receive posted again gets the message that comes.
//   - A send is complete: its message is part of the checkpoint.
//   - A non-blocking collective cannot be made again, as other ranks may have been
//     told that it is complete. The checkpoint is refused.

// UnpostedReceives implements endpoint.Endpoint.
func (s *Rank) UnpostedReceives() []endpoint.PendingReceive {
	return s.unposted.Receives()
}

// NoteSites implements endpoint.Endpoint.
func (s *Rank) NoteSites() { s.noteSites = true }

// SaveMail fills a record with the messages and receives of a rank's channels. Waiting has an earlier record's messages
// for communicators that are not made again yet, or nil.
func (s *Rank) SaveMail(r *mailbox.Mail, channels iter.Seq[*Channel], waiting *mailbox.Mail) error {
	held, err := s.held(r)
	if err != nil {
		return err
	}
	for c := range channels {
		for _, m := range c.box.All() {
			if m.Arriving() {
				return c.Fail("SaveMailbox", m.Source, m.Tag, ErrDrainIncomplete,
					"a message is still arriving; call Drain first")
			}
			if m.Err != nil {
				return c.Fail("SaveMailbox", m.Source, m.Tag, ErrMailbox, "MPI failed to receive a message: "+
					m.Err.Error())
			}
		}
		r.AddBox(c.Name, &c.box, held)
	}
	r.AddRest(waiting, s.unposted)
	return nil
}

// held finds the unprotected operations under way: it names the receives in r, returns the messages to save, and
// refuses operations that cannot be saved.
func (s *Rank) held(r *mailbox.Mail) ([]mailbox.Held, error) {
	var out []mailbox.Held
	var errs []error
	protected := s.protectedReceives()
	found := false
	for q := s.pending.first; q != nil; q = q.next {
		if q.c.Private || q.kind == sendRequest || q.isSaved() {
			continue
		}
		found = true
		if err := q.refuse(protected); err != nil {
			errs = append(errs, err)
			continue
		}
		if q.state == complete && q.st.Cancelled {
			continue
		}
		rec := endpoint.PendingReceive{Comm: q.c.Name, Source: q.peer, Tag: q.tag, At: q.sites.String(),
			Came: q.state == complete}
		r.Receives = append(r.Receives, rec)
		if rec.Came {
			b, err := q.message(len(r.Receives))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			out = append(out, mailbox.Held{Order: q.order, Box: &q.c.box, Source: q.peer, Tag: q.tag, Record: b})
			q.messageSaved = s.drains
		}
	}
	s.noteSites = found
	for _, m := range s.probed {
		if m.box == nil {
			continue
		}
		if m.c.Freed {
			errs = append(errs, m.c.Fail("Mprobe", m.st.Source, m.st.Tag, ErrPending,
				"the communicator was freed with a probed message not yet received; receive it before Free"))
			continue
		}
		out = append(out, mailbox.Held{Order: m.order, Box: &m.c.box, Source: m.source, Tag: m.tag,
			Record: r.Record(m.c.Name, m.box)})
	}
	sort.SliceStable(out, func(i, j int) bool { return int64(out[i].Order-out[j].Order) < 0 })
	return out, errors.Join(errs...)
}

// Quiet reports whether SaveMail would find no message, no receive and no request to refuse. Requests that are
// protected count as the others do.
func (s *Rank) Quiet(channels iter.Seq[*Channel]) bool {
	if n, _, _ := MailboxSize(channels); n > 0 {
		return false
	}
	for q := s.pending.first; q != nil; q = q.next {
		if !q.c.Private && q.kind != sendRequest && !(q.state == complete && q.st.Cancelled) {
			return false
		}
	}
	return !slices.ContainsFunc(s.probed, func(m *Message) bool { return m.box != nil }) && !s.unposted.Waiting()
}

// isSaved reports whether MarshalBinary has described the request for this cut.
func (r *Request) isSaved() bool { return r.saved != 0 && r.saved == r.c.rank.drains }

// protectedReceives returns those that a restart posts again by itself.
func (s *Rank) protectedReceives() (out []*Request) {
	for q := s.pending.first; q != nil; q = q.next {
		if q.kind == recvRequest && q.state == active && q.isSaved() {
			out = append(out, q)
		}
	}
	return out
}

// message returns the message of a complete receive.
func (r *Request) message(number int) (b mailbox.BoxRecord, err error) {
	b = mailbox.BoxRecord{RecordMessage: endpoint.RecordMessage{Comm: r.c.Name, Source: r.peer, Tag: r.tag,
		Receive: number}}
	if b.Source == AnySource {
		b.Source = r.st.Source
	}
	if b.Tag == AnyTag {
		b.Tag = r.st.Tag
	}
	n := r.st.Bytes
	if r.err != nil {
		b.Cut, n = true, r.size()
	}
	b.Data, err = r.got(n)
	return b, err
}

// refuse returns an error if a request that is under way and not protected cannot cross a
// restart.
func (r *Request) refuse(protected []*Request) error {
	at := r.sites.String()
	if at != "" {
		at = " at " + at
	}
	fail := func(text string) error { return r.c.Fail(r.op.String(), r.peer, r.tag, ErrPending, text) }
	switch {
	case r.kind == collRequest:
		return fail("a non-blocking collective" + at + " is pending; call Wait before the Point, because restarted " +
			"ranks cannot start it again together")
	case r.c.Freed:
		return fail("the communicator was freed with the receive posted" + at + " pending; call Wait before Free")
	case r.state == complete && r.err != nil && !errors.Is(r.err, ErrTruncate):
		return fail("the receive posted" + at + " failed, and no Wait has returned its error: " + r.err.Error())
	}
	for _, p := range protected {
		if r.state == active && p.order > r.order && p.c == r.c && overlapping(r, p) {
			return fail(fmt.Sprintf("the receive posted%s is not protected, but a later one from %s with %s is: "+
				"after a restart the later one would get its message; protect both (NewRequest)",
				at, endpoint.OrAny("rank ", p.peer), endpoint.OrAny("tag ", p.tag)))
		}
	}
	return nil
}

// overlapping reports whether one message can fit both receives.
func overlapping(a, b *Request) bool {
	return (a.peer == AnySource || b.peer == AnySource || a.peer == b.peer) &&
		(a.tag == AnyTag || b.tag == AnyTag || a.tag == b.tag)
}

// NoteUnposted notes the receives of a record that has been read, which the program has to post again.
func (s *Rank) NoteUnposted(r *mailbox.Mail) { s.unposted = mailbox.NewUnposted(r) }

// Deliver moves the messages of a record into the mailbox.
func (c *Channel) Deliver(r *mailbox.Mail) {
	if !c.Private {
		r.Deliver(c.Name, &c.box)
	}
}

// notePosted notes that the program has posted a receive which the checkpoint
// had pending.
func (c *Channel) notePosted(source, tag int) {
	if c.Private {
		return
	}
	c.rank.Lock()
	defer c.rank.Unlock()
	c.rank.unposted.Posted(c.Name, source, tag)
}

// lostAtRestart explains an inactive request after a restart.
func (r *Request) lostAtRestart() string {
	if r.kind == sendRequest {
		return ""
	}
	for _, o := range r.c.rank.unposted.Receives() {
		// A prepared receive is another one where it asks for other messages.
		other := r.persistent && (o.Source != r.peer || o.Tag != r.tag)
		if o.Comm == r.c.Name && !other {
			return "the checkpoint had a " + o.String() + " pending that was not protected; post it again after a " +
				"restart, or protect the request"
		}
	}
	return ""
}

// NonePosted returns an error if the program has a receive under way. One that is posted before a record is loaded
// may have got a message of this run in place of an earlier one that the record has.
func (s *Rank) NonePosted() error {
	for r := s.pending.first; r != nil; r = r.next {
		if r.kind == recvRequest && !r.c.Private {
			return r.c.Fail("Restore", r.peer, r.tag, ErrPending, "a receive was posted before Restore; post it "+
				"afterwards, as the checkpoint may have an earlier message for it")
		}
	}
	return nil
}
