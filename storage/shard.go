package storage

import (
	"context"

	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Shard is a rank's shard of a committed epoch, open for reading. Bytes come from the nearest level where they are
// intact. Epoch, Level and Sections describe it; ReadAt reads verified bytes of a section; Verify reads and compares
// all of it; Damage lists what another level made good; Close closes the files.
type Shard = fetch.Shard

// SectionInfo describes a section of a shard: its Name, and its Size in bytes.
type SectionInfo = fetch.SectionInfo

// Fetch opens this rank's shard of an epoch at the nearest level that has it. Only
// the index is read now; ReadAt reads the rest. The error says for each level why
// it cannot be used; it matches ErrNotCommitted when the epoch exists at none. The
// caller closes the Shard.
func (s *Store) Fetch(ctx context.Context, e Epoch) (*Shard, error) {
	return s.fetch(ctx, e, s.opt.Rank, s.sources(e, s.opt.Rank, ""))
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
