package mpiwrap

import (
	"errors"
	"fmt"
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

// owing is a receive that was pending at the checkpoint this run was restored from,
// without protection. It is taken when the program has posted it again, or has
// received its message.
type owing struct {
	PendingReceive
	taken bool
}

func (r *Request) describe() *PendingReceive {
	return &PendingReceive{Comm: r.c.name, Source: r.peer, Tag: r.tag, At: r.sites.String()}
}

// PendingReceive is a receive that was pending at the checkpoint this run was
// restored from, was not protected, and has not been posted again:
// coordinated.NotReceivedError lists them.
type PendingReceive = endpoint.PendingReceive

func (e *rankEndpoint) NotPostedAgain() []PendingReceive {
	var out []PendingReceive
	for _, o := range e.s.owed {
		if !o.taken {
			out = append(out, o.PendingReceive)
		}
	}
	return out
}

func (e *rankEndpoint) NoteSites() { e.s.noteSites = true }

// heldMessage is one that a receive or a probe of the program had matched, and
// that the program had not got at the cut.
type heldMessage struct {
	order       uint64 // of the receive or probe
	c           *Comm
	source, tag int // as it was posted
	box         boxRecord
}

func (k *heldMessage) fits(b *boxRecord) bool {
	return (k.source == AnySource || k.source == b.Source) && (k.tag == AnyTag || k.tag == b.Tag)
}

// held finds what is under way and not protected: it names the receives in r,
// returns the messages to keep, and refuses what cannot be kept.
func (r *record) held(s *state) ([]heldMessage, error) {
	var out []heldMessage
	var errs []error
	protected := s.protectedReceives()
	found := false
	for q := s.pending.first; q != nil; q = q.next {
		if q.c.private || q.kind == sendRequest || q.isSaved() {
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
			out = append(out, heldMessage{q.order, q.c, q.peer, q.tag, q.message(len(r.Receives))})
			q.kept = s.drains
		}
	}
	s.noteSites = found
	for _, m := range s.aside {
		if m.box == nil {
			continue
		}
		if m.c.freed {
			errs = append(errs, m.c.fail("Mprobe", m.st.Source, m.st.Tag, ErrPending,
				"the communicator is freed and a message that a probe has set aside is not received; receive it "+
					"before Free"))
			continue
		}
		out = append(out, heldMessage{m.order, m.c, m.source, m.tag,
			boxRecord{Comm: m.c.name, Source: m.box.source, Tag: m.box.tag, Cut: m.box.cut, data: m.box.data,
				Receive: r.stillOwed(m.box.owed)}})
	}
	slices.SortStableFunc(out, func(a, b heldMessage) int { return int(int64(a.order - b.order)) })
	return out, errors.Join(errs...)
}

// isSaved says whether MarshalBinary has described the request for this cut.
func (r *Request) isSaved() bool { return r.saved != 0 && r.saved == r.c.st.drains }

// protectedReceives are those that a restart posts again by itself.
func (s *state) protectedReceives() (out []*Request) {
	for q := s.pending.first; q != nil; q = q.next {
		if q.kind == recvRequest && q.state == active && q.isSaved() {
			out = append(out, q)
		}
	}
	return out
}

// message is what a complete receive has got.
func (r *Request) message(number int) boxRecord {
	b := boxRecord{Comm: r.c.name, Source: r.peer, Tag: r.tag, Receive: number,
		data: r.buf[:min(r.st.Bytes, len(r.buf))]}
	if b.Source == AnySource {
		b.Source = r.st.Source
	}
	if b.Tag == AnyTag {
		b.Tag = r.st.Tag
	}
	if r.err != nil {
		b.Cut, b.data = true, r.buf
	}
	return b
}

// refuse says why a request that is under way and not protected cannot cross a
// restart, or nil.
func (r *Request) refuse(protected []*Request) error {
	at := r.sites.String()
	if at != "" {
		at = " at " + at
	}
	fail := func(text string) error { return r.c.fail(r.op.String(), r.errPeer(), r.errTag(), ErrPending, text) }
	switch {
	case r.kind == collRequest:
		return fail("a non-blocking collective" + at + " is not waited for; Wait for it before the Point, since " +
			"ranks that restart could not start it again together")
	case r.c.freed:
		return fail("the communicator is freed and the receive posted" + at + " is not waited for; Wait for it " +
			"before Free")
	case r.state == complete && r.err != nil && !errors.Is(r.err, ErrTruncate):
		return fail("the receive posted" + at + " has failed and is not waited for: " + r.err.Error())
	}
	for _, p := range protected {
		if r.state == active && p.order > r.order && p.c == r.c && overlapping(r, p) {
			return fail(fmt.Sprintf("the receive posted%s is not protected, and one from %s with %s, posted after "+
				"it, is: after a restart the protected one would get its message; protect both (NewRequest)",
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
func insertHeld(list []boxRecord, held []heldMessage, c *Comm) []boxRecord {
	for i := len(held) - 1; i >= 0; i-- {
		k := &held[i]
		if k.c != c {
			continue
		}
		at := slices.IndexFunc(list, func(b boxRecord) bool { return k.fits(&b) })
		if at < 0 {
			at = len(list)
		}
		list = slices.Insert(list, at, k.box)
	}
	return list
}

// stillOwed carries a receive that this run has not posted again into the next
// record and returns its number there.
func (r *record) stillOwed(o *owing) int {
	if o == nil {
		return 0
	}
	r.Receives = append(r.Receives, o.PendingReceive)
	return len(r.Receives)
}

// addIdle carries those over that no message of the mailbox belongs to.
func (r *record) addIdle(owed []*owing) {
	for _, o := range owed {
		if !o.taken && !o.Came {
			r.Receives = append(r.Receives, o.PendingReceive)
		}
	}
}

// owing ties the messages of a record that has been read to their receives.
func (r *record) owing() []*owing {
	var out []*owing
	for _, rec := range r.Receives {
		out = append(out, &owing{PendingReceive: rec})
	}
	for i := range r.Boxes {
		if n := r.Boxes[i].Receive; n > 0 {
			r.Boxes[i].owed = out[n-1]
		}
	}
	return out
}

// postedAgain notes that the program has posted a receive which the checkpoint
// had pending.
func (c *Comm) postedAgain(source, tag int) {
	c.st.lock()
	defer c.st.unlock()
	for _, o := range c.st.owed {
		if !c.private && !o.taken && !o.Came && o.Comm == c.name && o.Source == source && o.Tag == tag {
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
	for _, o := range r.c.st.owed {
		// A prepared receive is another one where it asks for other messages.
		other := r.persistent && (o.Source != r.peer || o.Tag != r.tag)
		if !o.taken && o.Comm == r.c.name && !other {
			return "the checkpoint had a " + o.String() + " pending that was not protected; after a restart the " +
				"program posts it again, or protects the request"
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
			return r.c.fail("Wait", r.errPeer(), r.errTag(), ErrRequest, text)
		}
	}
	return nil
}

// meetPosted gives messages of a record to receives that the program has posted
// before Restore: they were sent before all that this run sends. A receive that has
// got one of this run gives it back to the mailbox.
func (s *state) meetPosted() {
	s.postQueued()
	for r := s.pending.first; r != nil; {
		next := r.next
		if r.kind == recvRequest && !r.c.private {
			r.c.postedAgain(r.peer, r.tag)
		}
		if r.kind == recvRequest && !r.c.private && r.box == nil && !r.st.Cancelled &&
			(r.state == active || r.err == nil) {
			r.meet()
		}
		r = next
	}
}

func (r *Request) meet() {
	c := r.c
	if c.box.find(r.peer, r.tag) < 0 {
		return
	}
	if r.state == active {
		if err := c.st.drv.Cancel(r.h); err != nil {
			return
		}
		st, err := c.st.drv.Wait(r.h)
		r.completed(st, err)
	}
	if r.err != nil {
		return
	}
	if !r.st.Cancelled {
		c.box.add(&boxed{source: r.st.Source, tag: r.st.Tag, data: slices.Clone(r.buf[:r.st.Bytes])})
	}
	r.unlist()
	r.fromBox(c.takeBoxed(r.peer, r.tag))
}
