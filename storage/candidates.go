package storage

import (
	"cmp"
	"context"
	"errors"
	"slices"
)

// Candidate is an epoch that this rank can restore.
type Candidate struct {
	Epoch  Epoch
	ID     [16]byte // identifies what was committed; ranks must agree on it too
	Levels []string // nearest first
}

// LevelState says how an epoch stands at one level, for one rank.
type LevelState struct {
	Epoch Epoch
	Level string
	ID    [16]byte
	Shard ShardInfo // valid when Err is nil
	Err   error     // why the level does not serve; ErrNotCommitted: no manifest
}

// Candidates lists the epochs with a manifest from which this rank's shard can
// be had, newest first, by cheap checks: the manifest, the length of the shard
// and its footer. Reading may still find damage.
func (s *Store) Candidates(ctx context.Context) ([]Candidate, error) {
	states, err := s.Survey(ctx)
	if err != nil {
		return nil, err
	}
	var out []Candidate
	for _, st := range states {
		if st.Err != nil {
			if !errors.Is(st.Err, ErrNotCommitted) {
				s.log.Warn("epoch cannot be had from a level", "epoch", st.Epoch, "level", st.Level, "err", st.Err)
			}
			continue
		}
		i := slices.IndexFunc(out, func(c Candidate) bool { return c.Epoch == st.Epoch && c.ID == st.ID })
		if i < 0 {
			out = append(out, Candidate{Epoch: st.Epoch, ID: st.ID})
			i = len(out) - 1
		}
		out[i].Levels = append(out[i].Levels, st.Level)
	}
	return out, nil
}

// Survey says how every epoch found at any level stands there, newest epoch
// first and levels nearest first.
func (s *Store) Survey(ctx context.Context) ([]LevelState, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	var out []LevelState
	for _, l := range s.levels {
		epochs, err := l.epochs()
		if err != nil {
			return nil, err
		}
		for _, e := range epochs {
			st, err := s.stateAt(ctx, l, e)
			if err != nil {
				return nil, err
			}
			out = append(out, st)
		}
	}
	slices.SortStableFunc(out, func(a, b LevelState) int { return cmp.Compare(b.Epoch, a.Epoch) })
	return out, nil
}

// stateAt looks at one epoch of one level. Its own error is the context's.
func (s *Store) stateAt(ctx context.Context, l *level, e Epoch) (LevelState, error) {
	st := LevelState{Epoch: e, Level: l.name}
	if err := ctx.Err(); err != nil {
		return st, err
	}
	m, err := l.readManifest(e)
	if err != nil {
		st.Err = err
		return st, nil
	}
	st.ID = m.id()
	if m.size != s.opt.Size {
		st.Err = &SizeError{Level: l.name, Dir: l.path, Have: m.size, Want: s.opt.Size}
		return st, nil
	}
	if m.job != s.opt.Job {
		st.Err = &JobError{Level: l.name, Dir: l.path, Have: m.job, Want: s.opt.Job}
		return st, nil
	}
	st.Shard = m.shards[s.opt.Rank]
	st.Err = l.probe(m, s.opt.Rank)
	return st, nil
}

// probe checks length and footer of a shard.
func (d *levelDir) probe(m *manifest, rank int) (err error) {
	x, err := d.locateIn(m, rank)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	_, err = x.footer(m.epoch, rank)
	return err
}

// Highest is the greatest epoch number that any level of this rank has seen,
// committed or not; 0 when there is none. The next epoch must be greater than
// that of every rank.
func (s *Store) Highest(ctx context.Context) (Epoch, error) {
	states, err := s.Survey(ctx)
	if err != nil || len(states) == 0 {
		return 0, err
	}
	return states[0].Epoch, nil
}
