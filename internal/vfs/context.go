package vfs

import "context"

type filesKey struct{}

// With returns a context under which package storage works on files instead of the
// operating system's: for tests, and for the tool's progress bars.
func With(ctx context.Context, files FS) context.Context {
	return context.WithValue(ctx, filesKey{}, files)
}

// From returns the FS of With; nil without one.
func From(ctx context.Context) FS {
	files, _ := ctx.Value(filesKey{}).(FS)
	return files
}

// OrOS is files, or the operating system's where that is nil.
func OrOS(files FS) FS {
	if files == nil {
		return OS{}
	}
	return files
}

// Meter counts bytes that do not go through the FS: those of object stores. An FS may be one.
type Meter interface {
	Moved(read, written int64)
}
