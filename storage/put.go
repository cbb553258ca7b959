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

// Put writes this rank's shard of an epoch at a level. When it returns nil the shard is durable under its final name;
// the epoch does not exist there before Commit. Sources must not change meanwhile. A shard that an earlier attempt left
// uncommitted is replaced; a committed epoch is not (ErrCommitted). After an error nothing of the shard is left, and
// older epochs are unaffected. A full level is a *SpaceError, a shard that could not be read back is refused.
//
// All ranks put their shards, in any order, and then vote. Each byte is read at most once, and written once unless the
// last committed epoch has the same chunk (see LevelConfig.Full). File and directory are synced before Put returns.
// Memory of a Slicer is written from where it lies.
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
	err = d.Put(spec.Head.Epoch, spec.FileName(), fetch.RoomOf(spec), func(f vfs.File) (err error) {
		info, idx, err = shard.WriteShard(ctx, f, s.pools.Own, t, spec)
		return err
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
