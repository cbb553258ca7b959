package storage

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Put writes this rank's shard of an epoch at a level. When it returns nil the
// shard is durable under its final name; the epoch does not exist there before
// Commit. Sources must not change meanwhile. A shard that an earlier attempt
// left uncommitted is replaced; a committed epoch is not (ErrCommitted). On any
// error nothing of the shard is left, and older epochs are as they were. A full
// level is a *SpaceError, a shard that could not be read back a *LimitError.
func (s *Store) Put(ctx context.Context, e Epoch, level string, secs []Section) (ShardInfo, error) {
	leave, err := s.enter()
	if err != nil {
		return ShardInfo{}, err
	}
	defer leave()
	l, err := s.at(level)
	if err != nil {
		return ShardInfo{}, err
	}
	info, err := s.putShard(ctx, l, s.spec(e, s.opt.Rank, secs), nil)
	return info, s.fault("put", e, level, err)
}

func (s *Store) spec(e Epoch, rank int, secs []Section) *shard.Spec {
	return &shard.Spec{
		Head: format.Header{Epoch: e, Rank: rank, Size: s.opt.Size, Created: time.Now().UnixNano(),
			Job: s.opt.Job, Node: s.opt.Node},
		Sections: secs,
	}
}

// putShard writes, syncs and publishes a shard at l.
func (s *Store) putShard(ctx context.Context, l *levelState, spec *shard.Spec, p *shard.Throttle) (ShardInfo, error) {
	e := spec.Head.Epoch
	if e == 0 {
		return ShardInfo{}, errors.New("epoch 0 is not a valid epoch; they count from 1")
	}
	if err := spec.Fits(); err != nil {
		return ShardInfo{}, err
	}
	done, err := s.turn(ctx)
	if err != nil {
		return ShardInfo{}, err
	}
	defer done()
	defer s.hold(e)()
	if err := l.EnsureEpoch(e); err != nil {
		return ShardInfo{}, l.Unusable(err)
	}
	if err := l.RefuseCommitted(e); err != nil {
		return ShardInfo{}, err
	}
	s.prepareSpec(l, spec)
	if err := l.CheckSpace(spec); err != nil {
		return ShardInfo{}, err
	}
	info, idx, err := s.writeOut(ctx, &l.Dir, spec, p)
	if err != nil {
		return ShardInfo{}, err
	}
	l.remember(e, idx)
	return info, nil
}

// prepareSpec sets how the level wants its shards.
func (s *Store) prepareSpec(l *levelState, spec *shard.Spec) {
	switch {
	case l.cfg.CompressAlways:
		spec.Compress = shard.CompressAlways
	case l.cfg.Compress:
		spec.Compress = shard.CompressIfFaster
	}
	if !l.cfg.Full {
		spec.Base = s.present(l, l.lastCommitted(spec.Head.Rank, spec.Head.Epoch))
	}
}

// present returns base if all that a shard may refer to through it is still
// there: people remove epochs by hand, and file systems come back empty.
func (s *Store) present(l *levelState, base *format.Index) *format.Index {
	if base == nil {
		return nil
	}
	if err := l.CheckOrigins(append(base.Origins(), base.Epoch)); err != nil {
		s.log.Warn("epoch written in full: an earlier epoch that it would refer to is missing", "level", l.Name, "err",
			err)
		return nil
	}
	return base
}

// writeOut writes the shard under a temporary name, syncs it and publishes it
// in d, which may be at another rank.
func (s *Store) writeOut(ctx context.Context, d *level.Dir, spec *shard.Spec, p *shard.Throttle) (ShardInfo,
	*format.Index, error) {
	var info ShardInfo
	var idx *format.Index
	e, name := spec.Head.Epoch, spec.FileName()
	err := d.Create(e, name, func(f vfs.File) (err error) {
		info, idx, err = s.writeTo(ctx, f, spec, p)
		return err
	})
	return info, idx, d.SpaceError(err, spec.Need())
}

// writeTo writes the shard as the whole of f.
func (s *Store) writeTo(ctx context.Context, f vfs.File, spec *shard.Spec, p *shard.Throttle) (ShardInfo, *format.Index,
	error) {
	w := shard.NewWriter(ctx, f, s.pool, p)
	info, idx, err := shard.Write(ctx, w, spec)
	if err != nil {
		w.Abort()
		return info, nil, err
	}
	return info, idx, w.Finish()
}

// remember keeps the index of a shard until its epoch is committed.
func (l *levelState) remember(e Epoch, idx *format.Index) {
	if idx == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.puts[e] = append(l.puts[e], idx)
}

// lastCommitted returns the index of rank's newest committed shard before e, or
// nil when there is none to refer to.
func (l *levelState) lastCommitted(rank int, e Epoch) *format.Index {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.base[rank]; b != nil && b.Epoch < e && b.Epoch == l.last {
		return b
	}
	return nil
}

// lastShard is lastCommitted for a directory that several ranks write to: the
// shard may have been written by another one, in this run, and is then read.
func (s *Store) lastShard(ctx context.Context, l *levelState, rank int, e Epoch) *format.Index {
	if l.cfg.Full {
		return nil
	}
	if b := l.lastCommitted(rank, e); b != nil {
		return s.present(l, b)
	}
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	if last == 0 || last >= e {
		return nil
	}
	c, err := shard.Open(ctx, &l.Dir, last, rank)
	if err != nil {
		s.log.Debug("shard written in full: there is no earlier one to refer to", "epoch", last, "rank", rank, "level",
			l.Name, "err", err)
		return nil
	}
	if err := c.Close(); err != nil {
		return nil
	}
	return s.present(l, c.Index)
}
