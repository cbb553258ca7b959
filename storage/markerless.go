package storage

import "fmt"

// MarkerError says that the file which names a directory's job is damaged or
// missing, and that the manifests there say the same of it. The next run of the
// job writes it again.
type MarkerError struct {
	Dir string
	Err error
}

func (e *MarkerError) Error() string {
	return fmt.Sprintf("directory %s: %s cannot be used (%v); the job is known from the manifests, and its next run "+
		"writes the file again", e.Dir, markerName, e.Err)
}

func (e *MarkerError) Unwrap() error { return e.Err }
