package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Layout is what one rank's shard has of global arrays. A program hands it to Put as the section LayoutSection,
// encoded; the manifests of the epoch repeat it.
type Layout = format.Layout

// LayoutSection is the name of the section of a shard that has its Layout.
const LayoutSection = format.LayoutSection

// Errors of arrays that the ranks do not own each element of once. Commit returns them, and commits nothing.
type (
	HoleError    = layout.HoleError    // no rank owns the elements of a box
	OverlapError = layout.OverlapError // two ranks own the elements of a box
	DiffersError = layout.DiffersError // two ranks describe an array in different ways, or have different values
	ShapeError   = layout.ShapeError   // what a rank declares cannot be
)

// FetchRank is Fetch of the shard of any rank of the epoch, of however many ranks that is.
func (s *Store) FetchRank(ctx context.Context, e Epoch, rank int) (*Shard, error) {
	return s.fetch(ctx, e, rank, s.sources(e, rank, ""))
}

// Entries returns what the manifest of an epoch says of all ranks' shards, from the nearest level where it can be
// read. Choose has said which contents the epoch has. The caller must not change it.
func (s *Store) Entries(ctx context.Context, e Epoch) ([]ShardInfo, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	defer s.hold(e)()
	var failed []error
	for _, l := range s.levels {
		m, err := s.manifestOf(ctx, l, e)
		if err == nil && !s.contents.Allows(e, m.ID) {
			err = fmt.Errorf("level %s has other contents of epoch %d: %w", l.Name(), e, ErrNotCommitted)
		}
		if err == nil {
			return m.Shards, nil
		}
		failed = append(failed, err)
	}
	return nil, s.fault("fetch", e, "any", errors.Join(failed...))
}
