package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

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
