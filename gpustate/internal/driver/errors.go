package driver

import (
	"errors"
	"fmt"
	"strings"
)

// Conditions that drivers report; match with errors.Is.
var (
	// ErrOutOfMemory: the device has no room for the object.
	ErrOutOfMemory = errors.New("out of device memory")
	// ErrDeviceLost: the device is gone or its context is broken.
	ErrDeviceLost = errors.New("device lost")
	// ErrUnsupported: the device or API cannot do this.
	ErrUnsupported = errors.New("not supported by this device")
	// ErrNoSource: a program has no source in a form that the driver takes.
	ErrNoSource = errors.New("program has no source for this API")
	// ErrArgNotSet: a kernel is launched with an argument that was never set.
	ErrArgNotSet = errors.New("kernel argument was never set")
	// ErrKernelFault: a kernel touched memory that is not its own, or needs more registers or local memory than the
	// device has. Its results are undefined.
	ErrKernelFault = errors.New("a kernel failed: did it read or write out of bounds?")
	// ErrHidden: the program keeps data where neither a capture nor a move reaches it.
	ErrHidden = errors.New("the program keeps data outside memory objects, where checkpoints cannot save it")
	// ErrNoKernel: the program has no kernel of that name.
	ErrNoKernel = errors.New("no kernel of that name")
)

// CallError is the failure of one call of a GPU API.
type CallError struct {
	Call string // the API's name for the call
	Code int    // the API's number
	Text string // the API's name for the number
	Kind error  // one of the sentinels, or nil
}

// Error names the call, and the code that it returned.
func (e *CallError) Error() string {
	return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code)
}

// Unwrap gives the sentinel, so that errors.Is finds it.
func (e *CallError) Unwrap() error { return e.Kind }

// CommandError is a command that failed after the call that issued it had
// returned.
type CommandError struct {
	Command string // "launch of kernel \"step\""
	Err     error
}

// Error names the command and the cause.
func (e *CommandError) Error() string { return e.Command + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.Err }

// WithLog returns an error and the first line that a compiler or loader had to say to it.
func WithLog(err error, log string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(log), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return err.Error()
	}
	return err.Error() + ": " + line
}

// BuildError is a program that did not build.
type BuildError struct {
	Program string // the program's name in the user's code
	Device  Info
	Options string
	Log     string // the compiler's own words
	Err     error
}

// Error names the program, its options, and the compiler's log.
func (e *BuildError) Error() string {
	return fmt.Sprintf("build program %q for %s with options %q: %v\n%s",
		e.Program, e.Device, e.Options, e.Err, e.Log)
}

// Unwrap returns the cause.
func (e *BuildError) Unwrap() error { return e.Err }

// NoLibrary returns the error of an API whose library is not on this machine: files were tried, the last with err.
func NoLibrary(api string, files []string, err error) error {
	return fmt.Errorf("%s is not on this machine: tried %v: %w", api, files, err)
}
