package driver

import (
	"errors"
	"fmt"
)

// ErrNoLibrary means that no MPI library could be opened.
var ErrNoLibrary = errors.New("no usable MPI library: install Open MPI or MPICH, or name the library's file")

// Class is MPI's error class, in MPICH's and Open MPI's common vocabulary.
type Class int32

// The classes mpiwrap distinguishes; every other one is ClassOther.
const (
	ClassNone Class = iota
	ClassBuffer
	ClassCount
	ClassType
	ClassTag
	ClassComm
	ClassRank
	ClassRequest
	ClassRoot
	ClassGroup
	ClassOp
	ClassArg
	ClassTruncate
	ClassIntern
	ClassWin
	ClassRMA
	ClassOther
)

// String returns the class's name as MPI has it, without MPI_ERR_.
func (c Class) String() string {
	return [...]string{"", "buffer", "count", "type", "tag", "comm", "rank", "request", "root", "group", "op", "arg",
		"truncate", "intern", "win", "rma", "other"}[c]
}

// Error is a driver's failure of one call.
type Error struct {
	Class Class
	Code  int
	Text  string
	Err   error
	// Consumed is set when the call took a message off the wire before it
	// failed (truncation); Status then says which.
	Consumed bool
	Status   Status
}

// Error gives the library's text and code.
func (e *Error) Error() string {
	if e.Text == "" && e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s (code %d)", e.Text, e.Code)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Unknown reports whether err, of a call about a request, means that nothing is known about the
// request: the simulated world has ended. An Error is the request's own.
func Unknown(err error) bool {
	return err != nil && !errors.As(err, new(*Error))
}
