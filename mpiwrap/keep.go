package mpiwrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// NewRequest returns an idle request with a buffer, for a non-blocking call that
// may be pending at a checkpoint. Its Irecv and Isend start it, Wait and Test end
// it, and it can be started again. It belongs among what the program makes before
// Restore; protected together with its buffer, it is pending again after a
// restart:
//
//	halo := make([]float64, n)
//	req := mpiwrap.NewRequest(world, halo)
//	ck.Protect("halo", &halo)
//	ck.Protect("halo request", req)
//
// The slice must keep its memory: a buffer that is reallocated needs a new
// request.
func NewRequest[T Scalar](c *Comm, buf []T) *Request {
	return &Request{work: &work{buf: bytesOf(buf), sites: noteSite()}, c: c, kind: recvRequest, reusable: true,
		op: opIrecv}
}

// Irecv starts a receive into the request's buffer; see Irecv.
func (r *Request) Irecv(source, tag int) error {
	if err := r.reuse(); err != nil {
		return err
	}
	if err := r.c.checkRecv(opIrecv, source, tag); err != nil {
		return err
	}
	r.kind, r.op, r.peer, r.tag = recvRequest, opIrecv, source, tag
	return r.launch()
}

// Isend starts to send the request's buffer; see Isend.
func (r *Request) Isend(dest, tag int) error {
	if err := r.reuse(); err != nil {
		return err
	}
	if err := r.c.checkSend(opIsend, dest, tag); err != nil {
		return err
	}
	r.kind, r.op, r.mode, r.peer, r.tag = sendRequest, opIsend, driver.Standard, dest, tag
	return r.launch()
}

func (r *Request) reuse() error {
	if r == nil || r.c == nil {
		return noRequest("Irecv")
	}
	if !r.reusable || r.state != idle {
		return r.c.fail("Irecv", r.errPeer(), r.errTag(), ErrRequest, "only an idle request of NewRequest can be "+
			"started so")
	}
	return nil
}

// noRequest refuses a Request that no call of this package has made.
func noRequest(call string) error {
	return &Error{Call: call, Peer: NoPeer, Tag: NoTag, Err: ErrRequest, Text: "no call has made this request"}
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

// MarshalBinary describes a request of NewRequest, SendInit or RecvInit for a
// checkpoint, after the drain. Its buffer is not part of it. A request that was freed is
// described as freed, and is freed after a restart.
func (r *Request) MarshalBinary() ([]byte, error) {
	if r == nil || r.c == nil {
		return nil, noRequest("Protect")
	}
	if !r.persistent && !r.reusable {
		return nil, r.c.fail("Protect", r.errPeer(), r.errTag(), ErrUnsupported,
			"only requests of NewRequest, SendInit and RecvInit can be protected")
	}
	if r.state == active && (r.kind == sendRequest || r.box != nil) {
		return nil, r.c.fail("Protect", r.peer, r.tag, ErrDrainIncomplete, "the request is under way; drain first")
	}
	rec := requestRecord{Version: 1, State: r.state, Kind: r.kind, Comm: r.c.name, Peer: r.peer, Tag: r.tag,
		Bytes: len(r.buf), Order: r.order, Status: r.st}
	if r.err != nil {
		rec.Failure, rec.Truncated = r.err.Error(), errors.Is(r.err, ErrTruncate)
	}
	if r.kept != 0 && r.kept == r.c.st.drains {
		return nil, r.c.fail("Protect", r.peer, r.tag, ErrPending, "its message is in the saved mailbox already; "+
			"save requests before the mailbox")
	}
	if r.state == released {
		rec.Version = requestVersion
	}
	r.saved = r.c.st.drains
	return json.Marshal(rec)
}

// UnmarshalBinary makes an idle request what it was at the checkpoint: complete,
// or pending. A pending receive is posted again when the program makes its next
// call, in the order in which receives were posted before, so that its buffer can
// still be restored.
func (r *Request) UnmarshalBinary(b []byte) error {
	apply, err := r.StageBinary(b)
	if err == nil {
		apply()
	}
	return err
}

// StageBinary is UnmarshalBinary in two steps: it checks a record and changes
// nothing; apply, which cannot fail, makes the request what the record says.
func (r *Request) StageBinary(b []byte) (apply func(), err error) {
	if r == nil || r.c == nil {
		return nil, noRequest("Restore")
	}
	var rec requestRecord
	if err := json.Unmarshal(b, &rec); err != nil {
		return nil, r.c.fail("Restore", NoPeer, NoTag, ErrMailbox, err.Error())
	}
	if err := r.accepts(&rec); err != nil {
		return nil, r.c.fail("Restore", rec.Peer, rec.Tag, ErrMismatch, err.Error())
	}
	return func() { r.become(&rec) }, nil
}

// become makes an idle request what a record says, which it accepts.
func (r *Request) become(rec *requestRecord) {
	r.st, r.order = rec.Status, rec.Order
	switch rec.State {
	case released:
		r.state = released
	case complete:
		r.kind, r.peer, r.tag, r.state = rec.Kind, rec.Peer, rec.Tag, complete
		if rec.Failure != "" {
			r.err = &Error{Call: "Irecv", Comm: r.c.name, Peer: rec.Peer, Tag: rec.Tag, Text: rec.Failure}
			if rec.Truncated {
				r.err = &Error{Call: "Irecv", Comm: r.c.name, Peer: rec.Peer, Tag: rec.Tag, Class: ClassTruncate,
					Err: ErrTruncate}
			}
		}
	case active:
		r.kind, r.peer, r.tag = rec.Kind, rec.Peer, rec.Tag
		s := r.c.st
		s.again = append(s.again, r)
		slices.SortFunc(s.again, func(a, b *Request) int { return int(int64(a.order - b.order)) })
	}
}

// accepts says whether the record belongs to a request like r.
func (r *Request) accepts(rec *requestRecord) error {
	switch {
	case rec.Version < 1 || rec.Version > requestVersion:
		return fmt.Errorf("record of version %d, this library reads 1 to %d", rec.Version, requestVersion)
	case r.state != idle:
		return errors.New("the request has been started already; restore it before its first use")
	case rec.Comm != r.c.name:
		return fmt.Errorf("the request belonged to %s, this one to %s", rec.Comm, r.c.name)
	case rec.State == released && rec.Version >= 2:
		return nil
	case rec.Bytes != len(r.buf):
		return fmt.Errorf("the request's buffer had %d bytes, this one has %d; make the request with a buffer of the "+
			"same length", rec.Bytes, len(r.buf))
	case r.persistent && (rec.Kind != r.kind || rec.Peer != r.peer || rec.Tag != r.tag):
		return fmt.Errorf("the request was for peer %d tag %d, this one is for peer %d tag %d", rec.Peer, rec.Tag,
			r.peer, r.tag)
	case rec.State > complete || rec.State == active && rec.Kind != recvRequest:
		return fmt.Errorf("state %d of kind %d", rec.State, rec.Kind)
	}
	if rec.State == active {
		return r.c.checkRecv(opIrecv, rec.Peer, rec.Tag)
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
	case r.c.st.again == nil:
		return nil
	}
	a, err := r.c.quick(opStart, r.peer, r.tag)
	if err != nil {
		return err
	}
	a.leave()
	return nil
}

func wakeAny(rs []*Request) error {
	for _, r := range rs {
		if r == nil {
			continue
		}
		// All are of one rank, and waking one wakes all.
		if err := r.wake(); err != nil || r.c.st.owed == nil {
			return err
		}
		return lostAmong(rs)
	}
	return nil
}

// postAgain posts restored receives; the program's call that led here comes after
// them, as it did before the restart.
func (s *state) postAgain() {
	list := s.again
	s.again = nil
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
