package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// Commit writes the manifest of an epoch into this rank's directory of a level. When it returns nil, the epoch exists
// there and survives a loss of power. shards has the shards of all ranks, in any order. Every one must be durable: the
// caller has voted. One rank of each directory calls Commit. Others may: the same manifest twice is no error, a
// different one is (ErrCommitted). sharing lists ranks that have put their shards into the same directory and do not
// call it. Epochs that those shards refer to must be there as well.
//
// Cost: one small file for all shards, which is synced with its directory. shards is copied.
func (s *Store) Commit(ctx context.Context, e Epoch, level string, shards []ShardInfo, sharing ...int) error {
	return s.on("commit", e, level, func(l *levelState) error {
		l.DropLook()
		m, err := s.newManifest(e, l, shards)
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if err := s.updateMarker(l); err != nil {
			return err
		}
		origins := m.Shards[s.opt.Rank].Origins
		for _, r := range sharing {
			origins = append(slices.Clip(origins), m.Shards[r].Origins...)
		}
		if l.Traits().Shared { // one rank commits for all
			origins = m.Origins()
		}
		if err := l.Commit(m, origins); err != nil {
			return err
		}
		s.committed(l, e, false)
		s.log.Debug("holdfast: epoch committed", "epoch", e, "level", level)
		return nil
	})
}

func (s *Store) newManifest(e Epoch, l *levelState, shards []ShardInfo) (*format.Manifest, error) {
	m := &format.Manifest{Epoch: e, Size: s.opt.Size, Job: s.opt.Job, Level: l.Name(),
		Run: s.opt.Identity}
	if l.Traits().Rows {
		m.Data, m.Parity = l.cfg.Data, l.cfg.Parity
	}
	if len(shards) != m.Size {
		return nil, fmt.Errorf("got %d shards, want one from each of %d ranks", len(shards), m.Size)
	}
	m.Shards = make([]ShardInfo, m.Size)
	there := make([]bool, m.Size)
	for _, info := range shards {
		if r := info.Rank; r >= 0 && r < m.Size {
			m.Shards[r], there[r] = info, true
		}
	}
	if r := slices.Index(there, false); r >= 0 {
		return nil, fmt.Errorf("no shard of rank %d", r)
	}
	return m, s.checkLayouts(m)
}

// checkLayouts refuses an epoch whose ranks do not own each element of each array once. The levels of an epoch have
// the same layouts, so they are looked at once.
func (s *Store) checkLayouts(m *format.Manifest) error {
	if !m.HasLayouts() {
		return nil
	}
	id := m.ID()
	if last := s.checked.Load(); last != nil && *last == id {
		return nil
	}
	err := m.Check()
	if err == nil {
		s.checked.Store(&id)
	}
	return err
}

func (s *Store) markerOf(level string) format.Marker {
	return format.Marker{Job: s.opt.Job, Size: s.opt.Size, Level: level, Run: s.opt.Identity}
}

// committed makes the shard put for e the one that later ones refer to.
func (s *Store) committed(l *levelState, e Epoch, byAll bool) {
	s.keepBase(l, e)
	l.mu.Lock()
	release := l.disown(e)
	defer release()
	defer l.mu.Unlock()
	l.Committed(e, byAll)
	for _, idx := range l.puts[e] {
		if b := l.base[idx.Rank]; b == nil || b.Epoch < e {
			l.base[idx.Rank] = idx
		}
	}
	maps.DeleteFunc(l.puts, func(old Epoch, _ []*format.Index) bool { return old <= e })
}

// Discard removes this rank's part of an epoch that was given up, including its copies and parity rows at other ranks.
// It refuses a committed epoch (ErrCommitted). Prune removes those, and files that Discard cannot reach. Every rank
// that has put a shard calls it.
func (s *Store) Discard(ctx context.Context, e Epoch, level string) error {
	return s.on("discard", e, level, func(l *levelState) error {
		l.mu.Lock()
		s.refreshBases(l)
		l.mu.Unlock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err := l.Discard(e, format.ShardName(s.opt.Rank))
		if err == nil && l.Traits().Shared {
			err = l.Discard(e, format.PackName(s.opt.Rank))
		}
		for _, c := range l.outside() {
			d, f := s.catalog.PeerDir(ctx, c.at, l.Level)
			err = errors.Join(err, d.Discard(e, c.name), f.Close())
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.puts, e)
		return err
	})
}
