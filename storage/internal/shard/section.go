package shard

import (
	"errors"
	"io"
)

// Section is a named run of bytes to be put into a shard.
type Section struct {
	Name   string
	Size   int64       // bytes; Source yields exactly as many
	Source io.ReaderAt // may also be a Slicer
}

// Slicer is a Source whose bytes lie in memory already. They are then written
// from where they are; with page-aligned memory nothing is copied.
type Slicer interface {
	// Slice returns n bytes at off, which must stay as they are until Put
	// returns. Nil means that this range has to be read.
	Slice(off int64, n int) []byte
}

// Bytes is a Source over memory of the caller.
type Bytes []byte

// ReadAt copies from b.
func (b Bytes) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= int64(len(b)) {
		return 0, io.EOF
	}
	n := copy(p, b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Slice returns a part of b.
func (b Bytes) Slice(off int64, n int) []byte { return b[off : off+int64(n)] }

// ErrNoSection marks a section name that the shard does not have.
var ErrNoSection = errors.New("no such section")
