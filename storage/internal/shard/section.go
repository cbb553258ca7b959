package shard

import (
	"bytes"
	"errors"
	"io"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
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

// Gathered is a Source whose bytes lie in host memory, but not in their order: ReadAt collects them from there.
type Gathered interface {
	io.ReaderAt
	Gathered()
}

// Comparer is a Source that can tell without reading them which of its chunks have not changed. The chunks of a section
// have format.ChunkBytes bytes, the last one has the rest.
type Comparer interface {
	// UnchangedSince is asked about an epoch that is committed at the level. It gives a function
	// that says of a chunk, by its number, whether it has the bytes that it had in the shard of
	// that epoch, in the section of this name. digest is that of the shard, as Put returned it: an
	// epoch of the same number may have been written twice. Nil: nothing is known.
	//
	// Chunks reported as unchanged are not read and refer to that epoch, so the source must be certain. Now and then
	// such a chunk is read nevertheless, since the epoch that holds it is to be given up or all is to be written
	// (FullEvery): if it differs, Put fails with ErrClaim.
	UnchangedSince(e format.Epoch, digest [16]byte) func(chunk int) bool
}

// ErrClaim marks a chunk whose source said that it had not changed, and that has.
var ErrClaim = errors.New("a chunk that is said to be unchanged has changed")

// Bytes is a Source over memory of the caller.
type Bytes []byte

// ReadAt copies from b.
func (b Bytes) ReadAt(p []byte, off int64) (int, error) { return bytes.NewReader(b).ReadAt(p, off) }

// Slice returns a part of b.
func (b Bytes) Slice(off int64, n int) []byte { return b[off : off+int64(n)] }

// ErrNoSection marks a section name that the shard does not have.
var ErrNoSection = errors.New("no such section")
