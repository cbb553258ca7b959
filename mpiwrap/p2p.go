package mpiwrap

import (
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
)

// Status describes a message that was received or found by a probe. Source is a rank of the communicator; Bytes is the
// length of the payload.
//
//	Source    int
//	Tag       int
//	Bytes     int
//	Cancelled bool // the receive was withdrawn by Cancel; nothing was received
type Status = request.Status

// StatusCount returns how many T the message holds, or -1 when its length is not a
// multiple of T's size.
func StatusCount[T Scalar](s Status) int {
	if s.Bytes%sizeOf[T]() != 0 {
		return -1
	}
	return s.Bytes / sizeOf[T]()
}

// Send sends buf to rank dest. It may return before the message is received; buf may be changed afterwards. A long
// message waits for the matching receive; the MPI library decides from which length on.
func Send[T Scalar](c *Comm, buf []T, dest, tag int) error {
	return c.channel().Send(call.Send, driver.Standard, bytesOf(buf), dest, tag)
}

// Ssend sends buf to rank dest and returns when the matching receive has begun.
func Ssend[T Scalar](c *Comm, buf []T, dest, tag int) error {
	return c.channel().Send(call.Ssend, driver.Synchronous, bytesOf(buf), dest, tag)
}

// Recv receives one message from rank source, or from any with AnySource, with
// the given tag, or any with AnyTag. A message shorter than buf fills its
// beginning; a longer one is lost and the error matches ErrTruncate.
func Recv[T Scalar](c *Comm, buf []T, source, tag int) (Status, error) {
	return c.channel().Recv(bytesOf(buf), source, tag)
}

// Sendrecv sends sbuf to dest and receives into rbuf from source, in whichever
// order succeeds first. The buffers must not overlap.
func Sendrecv[S, R Scalar](c *Comm, sbuf []S, dest, stag int, rbuf []R, source, rtag int) (Status, error) {
	return c.channel().Sendrecv(bytesOf(sbuf), dest, stag, bytesOf(rbuf), source, rtag)
}

// Probe waits until a message from source with tag has arrived and describes it,
// without receiving it. The next receive that matches gets that message.
func (c *Comm) Probe(source, tag int) (Status, error) {
	return c.channel().Probe(source, tag)
}

// Iprobe reports whether a message from source with tag has arrived. It does not wait.
func (c *Comm) Iprobe(source, tag int) (Status, bool, error) {
	return c.channel().Iprobe(source, tag)
}

// Message is a message matched by Mprobe or Improbe: no other receive can get
// it. A drain fetches its bytes; after a restart it is found by a probe again.
type Message request.Message

// Status returns the message's source, tag and length. Local.
func (m *Message) Status() Status { return (*request.Message)(m).Status() }

// Mprobe waits for a message from source with tag and matches it. The message can then be received only by Mrecv.
func (c *Comm) Mprobe(source, tag int) (*Message, error) {
	m, err := c.channel().Mprobe(source, tag)
	return (*Message)(m), err
}

// Improbe matches a message from source with tag, if there is one; otherwise it returns nil. It does not wait.
func (c *Comm) Improbe(source, tag int) (*Message, error) {
	m, err := c.channel().Improbe(source, tag)
	return (*Message)(m), err
}

// Mrecv receives a message that Mprobe or Improbe has matched. It can be received
// once.
func Mrecv[T Scalar](m *Message, buf []T) (Status, error) {
	return (*request.Message)(m).Recv(bytesOf(buf))
}

// Request is a non-blocking call under way, or a prepared one. The buffer of an
// active request belongs to the library: do not touch it until Wait, or a
// successful Test, reports that the request is complete. A request that a drain
// completed stays complete until then.
//
//	// Irecv starts a receive into the buffer of an idle request of NewRequest; see Irecv.
//	func Irecv(source, tag int) error
//	// Isend starts to send the buffer of an idle request of NewRequest; see Isend.
//	func Isend(dest, tag int) error
//	// Wait blocks until the request is complete and returns the Status of its message. A
//	// request that was never started, or was waited for already, is an error that matches
//	// ErrRequest. So is an unprotected one that was pending at a checkpoint and has not been
//	// posted again after the restart. A nil request is complete.
//	func Wait() (Status, error)
//	// Test reports whether the request is complete and if so returns the Status of its
//	// message. It returns the errors of Wait. It does not wait.
//	func Test() (Status, bool, error)
//	// Cancel withdraws a receive that nothing has matched yet; its Wait then reports
//	// Cancelled. A receive that has been matched, by MPI or from the mailbox,
//	// completes as if Cancel had not been called, and so does every send.
//	func Cancel() error
//	// Free releases a prepared request. One that is active must be waited for first.
//	func Free() error
//	// MarshalBinary describes a request of NewRequest, SendInit or RecvInit for a checkpoint,
//	// after the drain. Its buffer is not saved with it. A request that was freed is described
//	// as freed, and is freed after a restart.
//	func MarshalBinary() ([]byte, error)
//	// UnmarshalBinary brings an idle request into its state at the checkpoint: complete, or
//	// pending. A pending receive is posted again when the program makes its next call, in the
//	// order in which receives were posted before, so that its buffer can still be restored.
//	func UnmarshalBinary(b []byte) error
//	// StageBinary is UnmarshalBinary in two steps: it checks a record and changes nothing;
//	// apply, which cannot fail, changes the request.
//	func StageBinary(b []byte) (apply func(), err error)
type Request = request.Request

// Isend starts sending buf to rank dest. The program does not write buf until Wait or Test reports completion.
func Isend[T Scalar](c *Comm, buf []T, dest, tag int) (*Request, error) {
	return c.channel().Isend(call.Isend, driver.Standard, bytesOf(buf), dest, tag)
}

// Issend starts a send that is complete only when the matching receive has begun; see Isend.
func Issend[T Scalar](c *Comm, buf []T, dest, tag int) (*Request, error) {
	return c.channel().Isend(call.Issend, driver.Synchronous, bytesOf(buf), dest, tag)
}

// Irecv starts receiving one message into buf; see Recv. It may be pending at a checkpoint, and the running program
// sees no difference. After a restart it is no longer pending. The program posts it again after Restore, and gets the
// message that had arrived by the checkpoint, or the one that arrives later. See the package comment, and NewRequest
// for a receive that is pending again by itself.
func Irecv[T Scalar](c *Comm, buf []T, source, tag int) (*Request, error) {
	return c.channel().Irecv(bytesOf(buf), source, tag)
}

// NewRequest returns an idle request with a buffer, for a non-blocking call that may be pending at a checkpoint. Its
// Irecv and Isend start it, Wait and Test end it, and it can be started again. The program makes it before Restore;
// protected together with its buffer, it is pending again after a restart:
//
//	halo := make([]float64, n)
//	req := mpiwrap.NewRequest(world, halo)
//	ck.Protect("halo", &halo)
//	ck.Protect("halo request", req)
//
// The slice must keep its memory: a buffer that is reallocated needs a new
// request.
func NewRequest[T Scalar](c *Comm, buf []T) *Request {
	return c.channel().NewRequest(bytesOf(buf))
}

// SendInit prepares a send that Start may start repeatedly. The buffer must stay in
// place; its contents at each Start are sent.
func SendInit[T Scalar](c *Comm, buf []T, dest, tag int) (*Request, error) {
	return c.channel().SendInit(call.Isend, driver.Standard, bytesOf(buf), dest, tag)
}

// SsendInit prepares a synchronous send; see SendInit.
func SsendInit[T Scalar](c *Comm, buf []T, dest, tag int) (*Request, error) {
	return c.channel().SendInit(call.Issend, driver.Synchronous, bytesOf(buf), dest, tag)
}

// RecvInit prepares a receive that Start may start repeatedly. The buffer must stay in place.
func RecvInit[T Scalar](c *Comm, buf []T, source, tag int) (*Request, error) {
	return c.channel().RecvInit(bytesOf(buf), source, tag)
}

// Start starts prepared requests, in order and in one call of MPI: the cheapest way
// to keep many short messages in flight. A request that is active, or was not made
// by SendInit or RecvInit, is an error; those before it are started.
func Start(rs ...*Request) error { return request.Start(rs...) }

// WaitAll waits for every request, even when some fail, and joins the errors.
func WaitAll(rs ...*Request) error { return request.WaitAll(rs...) }

// WaitAllStatus is WaitAll that also returns each request's status, in dest when
// that is long enough. A skipped request has an empty status.
func WaitAllStatus(dest []Status, rs ...*Request) ([]Status, error) {
	return request.WaitAllStatus(dest, rs...)
}

// WaitAny waits until one of the requests is complete and returns its index, or
// Undefined when none is active.
func WaitAny(rs ...*Request) (int, Status, error) {
	return request.WaitAny(rs...)
}

// WaitSome waits until at least one of the requests is complete and returns the
// indices of all that are, with their statuses. None active gives none.
func WaitSome(rs ...*Request) ([]int, []Status, error) {
	return request.WaitSome(rs...)
}

// TestAll reports whether all requests are complete. Only then does it consume them
// and return their errors, joined.
func TestAll(rs ...*Request) (bool, error) { return request.TestAll(rs...) }

// TestAny looks for a complete request and returns its index; it does not wait. With none active it returns true and
// Undefined.
func TestAny(rs ...*Request) (int, Status, bool, error) {
	return request.TestAny(rs...)
}

// TestSome returns the indices and statuses of all requests that are complete
// now, possibly none.
func TestSome(rs ...*Request) ([]int, []Status, error) {
	return request.TestSome(rs...)
}
