package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Rebuild makes this rank's part of a committed epoch whole again at a level,
// after nodes were lost or ranks placed elsewhere: its shard and the manifest in
// its own directory at local; the copies on other nodes at partner; the rows of
// its stripe at parity. All ranks call it level by level, local before parity.
// What is there already is left alone. At other levels there is nothing to
// rebuild from.
func (s *Store) Rebuild(ctx context.Context, e Epoch, level string) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	l, err := s.at(level)
	if err != nil {
		return err
	}
	m, err := s.manifestOf(ctx, l, e)
	if err == nil {
		defer s.hold(append(m.Origins(), e)...)()
		switch l.Name {
		case LevelLocal:
			err = s.rebuildShard(ctx, m, &l.Dir, l)
		case LevelPartner:
			err = s.rebuildCopies(ctx, m, l)
		case LevelParity:
			err = s.rebuildRows(ctx, m, l)
		default:
			err = fmt.Errorf("level %s has no redundancy to rebuild", l.Name)
		}
	}
	return s.fault("rebuild", e, level, err)
}

// rebuildShard puts this rank's shard, what it refers to, and the manifest into
// d, the own directory or that of another rank.
func (s *Store) rebuildShard(ctx context.Context, m *format.Manifest, d *level.Dir, l *levelState) error {
	info, err := m.Shard(s.opt.Rank)
	if err != nil {
		return err
	}
	for _, o := range info.Origins {
		om, err := s.manifestOf(ctx, l, o)
		if err != nil {
			return fmt.Errorf("epoch %d holds chunks of it: %w", o, err)
		}
		if err := s.rebuildOne(ctx, om, d, l); err != nil {
			return err
		}
	}
	return s.rebuildOne(ctx, m, d, l)
}

func (s *Store) rebuildOne(ctx context.Context, m *format.Manifest, d *level.Dir, l *levelState) error {
	rank := s.opt.Rank
	if err := d.EnsureEpoch(m.Epoch); err != nil {
		return d.Unusable(err)
	}
	x, err := d.OpenCommitted(m.Epoch, m.Shards[rank])
	if err == nil {
		err = x.Close()
	} else {
		err = s.copyBack(ctx, m, d, l)
	}
	if err != nil {
		return err
	}
	return d.Commit(m, rank)
}

// copyBack copies the bytes of the committed shard, as they are, from wherever
// the same bytes can be had.
func (s *Store) copyBack(ctx context.Context, m *format.Manifest, d *level.Dir, l *levelState) error {
	want := m.Shards[s.opt.Rank]
	err := errNoMore
	for _, from := range s.sources(m.Epoch, want.Rank, l.Name) {
		c, oerr := shard.Open(ctx, from, m.Epoch, want.Rank)
		if oerr == nil && c.At.Info.Index != want.Index {
			oerr = errors.Join(errors.New("that copy is stored differently"), c.Close())
		}
		if oerr == nil {
			oerr = errors.Join(s.copyBytes(ctx, c, d, s.throttle(l)), c.Close())
		}
		if oerr == nil || ctx.Err() != nil {
			return oerr
		}
		err = errors.Join(err, s.fault("fetch", m.Epoch, from.LevelName(), oerr))
	}
	return err
}

// copyBytes copies a shard byte by byte and publishes it when all that was
// written has been read back and verified.
func (s *Store) copyBytes(ctx context.Context, c *shard.Copy, d *level.Dir, t *shard.Throttle) error {
	done, err := s.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	e, n := c.Index.Epoch, c.At.N
	err = d.Create(e, format.ShardName(c.Index.Rank), func(f vfs.File) error {
		w := shard.NewWriter(ctx, f, s.pool, t)
		if err := s.copyBlocks(ctx, c.At, w); err != nil {
			w.Abort()
			return err
		}
		if err := w.Finish(); err != nil {
			return err
		}
		back, err := shard.OpenFile(c.At.Name+" (copy)", f)
		if err != nil {
			return err
		}
		return back.VerifyOwn(ctx)
	})
	return d.SpaceError(err, n)
}

func (s *Store) copyBlocks(ctx context.Context, x *shard.Extent, w *shard.Writer) error {
	for off := int64(0); off < x.N; off += shard.BlockBytes {
		l, err := s.pool.Lease(ctx)
		if err != nil {
			return err
		}
		p := l.Buf[:min(shard.BlockBytes, x.N-off)]
		if err = format.ReadFull(x, p, off); err == nil {
			err = w.Append(p, l)
		}
		l.Drop()
		if err != nil {
			return err
		}
	}
	return nil
}

// rebuildCopies brings the copies to the ranks that are the partners now.
func (s *Store) rebuildCopies(ctx context.Context, m *format.Manifest, l *levelState) error {
	ranks, err := redundancy.Partners(s.opt.Nodes, s.opt.Rank, l.cfg.Copies)
	if err != nil {
		return err
	}
	for _, r := range ranks {
		d, f := s.peerDir(ctx, r, l.Name)
		err := s.rebuildShard(ctx, m, d, l)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("copy to rank %d on node %s: %w", r, s.opt.Nodes[r], err)
		}
	}
	// The own directory takes part in the epoch as well.
	return s.rebuildManifest(m, &l.Dir)
}

// rebuildManifest puts the manifest into a directory that may hold no shard.
func (s *Store) rebuildManifest(m *format.Manifest, d *level.Dir) error {
	if err := d.EnsureEpoch(m.Epoch); err != nil {
		return d.Unusable(err)
	}
	return d.PublishManifest(m)
}

// rebuildRows encodes again the rows of this rank's stripe that are not to be
// had, in the groups of the manifest, also for the epochs that it refers to.
func (s *Store) rebuildRows(ctx context.Context, m *format.Manifest, l *levelState) error {
	for _, o := range m.Origins() {
		om, err := s.manifestOf(ctx, l, o)
		if err == nil {
			err = s.rebuildStripe(ctx, om, l)
		}
		if err != nil {
			return fmt.Errorf("epoch %d holds chunks of it: %w", o, err)
		}
	}
	return s.rebuildStripe(ctx, m, l)
}

func (s *Store) rebuildStripe(ctx context.Context, m *format.Manifest, l *levelState) error {
	st, err := redundancy.StripeIn(m, s.opt.Rank)
	if err != nil {
		return err
	}
	g := redundancy.NewGroup(m, st)
	var missing []int
	for j := range g.M {
		id := redundancy.RowID{Rank: s.opt.Rank, J: j}
		c, err := eachDir(ctx, s, l, m.Epoch, func(*redundancy.Holding) bool { return false },
			func(d *level.Dir) (*shard.Copy, error) { return openRow(d, m.Epoch, id, g.Record) }, g.Group[g.Row(j)])
		if err != nil {
			missing = append(missing, j)
			continue
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		if err := s.encodeStripe(ctx, m.Epoch, g, m, l, missing); err != nil {
			return err
		}
	}
	return s.rebuildManifest(m, &l.Dir)
}
