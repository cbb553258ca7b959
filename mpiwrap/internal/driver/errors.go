package driver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// LibraryError says that no MPI library could be opened.
type LibraryError struct {
	Tried   []string
	Reasons []string
}

// Error lists the libraries that were tried, each with the reason against it.
func (e *LibraryError) Error() string {
	var b strings.Builder
	b.WriteString("no usable MPI library: install Open MPI or MPICH, or name the library's file")
	for i, n := range e.Tried {
		fmt.Fprintf(&b, "; %s: %s", n, e.Reasons[i])
	}
	return b.String()
}

// PairingError says that the MPI library does not belong to the launcher: the
// launcher has started several ranks and each of them is alone.
type PairingError struct {
	Library  string // "Open MPI" or "MPICH"
	Launched int    // ranks, according to the environment
	Says     string // the environment variable
}

// Error names the library, and the launchers that fit it.
func (e *PairingError) Error() string {
	srun := ""
	if plugin := map[string]string{"Open MPI": "pmix", "MPICH": "pmi2"}[e.Library]; plugin != "" {
		srun = fmt.Sprintf(" or with srun --mpi=%s", plugin)
	}
	return fmt.Sprintf("launcher and MPI library do not match: %s=%d, but with %s every rank is alone; start the "+
		"program with %s's own mpirun%s, or name the launcher's library in Options.Library",
		e.Says, e.Launched, e.Library, e.Library, srun)
}

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

var classNames = [...]string{"none", "buffer", "count", "type", "tag", "comm", "rank", "request", "root",
	"group", "op", "arg", "truncate", "intern", "win", "rma", "other"}

// String returns the class's name as MPI has it, without MPI_ERR_.
func (c Class) String() string {
	if c >= 0 && int(c) < len(classNames) {
		return classNames[c]
	}
	return strconv.Itoa(int(c))
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
	var e *Error
	return err != nil && !errors.As(err, &e)
}
