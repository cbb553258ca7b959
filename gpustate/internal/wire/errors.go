package wire

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// ErrQuota means that the memory that the server grants one client is used up. Errors
// that match it match driver.ErrOutOfMemory too.
var ErrQuota = errors.New("over the server's memory quota for one client")

// sentinels are the conditions that travel, by their place; new ones are
// appended.
var sentinels = []error{nil, driver.ErrOutOfMemory, driver.ErrDeviceLost, driver.ErrUnsupported,
	driver.ErrNoSource, driver.ErrArgNotSet, driver.ErrNoKernel, ErrQuota, ErrProtocol, driver.ErrHidden,
	driver.ErrKernelFault}

// Forms of an error.
const (
	errNone  = 0
	errPlain = 1 // text and sentinel
	errCall  = 2 // a driver.CallError, and the text around it
	errBuild = 3 // a driver.BuildError
	errCmd   = 4 // a driver.CommandError around another error
)

// remoteError is an error of another process: its text, and the error types that
// callers look for behind it.
type remoteError struct {
	text   string
	behind []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.behind }

// failure passes an error, or none.
func failure(f *Fields, err *error) {
	if f.Reading {
		*err = decodeError(&f.R)
	} else {
		encodeError(&f.W, *err)
	}
}

// encodeError appends an error, or none.
func encodeError(w *Writer, err error) {
	if err == nil {
		w.Uint(errNone)
		return
	}
	if cmd, ok := errors.AsType[*driver.CommandError](err); ok {
		w.Uint(errCmd)
		w.Str(cmd.Command)
		encodePlain(w, cmd.Err)
		return
	}
	encodePlain(w, err)
}

// encodePlain appends an error that is no CommandError.
func encodePlain(w *Writer, err error) {
	var build *driver.BuildError
	var call *driver.CallError
	switch {
	case errors.As(err, &build):
		w.Uint(errBuild)
		w.Str(build.Program)
		w.Str(build.Options)
		w.Str(build.Log)
		w.Str(fmt.Sprint(build.Err))
		return
	case errors.As(err, &call):
		w.Uint(errCall)
		w.Str(err.Error())
		w.Str(call.Call)
		w.Int(int64(call.Code))
		w.Str(call.Text)
	default:
		w.Uint(errPlain)
		w.Str(err.Error())
	}
	var kinds []int
	for i, s := range sentinels {
		if s != nil && errors.Is(err, s) {
			kinds = append(kinds, i)
		}
	}
	w.Uint(uint64(len(kinds)))
	for _, k := range kinds {
		w.Uint(uint64(k))
	}
}

// decodeError takes an error off; nil when there was none. A malformed one is r.Err.
func decodeError(r *Reader) error {
	switch form := r.Uint(); form {
	case errNone:
		return nil
	case errCmd:
		return &driver.CommandError{Command: r.Str(), Err: decodePlain(r, r.Uint())}
	default:
		return decodePlain(r, form)
	}
}

func decodePlain(r *Reader, form uint64) error {
	switch form {
	case errBuild:
		b := &driver.BuildError{Program: r.Str(), Options: r.Str(), Log: r.Str()}
		b.Err = errors.New(r.Str())
		return b
	case errCall, errPlain:
		e := &remoteError{text: r.Str()}
		var call *driver.CallError
		if form == errCall {
			call = &driver.CallError{Call: r.Str(), Code: int(r.Int()), Text: r.Str()}
			e.behind = append(e.behind, call)
		}
		for range r.Count() {
			k := r.Uint()
			if k >= uint64(len(sentinels)) || sentinels[k] == nil {
				continue // one that a later version knows
			}
			if e.behind = append(e.behind, sentinels[k]); call != nil {
				call.Kind = sentinels[k]
			}
		}
		return e
	default:
		r.Fail(fmt.Sprintf("error of form %d", form))
		return nil
	}
}
