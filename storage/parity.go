package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// parityPlaces is where a store has the parts of parity groups from.
type parityPlaces struct {
	s *Store
	l *levelState // parity
}

func (p *parityPlaces) Manifest(ctx context.Context, e Epoch) (*format.Manifest, error) {
	return p.s.manifestOf(ctx, p.l, e)
}

func (p *parityPlaces) Member(ctx context.Context, e Epoch, info ShardInfo) (*shard.Extent, error) {
	return p.s.openMember(ctx, e, info)
}

// Row opens a row of the committed stripe wherever it lies.
func (p *parityPlaces) Row(ctx context.Context, e Epoch, id redundancy.RowID, record []byte) (*shard.Copy, error) {
	return eachDir(ctx, p.s, p.l, e,
		func(h *redundancy.Holding) bool { return slices.Contains(h.Rows, id) },
		func(d *level.Dir) (*shard.Copy, error) { return openRow(d, e, id, record) })
}

func openRow(d *level.Dir, e Epoch, id redundancy.RowID, want []byte) (*shard.Copy, error) {
	f, file, err := d.Open(e, format.RowName(id.Rank, id.J))
	if err != nil {
		return nil, err
	}
	c, err := shard.OpenFile(file, f)
	if err == nil {
		err = redundancy.IsRow(c, want)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return c, nil
}

// parityState says why this rank's shard cannot be computed: a cheap look at
// what is there, not at whether it is good.
func (s *Store) parityState(l *levelState, m *format.Manifest) error {
	local, err := s.at(LevelLocal)
	if err != nil {
		return err
	}
	return redundancy.Computable(m, s.opt.Rank, func(rank int) bool {
		return s.isThere(local, m.Epoch, format.ShardName(rank),
			func(h *redundancy.Holding) bool { return h.HasShard(rank) })
	}, func(id redundancy.RowID) bool {
		return s.isThere(l, m.Epoch, format.RowName(id.Rank, id.J), func(h *redundancy.Holding) bool {
			return slices.Contains(h.Rows, id)
		})
	})
}

// isThere looks for a file in the own directory and in what is known of others.
func (s *Store) isThere(l *levelState, e Epoch, name string, match func(h *redundancy.Holding) bool) bool {
	return l.Has(e, name) || len(s.holders(l.Name, e, match)) > 0
}

// openMember opens the local shard of a member of a group: here, at the rank
// itself, or at who is known to have it.
func (s *Store) openMember(ctx context.Context, e Epoch, info ShardInfo) (*shard.Extent, error) {
	local, err := s.at(LevelLocal)
	if err != nil {
		return nil, err
	}
	return eachDir(ctx, s, local, e,
		func(h *redundancy.Holding) bool { return h.HasShard(info.Rank) },
		func(d *level.Dir) (*shard.Extent, error) { return d.OpenCommitted(e, info) }, info.Rank)
}

// eachDir tries the own directory of a level, then those of the ranks in also,
// then those that are known to match, until one opens.
func eachDir[T any](ctx context.Context, s *Store, l *levelState, e Epoch, match func(h *redundancy.Holding) bool,
	open func(d *level.Dir) (T, error), also ...int) (T, error) {
	x, err := open(&l.Dir)
	if err == nil || s.opt.Transport == nil {
		return x, err
	}
	ranks := append(slices.Clone(also), s.holders(l.Name, e, match)...)
	for i, r := range ranks {
		if r == s.opt.Rank || slices.Contains(ranks[:i], r) {
			continue
		}
		d, f := s.peerDir(context.WithoutCancel(ctx), r, l.Name)
		x, perr := open(d)
		f.Close()
		if perr == nil {
			return x, nil
		}
		if ctx.Err() != nil {
			return x, ctx.Err()
		}
		err = errors.Join(err, perr)
	}
	return x, err
}

// flushParity encodes the stripe of this rank: it reads a segment of the local
// shard of each data member and writes the rows to the parity members. The
// local shards of all ranks are committed.
func (s *Store) flushParity(ctx context.Context, e Epoch, to *levelState) (info ShardInfo, err error) {
	local, err := s.at(LevelLocal)
	if err != nil {
		return info, err
	}
	m, err := s.manifestOf(ctx, local, e)
	if err != nil {
		return info, err
	}
	st, err := redundancy.StripeFor(s.opt.Nodes, to.cfg.Data, to.cfg.Parity, s.opt.Rank)
	if err != nil {
		return info, err
	}
	g := redundancy.NewGroup(m, st)
	all := make([]int, g.M)
	for j := range all {
		all[j] = j
	}
	if err := s.encodeStripe(ctx, e, g, m, to, all); err != nil {
		return info, err
	}
	info = m.Shards[s.opt.Rank]
	info.Node = s.opt.Nodes[s.opt.Rank]
	info.Holders = nil
	for _, r := range g.Group {
		if r != s.opt.Rank {
			info.Holders = append(info.Holders, s.opt.Nodes[r])
		}
	}
	return info, nil
}

// encodeStripe computes the rows of g and writes those called for to their
// members.
func (s *Store) encodeStripe(ctx context.Context, e Epoch, g *redundancy.Group, m *format.Manifest, to *levelState,
	rows []int) error {
	done, err := s.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	return redundancy.Encode(ctx, &parityPlaces{s, to}, m, g, s.opt.FlushCores, rows,
		func(ctx context.Context, j int, secs []Section) error { return s.writeRow(ctx, e, g, j, secs, to) })
}

// writeRow writes row j to its member.
func (s *Store) writeRow(ctx context.Context, e Epoch, g *redundancy.Group, j int, secs []Section,
	to *levelState) (err error) {
	holder := g.Group[g.Row(j)]
	d := &to.Dir
	if holder != s.opt.Rank {
		remote, f := s.peerDir(ctx, holder, to.Name)
		defer func() { err = errors.Join(err, f.Close()) }()
		d = remote
	}
	spec := s.spec(e, s.opt.Rank, secs)
	spec.Name = format.RowName(s.opt.Rank, j)
	if err := d.EnsureEpoch(e); err != nil {
		return d.Unusable(err)
	}
	if err := d.CheckSpace(spec); err != nil {
		return err
	}
	if _, _, err = s.writeOut(ctx, d, spec, s.throttle(to)); err != nil {
		return fmt.Errorf("parity row %d at rank %d: %w", j, holder, err)
	}
	return nil
}

// verifyRow reads a whole file with a parity row.
func verifyRow(ctx context.Context, d *level.Dir, m *format.Manifest, id redundancy.RowID) (faults []error, err error) {
	st, err := redundancy.StripeIn(m, id.Rank)
	if err != nil {
		return []error{err}, nil
	}
	c, err := openRow(d, m.Epoch, id, redundancy.NewGroup(m, st).Record)
	if err != nil {
		return []error{err}, ctx.Err()
	}
	faults, err = c.Verify(ctx)
	return faults, errors.Join(err, c.Close())
}
