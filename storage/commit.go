package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Commit writes the manifest of an epoch into this rank's directory of a level;
// when it returns nil the epoch exists there for good. shards are those of all
// ranks, in any order, and every one must be durable: the caller has voted.
// Every rank whose directory is its own calls Commit, others may: the same
// manifest twice is no error, another one is (ErrCommitted).
func (s *Store) Commit(ctx context.Context, e Epoch, level string, shards []ShardInfo) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	l, err := s.at(level)
	if err != nil {
		return err
	}
	m, err := s.newManifest(e, l, shards)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = l.KeepMarked(s.markerOf(l.Name()))
	}
	if err == nil {
		origins := m.Shards[s.opt.Rank].Origins
		if l.Traits().Shared { // one rank commits for all
			origins = m.Origins()
		}
		err = l.Commit(m, origins)
	}
	if err != nil {
		return s.fault("commit", e, level, err)
	}
	l.committed(e)
	l.mu.Lock()
	if e > l.agreed.newest {
		l.agreed.unsure[e] = true
	}
	l.mu.Unlock()
	s.log.Debug("epoch committed", "epoch", e, "level", level)
	return nil
}

func (s *Store) newManifest(e Epoch, l *levelState, shards []ShardInfo) (*format.Manifest, error) {
	m := &format.Manifest{Epoch: e, Size: s.opt.Size, Job: s.opt.Job, Level: l.Name()}
	if l.Traits().Rows {
		m.Data, m.Parity = l.cfg.Data, l.cfg.Parity
	}
	m.Shards = slices.Clone(shards)
	slices.SortFunc(m.Shards, func(a, b ShardInfo) int { return a.Rank - b.Rank })
	if len(m.Shards) != m.Size {
		return nil, fmt.Errorf("got %d shards, want one from each of %d ranks", len(m.Shards), m.Size)
	}
	for r := range m.Shards {
		if m.Shards[r].Rank != r {
			return nil, fmt.Errorf("no shard of rank %d", r)
		}
	}
	return m, nil
}

func (s *Store) markerOf(level string) format.Marker {
	return format.Marker{Job: s.opt.Job, Size: s.opt.Size, Level: level}
}

// committed makes the shard put for e the one that later ones refer to.
func (l *levelState) committed(e Epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last, e)
	for _, idx := range l.puts[e] {
		if b := l.base[idx.Rank]; b == nil || b.Epoch < e {
			l.base[idx.Rank] = idx
		}
	}
	for old := range l.puts {
		if old <= e {
			delete(l.puts, old)
		}
	}
}

// Discard removes what this rank put of an epoch that was given up, also its
// copies and parity rows at other ranks. A committed epoch is left alone
// (ErrCommitted); Prune removes those, and what lies at ranks that cannot be
// reached.
func (s *Store) Discard(ctx context.Context, e Epoch, level string) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	l, err := s.at(level)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	return s.fault("discard", e, level, s.discard(ctx, e, l))
}

func (s *Store) discard(ctx context.Context, e Epoch, l *levelState) error {
	err := l.Discard(e, format.ShardName(s.opt.Rank))
	if err == nil && l.Traits().Shared {
		err = l.Discard(e, format.PackName(s.opt.Rank))
	}
	for _, c := range l.outside() {
		d, f := s.peerDir(ctx, c.at, l)
		err = errors.Join(err, d.Discard(e, c.name), f.Close())
	}
	l.mu.Lock()
	delete(l.puts, e)
	l.mu.Unlock()
	return err
}
