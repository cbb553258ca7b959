package mpiwrap

import (
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
)

// Status says what was received or found by a probe. Source is a rank of the
// communicator; Bytes is the length of the payload.
type Status struct {
	Source    int
	Tag       int
	Bytes     int
	Cancelled bool // the receive was withdrawn by Cancel; nothing was received
}

// StatusCount returns how many T the message holds, or -1 when its length is not a
// multiple of T's size.
func StatusCount[T Scalar](s Status) int {
	if s.Bytes%sizeOf[T]() != 0 {
		return -1
	}
	return s.Bytes / sizeOf[T]()
}

// Send sends buf to rank dest. It may return before the message is received;
// buf may be changed afterwards.
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
	st, err := c.channel().Recv(bytesOf(buf), source, tag)
	return Status(st), err
}

// Sendrecv sends sbuf to dest and receives into rbuf from source, in whichever
// order succeeds first. The buffers must not overlap.
func Sendrecv[S, R Scalar](c *Comm, sbuf []S, dest, stag int, rbuf []R, source, rtag int) (Status, error) {
	st, err := c.channel().Sendrecv(bytesOf(sbuf), dest, stag, bytesOf(rbuf), source, rtag)
	return Status(st), err
}

// Probe waits until a message from source with tag has arrived and describes it,
// without receiving it. The next receive that matches gets that message.
func (c *Comm) Probe(source, tag int) (Status, error) {
	st, err := c.channel().Probe(source, tag)
	return Status(st), err
}

// Iprobe reports whether a message from source with tag has arrived.
func (c *Comm) Iprobe(source, tag int) (Status, bool, error) {
	st, ok, err := c.channel().Iprobe(source, tag)
	return Status(st), ok, err
}

// Message is a message matched by Mprobe or Improbe: no other receive can get
// it. A drain fetches its bytes; after a restart it is found by a probe again.
type Message request.Message

// Status says what the message is.
func (m *Message) Status() Status { return Status((*request.Message)(m).Status()) }

// Mprobe waits for a message from source with tag and matches it.
func (c *Comm) Mprobe(source, tag int) (*Message, error) {
	m, err := c.channel().Mprobe(source, tag)
	return (*Message)(m), err
}

// Improbe matches a message from source with tag, if there is one; otherwise it
// returns nil.
func (c *Comm) Improbe(source, tag int) (*Message, error) {
	m, err := c.channel().Improbe(source, tag)
	return (*Message)(m), err
}

// Mrecv receives a message that Mprobe or Improbe has matched. It can be received
// once.
func Mrecv[T Scalar](m *Message, buf []T) (Status, error) {
	st, err := (*request.Message)(m).Recv(bytesOf(buf))
	return Status(st), err
}
