package object

import (
	"errors"
	"fmt"
)

// Kinds of an *Error, beside fs.ErrNotExist (no such object), fs.ErrPermission and syscall.EDQUOT.
var (
	// ErrChanged marks a put or delete whose condition did not hold: the object is another one than was meant.
	ErrChanged = errors.New("the object is not as expected")
	// ErrNoImport marks a program that does not import the package for object stores.
	ErrNoImport = errors.New("this program is built without object stores")
	// ErrURL marks a URL that names no bucket.
	ErrURL = errors.New("not the URL of a bucket")
)

// Error names the failed request, its object, the cause and the remedy.
type Error struct {
	Op     string // "put", "get", "list", ...
	URL    string // s3://bucket/key
	Code   string // of the store; may be empty
	Remedy string // may be empty
	Kind   error  // one of the above, or another answer of the store; nil: not known
	Err    error
}

// Error names the operation, the address, the cause and the remedy.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s %s: %v", e.Op, e.URL, e.cause())
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

// cause returns the shortest that says it all.
func (e *Error) cause() error {
	var api interface { // of the library
		ErrorCode() string
		ErrorMessage() string
	}
	switch {
	case e.Kind != nil && e.Code != "":
		return fmt.Errorf("%w (%s)", e.Kind, e.Code)
	case e.Kind != nil:
		return e.Kind
	case errors.As(e.Err, &api):
		return fmt.Errorf("%s: %s", api.ErrorCode(), api.ErrorMessage())
	}
	return e.Err
}

// Unwrap returns the kind and the library's error.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }
