package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/catalog"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// parityRows is the scheme of levels whose files are rows computed from the shards of a group, which lie at the level
// that has the data.
type parityRows struct {
	s *Store
	l *levelState
}

// data returns the level of the shards.
func (p *parityRows) data() *levelState {
	return p.s.withTraits(func(t level.Traits) bool { return t.Data }) // validateRedundancy asks for it
}

// Manifest makes it a place of parity groups.
func (p *parityRows) Manifest(ctx context.Context, e Epoch) (*format.Manifest, error) {
	return p.s.catalog.Manifest(ctx, p.l.Level, e)
}

// Member opens the shard of a member of a group: here, at the rank itself, or at a rank known to have it.
func (p *parityRows) Member(ctx context.Context, e Epoch, info ShardInfo) (*shard.Extent, error) {
	return eachDir(ctx, p.s, p.data(), e,
		func(h *catalog.Holding) bool { return h.HasShard(info.Rank) },
		func(d level.Epochs) (*shard.Extent, error) { return fetch.OpenCommitted(d, e, info) }, info.Rank)
}

// Row opens a row of the committed stripe wherever it lies.
func (p *parityRows) Row(ctx context.Context, e Epoch, id format.RowID, record []byte) (*shard.Copy, error) {
	return p.row(ctx, e, id, record, func(h *catalog.Holding) bool { return slices.Contains(h.Rows, id) })
}

func (p *parityRows) row(ctx context.Context, e Epoch, id format.RowID, record []byte,
	match func(h *catalog.Holding) bool, also ...int) (*shard.Copy, error) {
	return eachDir(ctx, p.s, p.l, e, match,
		func(d level.Epochs) (*shard.Copy, error) { return redundancy.OpenRow(d, e, id, record) }, also...)
}

func (p *parityRows) sources(Epoch, int) []shard.Source {
	return redundancy.Sources(p, 2*(p.l.cfg.Data+p.l.cfg.Parity))
}

// reachable checks that the files exist, not that they are good.
func (p *parityRows) reachable(_ context.Context, m *format.Manifest, own int) error {
	there := func(l *levelState, name string, match func(h *catalog.Holding) bool) bool {
		_, err := l.Stat(m.Epoch, name)
		return err == nil || len(p.s.catalog.Holders(l.Level, m.Epoch, match)) > 0
	}
	return redundancy.Computable(m, own, func(rank int) bool {
		return there(p.data(), format.ShardName(rank), func(h *catalog.Holding) bool { return h.HasShard(rank) })
	}, func(id format.RowID) bool {
		return there(p.l, format.RowName(id.Rank, id.J), func(h *catalog.Holding) bool {
			return slices.Contains(h.Rows, id)
		})
	})
}

// eachDir tries the own directory of a level, then those of the ranks in also,
// then those that are known to match, until one opens.
func eachDir[T any](ctx context.Context, s *Store, l *levelState, e Epoch, match func(h *catalog.Holding) bool,
	open func(d level.Epochs) (T, error), also ...int) (T, error) {
	x, err := open(l)
	if err == nil || s.opt.Transport == nil {
		return x, err
	}
	ranks := append(slices.Clone(also), s.catalog.Holders(l.Level, e, match)...)
	for i, r := range ranks {
		if r == s.opt.Rank || r >= s.opt.Size || slices.Contains(ranks[:i], r) {
			continue
		}
		d, f := s.catalog.PeerDir(context.WithoutCancel(ctx), r, l.Level)
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

func (p *parityRows) stripe() (redundancy.Stripe, error) {
	return redundancy.StripeFor(p.s.opt.Nodes, p.l.cfg.Data, p.l.cfg.Parity, p.s.opt.Rank)
}

// flush encodes the stripe of this rank: it reads a segment of the local
// shard of each data member and writes the rows to the parity members. The
// local shards of all ranks are committed.
func (p *parityRows) flush(ctx context.Context, e Epoch, _ string, _ []Section) (info ShardInfo, err error) {
	nodes, own := p.s.opt.Nodes, p.s.opt.Rank
	data := p.data()
	m, err := p.s.catalog.Manifest(ctx, data.Level, e)
	if err != nil {
		return info, err
	}
	data.mu.Lock()
	if data.bases.indices[e] != nil {
		data.bases.sent[e] = true // it may be the next base
	}
	data.mu.Unlock()
	st, err := p.stripe()
	if err != nil {
		return info, err
	}
	all := make([]int, st.M)
	for j := range all {
		all[j] = j
	}
	if err := p.encode(ctx, redundancy.NewGroup(m, st), m, all); err != nil {
		return info, err
	}
	info = m.Shards[own]
	info.Node = nodes[own]
	info.Holders = nil
	for _, r := range st.Group {
		if r != own {
			info.Holders = append(info.Holders, nodes[r])
		}
	}
	return info, nil
}

// encode computes the rows of g and writes those called for to their members.
func (p *parityRows) encode(ctx context.Context, g *redundancy.Group, m *format.Manifest, rows []int) error {
	done, err := p.s.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	return redundancy.Encode(ctx, p, m, g, flushCores, rows,
		func(ctx context.Context, j int, secs []Section) error { return p.writeRow(ctx, m.Epoch, g, j, secs) })
}

func (p *parityRows) writeRow(ctx context.Context, e Epoch, g *redundancy.Group, j int, secs []Section) (err error) {
	holder, own := g.Group[g.Row(j)], p.s.opt.Rank
	var d level.Epochs = p.l
	if holder != own {
		remote, f := p.s.catalog.PeerDir(ctx, holder, p.l.Level)
		defer func() { err = errors.Join(err, f.Close()) }()
		d = remote
	}
	spec := p.s.spec(e, own, secs)
	spec.Name = format.RowName(own, j)
	if _, _, err = p.s.writeOut(ctx, d, spec, p.s.throttle(p.l)); err != nil {
		return fmt.Errorf("parity row %d at rank %d: %w", j, holder, err)
	}
	return nil
}

// rebuild encodes again the rows of this rank's stripe that are not to be
// had, in the groups of the manifest, also for the epochs that it refers to.
func (p *parityRows) rebuild(ctx context.Context, m *format.Manifest) error {
	for _, o := range m.Origins() {
		om, err := p.s.catalog.Manifest(ctx, p.l.Level, o)
		if err == nil {
			err = p.rebuildStripe(ctx, om)
		}
		if err != nil {
			return fmt.Errorf("epoch %d holds chunks of it: %w", o, err)
		}
	}
	return p.rebuildStripe(ctx, m)
}

func (p *parityRows) rebuildStripe(ctx context.Context, m *format.Manifest) error {
	own := p.s.opt.Rank
	st, err := redundancy.StripeIn(m, own)
	if err != nil {
		return err
	}
	g := redundancy.NewGroup(m, st)
	var missing []int
	for j := range g.M {
		c, err := p.row(ctx, m.Epoch, format.RowID{Rank: own, J: j}, g.Record,
			func(*catalog.Holding) bool { return false }, g.Group[g.Row(j)])
		if err != nil {
			missing = append(missing, j)
		} else if err := c.Close(); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		if err := p.encode(ctx, g, m, missing); err != nil {
			return err
		}
	}
	return p.l.Commit(m, nil)
}

func (p *parityRows) outside() (out []remoteFile) {
	st, err := p.stripe()
	if err != nil {
		return nil // then nothing was written
	}
	for j := range st.M {
		out = append(out, remoteFile{st.Group[st.Row(j)], format.RowName(p.s.opt.Rank, j)})
	}
	return out
}
