package request

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// NewRequest returns an idle request that can be protected and started again and again.
func (c *Channel) NewRequest(buf []byte) *Request {
	return &Request{work: &work{buf: buf, sites: NoteSite()}, c: c, kind: recvRequest, reusable: true, op: call.Irecv}
}

// Irecv starts a receive into the request's buffer; see Irecv.
func (r *Request) Irecv(source, tag int) error {
	if err := r.reuse(); err != nil {
		return err
	}
	if err := r.c.checkRecv(call.Irecv, source, tag); err != nil {
		return err
	}
	r.kind, r.op, r.peer, r.tag = recvRequest, call.Irecv, source, tag
	return r.launch()
}

// Isend starts to send the request's buffer; see Isend.
func (r *Request) Isend(dest, tag int) error {
	if err := r.reuse(); err != nil {
		return err
	}
	if err := r.c.checkSend(call.Isend, dest, tag); err != nil {
		return err
	}
	r.kind, r.op, r.mode, r.peer, r.tag = sendRequest, call.Isend, driver.Standard, dest, tag
	return r.launch()
}

func (r *Request) reuse() error {
	if r == nil || r.c == nil {
		return noRequest("Irecv")
	}
	if !r.reusable || r.state != idle {
		return r.c.Fail("Irecv", r.peer, r.tag, ErrRequest, "only an idle request of NewRequest can be "+
			"started so")
	}
	return nil
}

// noRequest refuses a Request that no call of this package has made.
func noRequest(name string) error {
	return &Error{Call: name, Peer: NoPeer, Tag: NoTag, Err: ErrRequest, Text: "no call has made this request"}
}

// requestVersion is the version of the record that MarshalBinary writes for a
// request that was freed; all others are as in version 1.
const requestVersion = 2

// requestRecord is a request at a checkpoint.
type requestRecord struct {
	Version   int
	State     requestState
	Kind      requestKind
	Comm      string
	Peer, Tag int
	Bytes     int
	Order     uint64 // of posting, among the rank's receives
	Status    Status
	Failure   string
	Truncated bool
}

// MarshalBinary implements mpiwrap.Request.
func (r *Request) MarshalBinary() ([]byte, error) {
	if r == nil || r.c == nil {
		return nil, noRequest("Protect")
	}
	if !r.persistent && !r.reusable {
		return nil, r.c.Fail("Protect", r.peer, r.tag, ErrUnsupported,
			"only requests of NewRequest, SendInit and RecvInit can be protected")
	}
	if r.state == active && (r.kind == sendRequest || r.rest != nil) {
		return nil, r.c.Fail("Protect", r.peer, r.tag, ErrDrainIncomplete, "the request is in progress; drain first")
	}
	rec := requestRecord{Version: 1, State: r.state, Kind: r.kind, Comm: r.c.Name, Peer: r.peer, Tag: r.tag,
		Bytes: r.size(), Order: r.order, Status: r.st}
	if r.err != nil {
		rec.Failure, rec.Truncated = r.err.Error(), errors.Is(r.err, ErrTruncate)
	}
	if r.messageSaved != 0 && r.messageSaved == r.c.rank.drains {
		return nil, r.c.Fail("Protect", r.peer, r.tag, ErrPending,
			"the saved mailbox already holds its message; save requests before the mailbox")
	}
	if r.state == released {
		rec.Version = requestVersion
	}
	r.saved = r.c.rank.drains
	return json.Marshal(rec)
}

// UnmarshalBinary implements mpiwrap.Request.
func (r *Request) UnmarshalBinary(b []byte) error {
	apply, err := r.StageBinary(b)
	if err == nil {
		apply()
	}
	return err
}

// StageBinary implements mpiwrap.Request.
func (r *Request) StageBinary(b []byte) (apply func(), err error) {
	if r == nil || r.c == nil {
		return nil, noRequest("Restore")
	}
	var rec requestRecord
	if err := json.Unmarshal(b, &rec); err != nil {
		return nil, r.c.Fail("Restore", NoPeer, NoTag, ErrMailbox, err.Error())
	}
	if err := r.accepts(&rec); err != nil {
		return nil, r.c.Fail("Restore", rec.Peer, rec.Tag, ErrMismatch, err.Error())
	}
	return func() { r.become(&rec) }, nil
}

// become brings an idle request into the state of a record, which it accepts.
func (r *Request) become(rec *requestRecord) {
	r.st, r.order = rec.Status, rec.Order
	switch rec.State {
	case released:
		r.state = released
	case complete:
		r.kind, r.peer, r.tag, r.state = rec.Kind, rec.Peer, rec.Tag, complete
		if rec.Failure != "" {
			e := Error{Call: "Irecv", Comm: r.c.Name, Peer: rec.Peer, Tag: rec.Tag, Text: rec.Failure}
			if rec.Truncated {
				e.Text, e.Err = "", ErrTruncate
			}
			r.err = &e
		}
	case active:
		r.kind, r.peer, r.tag = rec.Kind, rec.Peer, rec.Tag
		s := r.c.rank
		s.restored = append(s.restored, r)
		slices.SortFunc(s.restored, func(a, b *Request) int { return int(int64(a.order - b.order)) })
	}
}

// accepts reports whether the record belongs to a request like r.
func (r *Request) accepts(rec *requestRecord) error {
	switch {
	case rec.Version < 1 || rec.Version > requestVersion:
		return fmt.Errorf("record of version %d, this library reads 1 to %d", rec.Version, requestVersion)
	case r.state != idle:
		return errors.New("the request was started already; restore it before its first use")
	case rec.Comm != r.c.Name:
		return fmt.Errorf("the request belonged to %s, this one to %s", rec.Comm, r.c.Name)
	case rec.State == released && rec.Version >= 2:
		return nil
	case rec.Bytes != r.size():
		return fmt.Errorf("the request's buffer had %d bytes, this one has %d; make the request with a buffer of the "+
			"same length", rec.Bytes, r.size())
	case r.persistent && (rec.Kind != r.kind || rec.Peer != r.peer || rec.Tag != r.tag):
		return fmt.Errorf("the request was for peer %d tag %d, this one is for peer %d tag %d", rec.Peer, rec.Tag,
			r.peer, r.tag)
	case rec.State > complete || rec.State == active && rec.Kind != recvRequest:
		return fmt.Errorf("state %d of kind %d", rec.State, rec.Kind)
	}
	if rec.State == active {
		return r.c.checkRecv(call.Irecv, rec.Peer, rec.Tag)
	}
	return nil
}

// wake posts restored receives before the first of them is asked about.
func (r *Request) wake() error {
	switch {
	case r == nil:
		return nil
	case r.c == nil:
		return noRequest("Wait")
	case r.c.rank.restored == nil:
		return nil
	}
	a, err := r.c.Quick(call.Start, r.peer, r.tag)
	if err != nil {
		return err
	}
	a.Leave()
	return nil
}

func wakeAny(rs []*Request) error {
	for _, r := range rs {
		if r == nil {
			continue
		}
		// All are of one rank, and waking one wakes all.
		if err := r.wake(); err != nil || r.c.rank.unposted == nil {
			return err
		}
		// A request that a restart has lost waits for nothing.
		for _, r := range rs {
			if r == nil || r.work == nil || r.state != idle || r.order != 0 {
				continue
			}
			if text := r.lostAtRestart(); text != "" {
				return r.c.Fail("Wait", r.peer, r.tag, ErrRequest, text)
			}
		}
		return nil
	}
	return nil
}

// postRestored posts restored receives; the program's call that led here comes after
// them, as it did before the restart.
func (s *Rank) postRestored() {
	list := s.restored
	s.restored = nil
	s.reposting = true
	defer func() { s.reposting = false }()
	for _, r := range list {
		if r.state != idle {
			continue
		}
		if err := r.start(); err != nil {
			r.state, r.err = complete, err
		}
	}
}
