package request

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// The conditions that are found here. Package mpiwrap documents them.
var (
	ErrRank       = errors.New("rank out of range")
	ErrTag        = errors.New("tag out of range")
	ErrTruncate   = errors.New("message longer than the receive buffer")
	ErrOverlap    = errors.New("buffers overlap")
	ErrFreed      = errors.New("used after free")
	ErrRequest    = errors.New("request is not active; it was waited for before or never started")
	ErrConcurrent = errors.New("two calls at once; let one goroutine call MPI at a time, or ask for " +
		"mpiwrap.ThreadMultiple")
	ErrOp              = errors.New("operator is not defined for this type")
	ErrUnsupported     = errors.New("not supported")
	ErrDrainIncomplete = errors.New("drain incomplete")
	ErrMailboxFull     = errors.New("messages in flight exceed the memory limit of the mailbox")
	ErrPending         = errors.New("pending at the checkpoint")
	ErrMailbox         = errors.New("unusable mailbox record")
	ErrMismatch        = errors.New("does not match")
	ErrFinalized       = errors.New("MPI is finalised")
	ErrDevice          = devmsg.ErrDevice
)

// NoPeer and NoTag stand in an Error for calls that have none.
const (
	NoPeer = -100
	NoTag  = -100
)

// Error is what a mpiwrap.Error says.
type Error struct {
	Call  string
	Comm  string
	Peer  int
	Tag   int
	Class driver.Class
	Text  string
	Err   error
}

// NewError makes the error that programs see. Package mpiwrap, which stands above this
// one, sets it.
var NewError func(Error) error

// Fail makes an error of a check of ours.
func (c *Channel) Fail(name string, peer, tag int, err error, text string) error {
	return NewError(Error{Call: name, Comm: c.Name, Peer: peer, Tag: tag, Err: err, Text: text})
}

// Wrap makes an error of what the driver returned.
func (c *Channel) Wrap(name string, peer, tag int, err error) error {
	e := Error{Call: name, Comm: c.Name, Peer: peer, Tag: tag, Err: err}
	var d *driver.Error
	if errors.As(err, &d) {
		e.Class, e.Text, e.Err = d.Class, d.Text, d.Err
		switch d.Class {
		case driver.ClassTruncate:
			e.Err = ErrTruncate
		case driver.ClassOp:
			e.Err = ErrOp
		case driver.ClassRank, driver.ClassRoot:
			e.Err = ErrRank
		case driver.ClassTag:
			e.Err = ErrTag
		}
	}
	return NewError(e)
}
