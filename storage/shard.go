package storage

import (
	"context"

	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Shard is a rank's shard of a committed epoch, open for reading. Bytes come from the nearest level where they are
// intact.
//
//	func Epoch() Epoch
//	func Level() string           // from which it is read first
//	func Sections() []SectionInfo // in the order in which they were put
//	func Rank() int
//	func Digest() [16]byte        // of what it says, as in its entry of the manifest
//	func Layout() *Layout         // what it has of global arrays; nil: none
//
//	// ReadAt fills dst with verified bytes of a section from off on. A chunk that is bad at one level comes
//	// from the next; the error matches ErrCorrupt when none has it. dst is undefined after an error.
//	func ReadAt(ctx context.Context, name string, dst []byte, off int64) error
//	// Verify reads sections, or with no name the whole shard, and throws them away.
//	func Verify(ctx context.Context, names ...string) error
//	// VerifyMemory checks every byte of a shard whose Level is SourceMemory, where it lies. The error names what
//	// is damaged. Cost: none, if MemoryShard.Verify was called.
//	func VerifyMemory() error
//	// View returns a section where it lies in memory, after VerifyMemory; nil if it has to be read.
//	func View(name string) []byte
//	// Damage lists the damage found so far that an outer level made good.
//	func Damage() []error
//	// Close closes the files. Further calls do nothing.
//	func Close() error
type Shard = fetch.Shard

// SectionInfo describes a section of a shard: its Name, and its Size in bytes.
type SectionInfo = fetch.SectionInfo

// Fetch opens this rank's shard of an epoch at the nearest level that has it. Only
// the index is read now; ReadAt reads the rest. The error says for each level why
// it cannot be used; it matches ErrNotCommitted when the epoch exists at none. The
// caller closes the Shard.
func (s *Store) Fetch(ctx context.Context, e Epoch) (*Shard, error) {
	return s.fetch(ctx, e, s.opt.Rank, s.nearest(e))
}

func (s *Store) fetch(ctx context.Context, e Epoch, rank int, from []shard.Source) (*Shard, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	release := s.hold(e)
	sh, err := fetch.Open(ctx, s.log, e, rank, from)
	if err != nil {
		release()
		leave()
		return nil, err
	}
	origins := s.hold(fetch.IndexOf(sh).Origins()...)
	fetch.OnClose(sh, func() { release(); origins(); leave() })
	return sh, nil
}
