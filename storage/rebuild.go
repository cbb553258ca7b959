package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Rebuild restores this rank's part of a committed epoch at a level, after nodes were lost or ranks moved. At local
// that is its shard and the manifest in its own directory, at partner the copies on other nodes, at parity the rows of
// its stripe. All ranks call it level by level, local before parity. It does not write parts that are there already.
// Other levels cannot be rebuilt. A lost shard is copied from where it is intact, and read back. If no level has what
// it needs, the error satisfies IsDamage.
func (s *Store) Rebuild(ctx context.Context, e Epoch, level string) error {
	return s.on("rebuild", e, level, func(l *levelState) error {
		m, err := s.catalog.Manifest(ctx, l.Level, e)
		if err != nil {
			return err
		}
		defer s.catalog.Use(append(m.Origins(), e)...)()
		return l.rebuild(ctx, m)
	})
}

// rebuildShard puts this rank's shard, those that it refers to, and the manifest into d, the own directory or that of
// another rank.
func (s *Store) rebuildShard(ctx context.Context, m *format.Manifest, d level.Epochs, l *levelState) error {
	info, err := m.Shard(s.opt.Rank)
	if err != nil {
		return err
	}
	for _, o := range info.Origins {
		om, err := s.catalog.Manifest(ctx, l.Level, o)
		if err != nil {
			return fmt.Errorf("epoch %d holds chunks of it: %w", o, err)
		}
		if err := s.rebuildOne(ctx, om, d, l); err != nil {
			return err
		}
	}
	return s.rebuildOne(ctx, m, d, l)
}

func (s *Store) rebuildOne(ctx context.Context, m *format.Manifest, d level.Epochs, l *levelState) error {
	rank := s.opt.Rank
	if _, err := d.ReadManifest(m.Epoch); errors.As(err, new(*level.OtherContentsError)) || level.OfOtherRun(err) {
		return err // its shards are not ours to replace
	}
	x, err := fetch.OpenCommitted(d, m.Epoch, m.Shards[rank])
	if err == nil {
		err = x.Close()
	} else {
		err = s.copyBack(ctx, m, d, l)
	}
	if err != nil {
		return err
	}
	return d.Commit(m, m.Shards[rank].Origins)
}

// copyBack copies the bytes of the committed shard, as they are, from wherever
// the same bytes can be had.
func (s *Store) copyBack(ctx context.Context, m *format.Manifest, d level.Epochs, l *levelState) error {
	want := m.Shards[s.opt.Rank]
	err := fetch.ErrNoMore
	for _, from := range s.sources(m.Epoch, want.Rank, l.Name()) {
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
		err = errors.Join(err, s.fault("fetch", m.Epoch, from.Name(), oerr))
	}
	return err
}

// copyBytes copies a shard byte by byte and publishes it when all that was
// written has been read back and verified.
func (s *Store) copyBytes(ctx context.Context, c *shard.Copy, d level.Epochs, t *shard.Throttle) error {
	done, err := s.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	return d.Put(c.Index.Epoch, format.ShardName(c.Index.Rank), level.Room{Most: c.At.N}, func(f vfs.File) error {
		if err := shard.CopyTo(ctx, f, s.pools.Own, t, c.At); err != nil {
			return err
		}
		back, err := shard.OpenFile(c.At.Name+" (copy)", f)
		if err != nil {
			return err
		}
		return back.VerifyOwn(ctx)
	})
}
