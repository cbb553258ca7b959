package storage

import (
	"context"
	"errors"
	"maps"

	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// What the ranks of a job have agreed on. A manifest in this rank's directory
// does not say that the other ranks have theirs: one of them may have failed to
// write it, and then its vote has failed the epoch. Keep rules count only epochs
// that all ranks have, so that all keep the same ones:
//
//  1. After Commit the ranks tell each other whether it worked, and what is
//     Present in their directories.
//  2. If it worked for all, each calls Committed and Agree with what all have.
//  3. If not, each calls Withdraw. Nothing will refer to the epoch, and Prune
//     removes it once a later one was agreed on.
//
// A program of one rank, or one that does not vote, needs none of this: then
// every readable manifest counts. Once there was a vote at any level, nothing counts
// at a level that other ranks have directories of and that has had none yet: what
// is there is from an earlier run, which may have died between two manifests.
type agreement struct {
	all    map[Epoch]bool // that all ranks have; nil: nobody has said
	unsure map[Epoch]bool // committed by this rank, not yet by all
	failed map[Epoch]bool // given up by a vote
	newest Epoch          // that all have said yes to
}

func newAgreement() agreement {
	return agreement{unsure: map[Epoch]bool{}, failed: map[Epoch]bool{}}
}

// committed notes the yes of all ranks.
func (a *agreement) committed(e Epoch) {
	a.newest = max(a.newest, e)
	delete(a.unsure, e)
	delete(a.failed, e)
	if a.all != nil {
		a.all[e] = true
	}
	// Epochs of a level come one after the other: the vote on an earlier one is
	// over, and was not a yes.
	for x := range a.unsure {
		if x < e {
			delete(a.unsure, x)
			a.failed[x] = true
		}
	}
}

func (a *agreement) clone() agreement {
	return agreement{all: maps.Clone(a.all), unsure: maps.Clone(a.unsure), failed: maps.Clone(a.failed),
		newest: a.newest}
}

// unknown says that nothing is known of what the others have.
func (a *agreement) unknown() bool { return a.all == nil && a.newest == 0 }

// counts says whether all ranks have an epoch, as far as this one knows.
func (a *agreement) counts(e Epoch) bool {
	voting := a.newest > 0
	return !a.failed[e] && !(voting && a.unsure[e]) && (a.all == nil || a.all[e])
}

// Committed records that all ranks have committed an epoch at a level. Later shards
// of this rank then refer to its chunks, also where the ranks share the directory
// and another rank wrote the manifest.
func (s *Store) Committed(e Epoch, level string) error {
	l, err := s.at(level)
	if err != nil {
		return err
	}
	s.votes.Store(true)
	s.committed(l, e)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.agreed.committed(e)
	return nil
}

// Withdraw notes that a vote has failed an epoch which this rank may have
// committed at a level: it does not count, and no later shard refers to it.
func (s *Store) Withdraw(e Epoch, level string) error {
	l, err := s.at(level)
	if err != nil {
		return err
	}
	s.votes.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look = nil
	delete(l.agreed.unsure, e)
	l.agreed.failed[e] = true
	for r, b := range l.base {
		if b.Epoch == e {
			delete(l.base, r)
		}
	}
	delete(l.puts, e)
	delete(l.bases.indices, e)
	if l.last == e {
		l.last = 0 // the next shard is written whole
	}
	s.forgetUnseen(l)
	return nil
}

// forgetUnseen makes the next shard whole after an epoch has failed at a level where not
// all ranks look whether the epochs that they refer to are still there: they may have gone.
// The caller holds l.mu.
func (s *Store) forgetUnseen(l *levelState) {
	if s.opt.Together && l.Traits().Shared {
		l.last = 0
		clear(l.base)
	}
}

// Agree tells the store which epochs all ranks have at a level.
func (s *Store) Agree(level string, epochs []Epoch) error {
	l, err := s.at(level)
	if err != nil {
		return err
	}
	s.votes.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.agreed.all = map[Epoch]bool{}
	for _, e := range epochs {
		l.agreed.all[e] = true
	}
	return nil
}

// Present lists the epochs whose manifests can be read in this rank's directory
// of a level, newest first, and no more of them than the keep rules count.
func (s *Store) Present(ctx context.Context, name string) ([]Epoch, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	l, err := s.at(name)
	if err != nil {
		return nil, err
	}
	look, err := level.NewLook(l.Level)
	if err != nil {
		return nil, err
	}
	epochs, err := look.Epochs()
	if err != nil {
		return nil, err
	}
	var out []Epoch
	for _, e := range epochs {
		if len(out) == max(l.cfg.Keep, level.MaxPending) || ctx.Err() != nil {
			break
		}
		_, err := look.ReadManifest(e)
		switch {
		case err == nil:
			out = append(out, e)
		case !errors.Is(err, ErrNotCommitted) && !level.OfOtherRun(err):
			s.log.Warn("holdfast: epoch skipped: its manifest cannot be read", "epoch", e, "level", name, "err", err)
		}
	}
	if s.looksAlone(l) {
		l.setLook(look)
	}
	return out, ctx.Err()
}
