package storage

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/peer"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Holdings describes what this rank's directories have, for the other ranks to
// Learn. Directories that all ranks see, of the level global, are left out.
func (s *Store) Holdings(ctx context.Context) ([]byte, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	var list []redundancy.Holding
	for _, l := range s.levels {
		if l.Traits().Shared {
			continue
		}
		epochs, err := l.Epochs()
		if err != nil && l.out == nil {
			return nil, err
		}
		for _, e := range epochs {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			size := s.opt.Size
			if s.opt.Elastic {
				size = math.MaxInt // shards of ranks that are no more
			}
			h, err := holdingOf(l, e, size)
			if level.OfOtherRun(err) {
				continue // Candidates says so
			}
			if err != nil {
				s.log.Warn("holdfast: epoch not offered to other ranks: it cannot be read", "epoch", e, "level",
					l.Name(), "err", err)
				continue
			}
			h.From = s.opt.Rank
			list = append(list, h)
		}
	}
	return redundancy.EncodeHoldings(list), nil
}

// holdingOf lists what there is. A directory without a manifest counts, and so does one
// whose manifest is damaged: the manifest was written after all shards were durable, by
// one rank after the other, and another rank may have it.
func holdingOf(d level.Epochs, e Epoch, size int) (redundancy.Holding, error) {
	h := redundancy.Holding{Level: d.Name(), Epoch: e}
	m, err := d.ReadManifest(e)
	switch {
	case err == nil:
		h.Id = m.ID()
	case !level.Absent(err) && !errors.Is(err, ErrCorrupt):
		return redundancy.Holding{}, err
	}
	files, err := d.Files(e)
	if err != nil {
		return redundancy.Holding{}, err
	}
	for _, f := range files {
		rank, j, ok := format.ParseName(f.Name)
		switch {
		case !ok || rank >= size:
		case j >= 0:
			h.Rows = append(h.Rows, redundancy.RowID{Rank: rank, J: j})
		default:
			h.Shards = append(h.Shards, rank)
		}
	}
	return h, nil
}

// Learn takes note of what another rank's directories have, so that Candidates and
// Fetch can use them. It replaces what was known of that rank.
func (s *Store) Learn(from int, holdings []byte) error {
	if from == s.opt.Rank {
		return nil
	}
	return s.known.Learn(from, holdings)
}

// holders lists the other ranks that have what match wants, of e at a level.
func (s *Store) holders(l *levelState, e Epoch, match func(h *redundancy.Holding) bool) []int {
	if s.opt.Transport == nil {
		return nil
	}
	return s.known.Holders(l.Name(), e, match)
}

// ownSource is the own directory of a level. A manifest that is missing there
// may be at other ranks: it was written after all shards were durable, wherever
// it is.
type ownSource struct {
	s *Store
	l *levelState
}

func (o *ownSource) Name() string { return o.l.Name() }

func (o *ownSource) Locate(ctx context.Context, e Epoch, rank int) (*shard.Extent, error) {
	if x := o.l.told.at(e); x != nil && x.err == nil && x.shard != nil && rank == o.s.opt.Rank {
		if !o.s.contents.Allows(e, func() [16]byte { return x.id }) {
			return nil, &level.OtherContentsError{File: level.FileOf(o.l, e, format.ManifestName), Epoch: e}
		}
		return level.OpenExtent(o.l, e, x.shard.FileName(), *x.shard)
	}
	m, err := o.s.manifestOf(ctx, o.l, e)
	if err != nil {
		return nil, err
	}
	return level.LocateIn(o.l, m, rank)
}

// peerSource is a level's directory at another rank.
type peerSource struct {
	s    *Store
	l    *levelState
	rank int
}

func (p *peerSource) Name() string { return p.l.Name() }

func (p *peerSource) Locate(ctx context.Context, e Epoch, rank int) (*shard.Extent, error) {
	x, err := p.with(ctx, func(d level.Epochs) (*shard.Extent, error) { return d.Locate(ctx, e, rank) })
	if err == nil || ctx.Err() != nil {
		return x, err
	}
	// The shard may be there all the same, and the manifest elsewhere.
	m, merr := p.s.manifestOf(ctx, p.l, e)
	if merr != nil {
		return nil, err
	}
	return p.with(ctx, func(d level.Epochs) (*shard.Extent, error) { return level.LocateIn(d, m, rank) })
}

// with uses the directory through a connection that ends with the call; files
// that were opened keep their own.
func (p *peerSource) with(ctx context.Context, do func(d level.Epochs) (*shard.Extent, error)) (*shard.Extent, error) {
	// The files outlive this call, and their users pass their own contexts.
	d, f := p.s.peerDir(context.WithoutCancel(ctx), p.rank, p.l)
	x, err := do(d)
	if cerr := f.Close(); cerr != nil && err == nil {
		err = errors.Join(cerr, x.Close())
	}
	if err == nil {
		x.Name = fmt.Sprintf("rank %d:%s", p.rank, x.Name)
	}
	return x, err
}

// sources lists where the shards of e of a rank may be had, nearest level
// first and in each level the own directory first; the level called first comes
// before all.
func (s *Store) sources(e Epoch, rank int, first string) []shard.Source {
	var out, front []shard.Source
	for _, l := range s.levels {
		list := l.sources(e, rank)
		if l.Name() == first {
			front = list
		} else {
			out = append(out, list...)
		}
	}
	return append(front, out...)
}

// manifestOf reads an epoch's manifest of a level from the own directory, or
// from that of another rank which has one. That of the level parity describes the
// shards of the level local, too.
func (s *Store) manifestOf(ctx context.Context, l *levelState, e Epoch) (*format.Manifest, error) {
	m, err := s.manifestAt(ctx, l, e)
	if err == nil || !l.Traits().Data || ctx.Err() != nil {
		return m, err
	}
	rows := s.withTraits(func(t level.Traits) bool { return t.Rows })
	if rows == nil {
		return nil, err
	}
	m, perr := s.manifestAt(ctx, rows, e)
	if perr != nil {
		return nil, err
	}
	return m.OfData(l.Name()), nil
}

func (s *Store) manifestAt(ctx context.Context, l *levelState, e Epoch) (*format.Manifest, error) {
	m, err := l.ReadManifest(e)
	if err == nil {
		return m, nil
	}
	for _, r := range s.holders(l, e, func(h *redundancy.Holding) bool { return h.Id != [16]byte{} }) {
		d, f := s.peerDir(ctx, r, l)
		m, merr := d.ReadManifest(e)
		f.Close()
		if merr == nil {
			return m, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		err = errors.Join(err, merr)
	}
	return nil, err
}

// peerDir is a level's directory at another rank. Its close ends the connection.
func (s *Store) peerDir(ctx context.Context, rank int, l *levelState) (level.Epochs, *peer.FS) {
	f := peer.NewFS(ctx, s.opt.Transport, rank, l.Name())
	return level.NewDir(f, l.Name(), "", rank).Only(&s.contents), f
}
