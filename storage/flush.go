package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/peer"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Flush copies this rank's shard of an epoch that is committed at from to the level to, verified while it is copied, at
// the rate that the level allows. When it returns nil the copy is durable at to and not yet committed there. A chunk
// that is bad at from comes from another level. Parts that an earlier Flush completed are not copied again.
//
// secs may be nil. A caller that still has the sections that were put at from passes them. Flush then takes them from
// memory and compares them with the committed hashes, instead of reading them back. Parity is computed from the shards
// in any case.
//
// All ranks flush their shards, in any order, and then vote and Commit. Chunks that the last epoch at to has are not
// written again. The rate is LevelConfig.BytesPerSec. Errors are those of Fetch and Put.
func (s *Store) Flush(ctx context.Context, e Epoch, from, to string, secs []Section) (info ShardInfo, err error) {
	err = s.flushTo(e, from, to, func(_, l *levelState) (err error) {
		info, err = l.flush(ctx, e, from, secs)
		return err
	})
	return info, err
}

// FlushNode copies the shards of several ranks, those of a node, to the
// directory of a level, packed into few large files. Apart from that it is like
// Flush; the shards come from the level from, whose directory the ranks share
// or which is reached through the Transport. One rank of each node calls it for
// all, or another if that one dies; packs that are complete are not written
// again. The result is in the order of ranks.
func (s *Store) FlushNode(ctx context.Context, e Epoch, from, to string, ranks []int) (infos []ShardInfo, err error) {
	err = s.flushTo(e, from, to, func(_, l *levelState) (err error) {
		if l.Traits().WrittenByOthers {
			return errNoPacks(to)
		}
		copied, err := s.copyRanks(ctx, e, from, ranks, &copying{to: l, dir: l, packed: true})
		if err != nil {
			return err
		}
		infos = make([]ShardInfo, len(ranks))
		for _, info := range copied {
			infos[slices.Index(ranks, info.Rank)] = info
		}
		return nil
	})
	return infos, err
}

func errNoPacks(level string) error {
	return &OptionError{Field: "Levels", Reason: "level " + level + " takes no packs; call Flush on every rank"}
}

// flushTo is the frame of every flush of an epoch to a level.
func (s *Store) flushTo(e Epoch, from, to string, do func(from, to *levelState) error) error {
	return s.on("flush", e, to, func(l *levelState) error {
		first, err := s.at(from)
		if err != nil {
			return err
		}
		defer s.catalog.Use(e)()
		return do(first, l)
	})
}

// copyRanks copies the shards of ranks, which it opens for c.
func (s *Store) copyRanks(ctx context.Context, e Epoch, from string, ranks []int, c *copying) (infos []ShardInfo,
	err error) {
	defer func() {
		for _, sh := range c.shards {
			err = errors.Join(err, sh.Close())
		}
	}()
	for _, r := range ranks {
		sh, err := s.fetch(ctx, e, r, s.sources(e, r, from))
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		c.shards = append(c.shards, sh)
	}
	return s.copyShards(ctx, c)
}

// ServeFromMemory serves reads of this rank's shard of a committed epoch from memory, as long as the caller has the
// sections that were put there. The ranks that compute parity need not wait for the disk. The level is local: another
// is an *OptionError. The sections must not change before release returns, which waits for reads under way. Chunks
// whose stored form differs from memory are read from disk. It reads the shard's index, and copies no section.
func (s *Store) ServeFromMemory(ctx context.Context, e Epoch, level string, secs []Section) (release func(),
	err error) {
	err = s.on("fetch", e, level, func(l *levelState) error {
		if l.memory == nil {
			return &OptionError{Field: "Levels", Reason: "level " + level + " is not read by other ranks"}
		}
		c, err := shard.Open(ctx, fetch.At(l), e, s.opt.Rank)
		if err != nil {
			return err
		}
		m, err := peer.NewMemShard(c.Index, secs)
		if err = errors.Join(err, c.Close()); err == nil {
			release = l.memory.Serve(c.At.Name, m)
		}
		return err
	})
	return release, err
}

// CopiedTo returns how many bytes this rank has written since Open for copies to a level: how far a Flush is that runs
// alone. It is 0 for a level that the store has not. It reads a counter.
func (s *Store) CopiedTo(level string) int64 {
	l, err := s.at(level)
	if err != nil {
		return 0
	}
	return l.copied.Load()
}

// PauseCopies stops copying between levels from starting further writes until release is called, so that a capture has
// the memory and the cores. It does not affect Put. It does not wait for writes under way.
func (s *Store) PauseCopies() (release func()) { return s.pause.Begin() }

func (s *Store) throttle(to *levelState) *shard.Throttle {
	return &shard.Throttle{Pace: to.pace, Pause: &s.pause, Copied: &to.copied}
}
