package storage

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/storage/internal/catalog"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Prune removes from the named levels, or with no name from all, the epochs that the level's rules do not keep, and
// returns those removed from any level. It keeps at each level
//
//   - the newest Keep committed epochs that all ranks have (see Agree), and
//     every KeepEvery-th;
//   - at a level that all ranks share, pinned epochs (see checkpoints.PinEpoch);
//   - all that hold chunks of an epoch that is kept;
//   - epochs in use: retained (see Retain), being put, read or rebuilt;
//   - everything newer than the newest committed epoch: it may be in the making.
//
// An epoch that only some ranks have, or whose manifest cannot be read, does not count: Prune removes it with the
// epochs older than the newest Keep. Of the epochs that a vote gave up and that are newer than all that count, the
// newest Keep stay. Epochs without a manifest that are older than the newest committed one are garbage; Prune removes
// them too.
//
// With Options.Collective only rank 0 removes epochs from a level that all ranks share: all ranks have agreed on the
// list of its vote (see Agree). The other ranks do not look there.
//
// Prune continues when it cannot remove something or finds a file that is not part of a checkpoint. It leaves that in
// place and logs it once; the error joins the failures. Ranks that share a directory may all call it. Flushes of older
// epochs to a level must have ended or been given up once a newer one is committed there.
//
// All ranks call it, in any order. It lists the directories and reads manifests, but no shards.
func (s *Store) Prune(ctx context.Context, levels ...string) (removed []Epoch, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	looks := map[*catalog.Level]*catalog.Look{}
	defer func() { s.catalog.WriteLedgers(looks, levels...) }()
	all := map[Epoch]bool{}
	var problems []error // the other levels must not fill because one is down
	for _, l := range s.levels {
		if l.Unwritable != nil || !s.catalog.Looks(l.Level) || !catalog.Named(levels, l.Name()) {
			continue
		}
		if err := s.guard.Retake(ctx, l); err != nil {
			problems = append(problems, err)
			continue
		}
		pruned, look, err := s.catalog.Prune(ctx, l.Level, l.writing,
			func(e Epoch, err error) error { return s.fault("prune", e, l.Name(), err) })
		problems = append(problems, err)
		if look != nil {
			looks[l.Level] = look
		}
		for _, e := range pruned {
			all[e] = true
		}
	}
	return slices.Sorted(maps.Keys(all)), errors.Join(problems...)
}

// writing lists the epochs whose shards were put at the level and are not committed yet.
func (l *levelState) writing() map[Epoch]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[Epoch]bool{}
	for e, list := range l.puts {
		out[e] = len(list) > 0
	}
	return out
}

// PinByRule pins an epoch that has just been committed at a level if the rule is due: the last epoch that it has pinned
// is every epochs older, or apart older. A value of 0 or below leaves its condition out. A crash before it makes the
// next epoch the pinned one. One rank calls it for all. A pin is one small file.
func (s *Store) PinByRule(ctx context.Context, e Epoch, at string, every int, apart time.Duration) error {
	if every <= 0 && apart <= 0 {
		return nil
	}
	return s.on("keep", e, at, func(l *levelState) error {
		pins, err := level.ReadPins(l)
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		var last format.Pin
		for _, k := range pins {
			if k.Auto && k.Epoch > last.Epoch {
				last = k.Pin
			}
		}
		now := time.Now()
		due := every > 0 && e >= last.Epoch+Epoch(every) ||
			apart > 0 && now.Sub(time.Unix(0, last.Time)) >= apart
		if _, user := pins[e]; user || !due {
			return nil
		}
		return level.WritePin(l, &format.Pin{Epoch: e, Auto: true, Time: now.UnixNano()})
	})
}
