package storage

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Put writes this rank's shard of an epoch at a level. When it returns nil the
// shard is durable under its final name; the epoch does not exist there before
// Commit. Sources must not change meanwhile. A shard that an earlier attempt left
// uncommitted is replaced; a committed epoch is not (ErrCommitted). After an error
// nothing of the shard is left, and older epochs are unaffected. A full level is a
// *SpaceError, a shard that could not be read back is refused.
func (s *Store) Put(ctx context.Context, e Epoch, level string, secs []Section) (info ShardInfo, err error) {
	err = s.on("put", e, level, func(l *levelState) (err error) {
		info, err = s.put(ctx, l, s.spec(e, s.opt.Rank, secs))
		return err
	})
	return info, err
}

func (s *Store) put(ctx context.Context, l *levelState, spec *shard.Spec) (info ShardInfo, err error) {
	e := spec.Head.Epoch
	if e == 0 {
		return info, errors.New("epoch 0 is not a valid epoch; they count from 1")
	}
	if err := spec.Fits(); err != nil {
		return info, err
	}
	done, err := s.turn(ctx)
	if err != nil {
		return info, err
	}
	defer done()
	defer s.catalog.Use(e)()
	if err := level.RefuseCommitted(l, e); err != nil {
		return info, err
	}
	l.cfg.compression(spec)
	spec.Whole = l.writesAll(e)
	if !l.cfg.Full {
		spec.Base = s.baseAt(l, spec.Head.Rank, e)
	}
	info, idx, err := s.writeOut(ctx, l, spec, nil)
	if err == nil {
		l.remember(e, idx)
	}
	return info, err
}

// writeOut makes the file of a shard in d, which may be at another rank.
func (s *Store) writeOut(ctx context.Context, d level.Epochs, spec *shard.Spec, t *shard.Throttle) (info ShardInfo,
	idx *format.Index, err error) {
	err = d.Put(spec.Head.Epoch, spec.FileName(), fetch.RoomOf(spec), func(f vfs.File) error {
		return shard.WriteTo(ctx, f, s.pools.Own, t, func(w *shard.Writer) (err error) {
			info, idx, err = shard.Write(ctx, w, spec)
			return err
		})
	})
	return info, idx, err
}

// remember keeps the indices of shards until their epoch is committed.
func (l *levelState) remember(e Epoch, idxs ...*format.Index) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.puts[e] = append(l.puts[e], idxs...)
}

func (s *Store) spec(e Epoch, rank int, secs []Section) *shard.Spec {
	return &shard.Spec{
		Head: format.Header{Epoch: e, Rank: rank, Size: s.opt.Size, Created: time.Now().UnixNano(),
			Job: s.opt.Job, Node: s.opt.Node},
		Sections: secs,
	}
}

// compression sets how the level wants its shards compressed.
func (l *LevelConfig) compression(spec *shard.Spec) {
	switch {
	case l.CompressAlways:
		spec.Compress = shard.CompressAlways
	case l.Compress:
		spec.Compress = shard.CompressIfFaster
	}
}

// writesAll says that the shards of an epoch refer to no other.
func (l *levelState) writesAll(e Epoch) bool {
	return l.cfg.Full || l.cfg.FullEvery > 0 && e%Epoch(l.cfg.FullEvery) == 0
}

// present returns base if all that a shard may refer to through it is still
// there: people remove epochs by hand, and file systems come back empty.
func (s *Store) present(l *levelState, base *format.Index) *format.Index {
	if base == nil || s.opt.Collective && l.Traits().Shared {
		return base // rank 0 finds a missing one when it commits: see refreshBases
	}
	if err := level.CheckOrigins(l, append(base.Origins(), base.Epoch)); err != nil {
		s.log.Warn("holdfast: epoch written in full: an earlier epoch that it would refer to is missing", "level",
			l.Name(), "err", err)
		return nil
	}
	return base
}

// lastCommitted returns the index of rank's newest committed shard before e, or
// nil when there is none to refer to.
func (l *levelState) lastCommitted(rank int, e Epoch) *format.Index {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.base[rank]; b != nil && b.Epoch < e && b.Epoch == l.Newest() {
		return b
	}
	return nil
}

// lastShard is lastCommitted for a directory that several ranks write to: the
// shard may have been written by another one, in this run, and is then read.
func (s *Store) lastShard(ctx context.Context, l *levelState, rank int, e Epoch) *format.Index {
	if l.writesAll(e) {
		return nil
	}
	if b := l.lastCommitted(rank, e); b != nil {
		return s.present(l, b)
	}
	last := l.Newest()
	if last == 0 || last >= e || !l.Traits().Shared {
		return nil
	}
	c, err := shard.Open(ctx, fetch.At(l), last, rank)
	if err != nil {
		s.log.Debug("holdfast: shard written in full: there is no earlier one to refer to", "epoch", last, "rank",
			rank, "level", l.Name(), "err", err)
		return nil
	}
	if err := c.Close(); err != nil || c.Index.Size != s.opt.Size { // one of another number of ranks is no base
		return nil
	}
	return s.present(l, c.Index)
}
