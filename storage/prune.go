package storage

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Prune removes from the named levels, or with no name from all, the epochs that the
// level's rules do not keep, and returns those removed from any level. It keeps at each level
//
//   - the newest Keep committed epochs that all ranks have (see Agree), and
//     every KeepEvery-th;
//   - at a level that all ranks share, those that are to stay (see checkpoints.Keep);
//   - all that hold chunks of an epoch that is kept;
//   - what is in use: held (see Retain), being put, read or rebuilt;
//   - everything newer than the newest committed epoch: it may be in the making.
//
// An epoch that only some ranks have, or whose manifest cannot be read, does not
// count: Prune removes it with the epochs older than the newest Keep. Of those newer
// than all that count which a vote gave up, the newest Keep stay. Epochs without a
// manifest that are older than the newest committed one are garbage; Prune removes
// them too.
//
// With Options.Together rank 0 alone removes epochs from a level that all ranks share: what
// its vote listed, all have agreed on (see Agree). The other ranks do not look there.
//
// Prune continues when it cannot remove something or finds a file that is not part
// of a checkpoint. It leaves that in place and logs it once; the error joins the
// failures. Ranks that share a directory may all call it. Flushes of older epochs
// to a level must have ended or been given up once a newer one is committed there.
func (s *Store) Prune(ctx context.Context, levels ...string) (removed []Epoch, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	looks := map[*levelState]*level.Look{}
	defer func() { s.writeLedgers(looks, levels...) }()
	all := map[Epoch]bool{}
	var problems []error // the other levels must not fill because one is down
	for _, l := range s.working() {
		if !s.looks(l) || !named(levels, l) {
			continue
		}
		if err := s.guard.Again(ctx, l); err != nil {
			problems = append(problems, err)
			continue
		}
		look, err := l.takeLook()
		if err != nil {
			problems = append(problems, err)
			continue
		}
		looks[l] = look
		rules := s.keepRules(l)
		if rules.Kept, err = level.KeptAt(l); err != nil {
			problems = append(problems, err) // what is to stay is not known
			continue
		}
		dead, left, err := level.Prunable(look, rules)
		problems = append(problems, err)
		announced, err := level.Announce(l, dead) // before it is asked again what is to stay
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, e := range dead {
			if err := ctx.Err(); err != nil {
				return format.SortedEpochs(all), errors.Join(err, announced())
			}
			if same, err := level.Unchanged(l, rules.Kept); !same {
				problems = append(problems, err)
				break // the next Prune decides anew
			}
			more, err := look.RemoveEpoch(e)
			left = append(left, more...)
			if err != nil {
				problems = append(problems, s.fault("prune", e, l.Name(), err))
				continue
			}
			all[e] = true
			s.log.Info("holdfast: epoch removed", "epoch", e, "level", l.Name(), "keep", l.cfg.Keep)
		}
		problems = append(problems, announced())
		s.tell(l, left)
	}
	return format.SortedEpochs(all), errors.Join(problems...)
}

// named says whether a level is among those named; with no name all are.
func named(levels []string, l *levelState) bool {
	return len(levels) == 0 || slices.Contains(levels, l.Name())
}

// looks says whether this rank looks into the level's directory at all; see
// Options.Together.
func (s *Store) looks(l *levelState) bool {
	return !s.opt.Together || !l.Traits().Shared || s.opt.Rank == 0
}

// looksAlone says that this rank looks into the level's directory, and no other removes anything there.
func (s *Store) looksAlone(l *levelState) bool {
	return s.opt.Together && l.Traits().Shared && s.opt.Rank == 0
}

// setLook keeps a look for the decision that it was taken for: the Prune that follows.
func (l *levelState) setLook(look *level.Look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look = look
}

// takeLook is the look that was kept, once, or a new one.
func (l *levelState) takeLook() (*level.Look, error) {
	l.mu.Lock()
	look := l.look
	l.look = nil
	l.mu.Unlock()
	if look != nil {
		return look, nil
	}
	return level.NewLook(l.Level)
}

// tell logs what was left, each once.
func (s *Store) tell(l *levelState, left []level.Leftover) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range left {
		if !s.leftovers[x.Path] {
			s.leftovers[x.Path] = true
			s.log.Warn("holdfast: file not removed by prune", "path", x.Path, "why", x.Err, "level", l.Name())
		}
	}
}

// keepRules are those of a run. An epoch on its way to another level is held; none waits for
// long, since a newer one goes in its place.
func (s *Store) keepRules(l *levelState) *level.KeepRules {
	l.mu.Lock()
	defer l.mu.Unlock()
	agreed := l.agreed.clone()
	nothing := s.votes.Load() && agreed.unknown() && !l.Traits().Shared
	putting := map[Epoch]bool{}
	for e, list := range l.puts {
		putting[e] = len(list) > 0
	}
	return &level.KeepRules{Keep: l.cfg.Keep, Every: l.cfg.KeepEvery, Widest: format.MaxCounted,
		Counts: func(e Epoch) bool { return !nothing && agreed.counts(e) },
		Failed: func(e Epoch) bool { return agreed.failed[e] },
		Held:   func(e Epoch) bool { return putting[e] || s.held(e) },
		Making: func(name string) bool { return s.making(l, name) },
	}
}

// making says whether a name is that of a file in the making. Every rank clears
// away its own at its start, in the directories that it sees; those of ranks
// that now run elsewhere are left over.
func (s *Store) making(l *levelState, name string) bool {
	rank, ok := level.TempRank(name)
	if !ok || rank >= s.opt.Size {
		return false
	}
	if l.Traits().Shared || len(s.opt.Nodes) != s.opt.Size {
		return true
	}
	return s.opt.Nodes[rank] == s.opt.Nodes[s.opt.Rank]
}

// KeepByRule keeps an epoch that has just been committed at a level if it is at least so many
// epochs, or was committed so long, after the last one that was kept by the rule. A crash before it
// makes the next epoch the kept one. One rank calls it for all.
func (s *Store) KeepByRule(ctx context.Context, e Epoch, level string, every int, apart time.Duration) error {
	if every <= 0 && apart <= 0 {
		return nil
	}
	return s.on("keep", e, level, func(l *levelState) error {
		kept, err := l.ReadKept()
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		var last format.Kept
		for _, k := range kept {
			if k.Auto && k.Epoch > last.Epoch {
				last = k.Kept
			}
		}
		now := time.Now()
		due := every > 0 && e >= last.Epoch+Epoch(every) ||
			apart > 0 && now.Sub(time.Unix(0, last.Time)) >= apart
		if _, user := kept[e]; user || !due {
			return nil
		}
		return l.WriteKept(&format.Kept{Epoch: e, Auto: true, Time: now.UnixNano()})
	})
}
