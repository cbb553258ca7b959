package request

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
)

// What the program has under way at a checkpoint and has not protected. The running
// program sees no difference. For a restart:
//
//   - A receive is not pending any more. If its message had come and the program had
//     not been told, the message is kept in the mailbox where the receive, posted
//     again, finds it; else the receive posted again gets the message that comes.
//   - A send is complete: its message is part of the checkpoint.
//   - A non-blocking collective cannot be made again, as other ranks may have been
//     told that it is complete. The checkpoint is refused.

// unpostedReceive is a receive that was pending at the checkpoint this run was restored from,
// without protection. It is taken when the program has posted it again, or has
// received its message.
type unpostedReceive struct {
	endpoint.PendingReceive
	taken bool
}

func (r *Request) describe() *endpoint.PendingReceive {
	return &endpoint.PendingReceive{Comm: r.c.Name, Source: r.peer, Tag: r.tag, At: r.sites.String()}
}

// UnpostedReceives is that of endpoint.Endpoint.
func (s *Rank) UnpostedReceives() []endpoint.PendingReceive {
	var out []endpoint.PendingReceive
	for _, o := range s.unposted {
		if !o.taken {
			out = append(out, o.PendingReceive)
		}
	}
	return out
}

// NoteSites is that of endpoint.Endpoint.
func (s *Rank) NoteSites() { s.noteSites = true }

// heldMessage is one that a receive or a probe of the program had matched, and
// that the program had not got at the cut.
type heldMessage struct {
	order       uint64 // of the receive or probe
	c           *Channel
	source, tag int // as it was posted
	box         BoxRecord
}

func (k *heldMessage) fits(b *BoxRecord) bool {
	return (k.source == AnySource || k.source == b.Source) && (k.tag == AnyTag || k.tag == b.Tag)
}

// held finds what is under way and not protected: it names the receives in r,
// returns the messages to save, and refuses what cannot be saved.
func (r *Mail) held(s *Rank) ([]heldMessage, error) {
	var out []heldMessage
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
		rec := q.describe()
		rec.Came = q.state == complete
		r.Receives = append(r.Receives, *rec)
		if rec.Came {
			b, err := q.message(len(r.Receives))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			out = append(out, heldMessage{q.order, q.c, q.peer, q.tag, b})
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
		out = append(out, heldMessage{m.order, m.c, m.source, m.tag,
			BoxRecord{Comm: m.c.Name, Source: m.box.source, Tag: m.box.tag, Cut: m.box.cut, Data: m.box.data,
				Receive: r.stillUnposted(m.box.unposted)}})
	}
	slices.SortStableFunc(out, func(a, b heldMessage) int { return int(int64(a.order - b.order)) })
	return out, errors.Join(errs...)
}

// Quiet says whether Save would find no message and no receive, and nothing that it refuses. Requests that are
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
	return !slices.ContainsFunc(s.probed, func(m *Message) bool { return m.box != nil }) &&
		!slices.ContainsFunc(s.unposted, func(o *unpostedReceive) bool { return !o.taken && !o.Came })
}

// isSaved says whether MarshalBinary has described the request for this cut.
func (r *Request) isSaved() bool { return r.saved != 0 && r.saved == r.c.rank.drains }

// protectedReceives are those that a restart posts again by itself.
func (s *Rank) protectedReceives() (out []*Request) {
	for q := s.pending.first; q != nil; q = q.next {
		if q.kind == recvRequest && q.state == active && q.isSaved() {
			out = append(out, q)
		}
	}
	return out
}

// message is what a complete receive has got.
func (r *Request) message(number int) (b BoxRecord, err error) {
	b = BoxRecord{Comm: r.c.Name, Source: r.peer, Tag: r.tag, Receive: number}
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

// refuse says why a request that is under way and not protected cannot cross a
// restart, or nil.
func (r *Request) refuse(protected []*Request) error {
	at := r.sites.String()
	if at != "" {
		at = " at " + at
	}
	fail := func(text string) error { return r.c.Fail(r.op.String(), r.errPeer(), r.errTag(), ErrPending, text) }
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

// overlapping says whether one message can fit both receives.
func overlapping(a, b *Request) bool {
	return (a.peer == AnySource || b.peer == AnySource || a.peer == b.peer) &&
		(a.tag == AnyTag || b.tag == AnyTag || a.tag == b.tag)
}

// insertHeld puts what was held on c among the messages of its mailbox: each
// before the first that the same receive or probe could take, so that it finds its own
// when it is made again, in the order in which the program made them.
func insertHeld(list []BoxRecord, held []heldMessage, c *Channel) []BoxRecord {
	for i := len(held) - 1; i >= 0; i-- {
		k := &held[i]
		if k.c != c {
			continue
		}
		at := slices.IndexFunc(list, func(b BoxRecord) bool { return k.fits(&b) })
		if at < 0 {
			at = len(list)
		}
		list = slices.Insert(list, at, k.box)
	}
	return list
}

// stillUnposted carries a receive that this run has not posted again into the next
// record and returns its number there.
func (r *Mail) stillUnposted(o *unpostedReceive) int {
	if o == nil {
		return 0
	}
	r.Receives = append(r.Receives, o.PendingReceive)
	return len(r.Receives)
}

// addIdle carries those over that no message of the mailbox belongs to.
func (r *Mail) addIdle(unposted []*unpostedReceive) {
	for _, o := range unposted {
		if !o.taken && !o.Came {
			r.Receives = append(r.Receives, o.PendingReceive)
		}
	}
}

// NoteUnposted ties the messages of a record that has been read to the receives that had them,
// which the program is to post again.
func (s *Rank) NoteUnposted(r *Mail) {
	s.unposted = nil
	for _, rec := range r.Receives {
		s.unposted = append(s.unposted, &unpostedReceive{PendingReceive: rec})
	}
	for i := range r.Boxes {
		if n := r.Boxes[i].Receive; n > 0 {
			r.Boxes[i].unposted = s.unposted[n-1]
		}
	}
}

// postedAgain notes that the program has posted a receive which the checkpoint
// had pending.
func (c *Channel) postedAgain(source, tag int) {
	c.rank.Lock()
	defer c.rank.Unlock()
	for _, o := range c.rank.unposted {
		if !c.Private && !o.taken && !o.Came && o.Comm == c.Name && o.Source == source && o.Tag == tag {
			o.taken = true
			return
		}
	}
}

// lostAtRestart explains an inactive request after a restart.
func (r *Request) lostAtRestart() string {
	if r.kind == sendRequest {
		return ""
	}
	for _, o := range r.c.rank.unposted {
		// A prepared receive is another one where it asks for other messages.
		other := r.persistent && (o.Source != r.peer || o.Tag != r.tag)
		if !o.taken && o.Comm == r.c.Name && !other {
			return "the checkpoint had a " + o.String() + " pending that was not protected; post it again after a " +
				"restart, or protect the request"
		}
	}
	return ""
}

// lostAmong finds a request among several that waits for nothing because a restart
// has lost it.
func lostAmong(rs []*Request) error {
	for _, r := range rs {
		if r == nil || r.work == nil || r.state != idle || r.order != 0 {
			continue
		}
		if text := r.lostAtRestart(); text != "" {
			return r.c.Fail("Wait", r.errPeer(), r.errTag(), ErrRequest, text)
		}
	}
	return nil
}

// MeetPosted gives messages of a record to receives that the program has posted
// before Restore: they were sent before all that this run sends. A receive that has
// got one of this run gives it back to the mailbox.
func (s *Rank) MeetPosted() {
	s.postQueued()
	for r := s.pending.first; r != nil; {
		next := r.next
		if r.kind == recvRequest && !r.c.Private {
			r.c.postedAgain(r.peer, r.tag)
		}
		if r.kind == recvRequest && !r.c.Private && !r.boxed() && !r.st.Cancelled &&
			(r.state == active || r.err == nil) {
			r.meet()
		}
		r = next
	}
}

// boxed reports whether the request has a drained message whose bytes are still coming.
func (r *Request) boxed() bool {
	_, ok := r.rest.(*mailboxMessage)
	return ok
}

func (r *Request) meet() {
	c := r.c
	if r.rest != nil {
		if _, err := r.rest.step(r, true); err != nil || r.err != nil {
			return
		}
	}
	if c.box.find(r.peer, r.tag) < 0 {
		return
	}
	if r.state == active {
		if err := c.rank.Driver.Cancel(r.h); err != nil {
			return
		}
		st, err := c.rank.Driver.Wait(r.h)
		r.completed(st, err, waiting)
	}
	if r.err != nil {
		return
	}
	if !r.st.Cancelled {
		data, err := r.got(r.st.Bytes)
		if err != nil {
			r.err = err
			return
		}
		c.box.add(&mailboxMessage{source: r.st.Source, tag: r.st.Tag, data: slices.Clone(data)})
	}
	r.unlist()
	if r.dev != nil {
		if r.err = r.load(); r.err != nil {
			r.list()
			r.state = complete
			return
		}
	}
	r.fromBox(c.takeFromMailbox(r.peer, r.tag))
}
