package format

import (
	"errors"
	"fmt"
	"math"
)

// ErrCorrupt marks bytes that were read back and differ from those written.
var ErrCorrupt = errors.New("corrupt checkpoint data")

// CorruptError has the place of bytes that differ from those written. It matches ErrCorrupt.
type CorruptError struct {
	File   string // path, as opened
	Off    int64  // first byte that was checked
	Len    int64  // its length; 0 when unknown
	Reason string
}

// Error names the file and the damaged bytes.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: %s, bytes [%d,%d): %s", ErrCorrupt, e.File, e.Off, e.Off+e.Len, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// VersionError reports a record of a format version that this build does not
// know. The remedy is a newer build.
type VersionError struct {
	File  string
	What  string // "shard", "manifest", ...
	Have  int
	Known int
}

// Error gives both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%s: %s has format version %d, this build reads up to %d: use a newer holdfast",
		e.File, e.What, e.Have, e.Known)
}

// TooLarge refuses something larger than the format can hold, before it is written.
func TooLarge(what string, have, most int64, remedy string) error {
	return fmt.Errorf("%s: %d exceeds the format's limit of %d: %s", what, have, most, remedy)
}

// MaxNameLen bounds the name of a section, a job, a node.
const MaxNameLen = math.MaxUint16
