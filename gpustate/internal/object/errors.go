package object

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Conditions of objects.
var (
	ErrReleased    = errors.New("object was released")
	ErrArgType     = errors.New("not a kernel argument")
	ErrOtherDevice = errors.New("object belongs to another device")
	ErrRange       = errors.New("outside the object")
	ErrLimit       = errors.New("exceeds the device's limit")
	ErrFP64        = errors.New("device has no double precision")
	ErrConflict    = errors.New("an object of that name exists and differs")
	ErrMapped      = errors.New("shared buffer is mapped")
	ErrAdopted     = errors.New("it belongs to other code: release it, move, and adopt what that code has there")
	ErrIdentity    = errors.New("a restart could not tell the objects apart")
)

// Error names the failed operation, its object and its device.
type Error struct {
	Op     string       // "create", "launch", "restore", ...
	Kind   string       // "buffer", "kernel", ...
	Name   string       // the program's name, or "#n" for object n without one
	Device driver.Info  // the device it is or was to be on
	From   *driver.Info // restore and migrate: the device it comes from
	Err    error
}

// Error names the operation, the object, its device, and the cause.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s %s %q on %s", e.Op, e.Kind, e.Name, e.Device)
	if e.From != nil {
		s += fmt.Sprintf(" (from %s)", e.From)
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// OtherSize returns the error of an object that exists with another size.
func OtherSize(have, want int64) error {
	return fmt.Errorf("it has %d bytes, not %d: %w", have, want, ErrConflict)
}
