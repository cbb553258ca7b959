package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Prune removes from every level what its keep rules do not hold, and returns
// the epochs that went from any level. It keeps at each level
//
//   - the newest Keep committed epochs that all ranks have (see Agree), and
//     every KeepEvery-th;
//   - of those newer than the newest committed at the last level, which still
//     has to get them, the newest 8: a global file system that is down must not
//     fill the local disks;
//   - all that hold chunks of an epoch that is kept;
//   - what is in use: held (see Retain), being put, read or rebuilt;
//   - everything newer than the newest committed epoch: it may be in the making.
//
// An epoch that only some ranks have, or whose manifest cannot be read, does not
// count: it goes with the epochs older than the newest Keep. Of those newer than all
// that count which a vote gave up, the newest Keep stay. Epochs without a
// manifest that are older than the newest committed one are garbage and go too.
//
// Prune goes on when it meets something that it cannot remove or that is no file
// of a checkpoint. It leaves that and logs it once; the error joins what failed.
// Ranks that share a directory may all call it. Flushes of older epochs to a
// level must have ended or been given up once a newer one is committed there.
func (s *Store) Prune(ctx context.Context) (removed []Epoch, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	defer s.writeLedgers()
	gone := map[Epoch]bool{}
	levels := s.working()
	widest, err := levels[len(levels)-1].newestReadable()
	problems := []error{err} // the other levels must not fill because the last one is down
	for _, l := range levels {
		dead, left, err := l.prunable(s.keepRules(l, widest))
		problems = append(problems, err)
		for _, e := range dead {
			if err := ctx.Err(); err != nil {
				return format.SortedEpochs(gone), err
			}
			more, err := l.removeEpoch(e)
			left = append(left, more...)
			if err != nil {
				problems = append(problems, s.fault("prune", e, l.name, err))
				continue
			}
			gone[e] = true
			s.log.Info("epoch removed", "epoch", e, "level", l.name, "keep", l.cfg.Keep)
		}
		s.tell(l, left)
	}
	return format.SortedEpochs(gone), errors.Join(problems...)
}

// tell logs what was left, each once.
func (s *Store) tell(l *level, left []Leftover) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range left {
		if !s.told[x.Path] {
			s.told[x.Path] = true
			s.log.Warn("prune leaves this where it is", "path", x.Path, "why", x.Err, "level", l.name)
		}
	}
}

// newestCommitted is 0 when nothing is committed.
func (d *levelDir) newestCommitted() (Epoch, error) {
	epochs, err := d.epochs()
	if err != nil {
		return 0, err
	}
	for _, e := range epochs {
		have, err := d.hasManifest(e)
		if have || err != nil {
			return e, err
		}
	}
	return 0, nil
}

// newestReadable is newestCommitted but for epochs whose manifests cannot be
// read: what was to be copied there is not there.
func (d *levelDir) newestReadable() (Epoch, error) {
	epochs, err := d.epochs()
	if err != nil {
		return 0, err
	}
	for _, e := range epochs {
		if _, err := d.readManifest(e); err == nil {
			return e, nil
		}
	}
	return 0, nil
}

// keepRules is what one look at a level for epochs to remove goes by.
type keepRules struct {
	keep, every int
	widest      Epoch                  // newest epoch committed at the last level
	counts      func(e Epoch) bool     // all ranks have it
	failed      func(e Epoch) bool     // a vote gave it up
	held        func(e Epoch) bool     // it is in use
	making      func(name string) bool // a file that will get its final name
}

func (s *Store) keepRules(l *level, widest Epoch) *keepRules {
	l.mu.Lock()
	defer l.mu.Unlock()
	agreed := l.agreed.clone()
	nothing := s.votes.Load() && agreed.unknown() && l.name != LevelGlobal
	putting := map[Epoch]bool{}
	for e, list := range l.puts {
		putting[e] = len(list) > 0
	}
	return &keepRules{keep: l.cfg.Keep, every: l.cfg.KeepEvery, widest: widest,
		counts: func(e Epoch) bool { return !nothing && agreed.counts(e) },
		failed: func(e Epoch) bool { return agreed.failed[e] },
		held:   func(e Epoch) bool { return putting[e] || s.held(e) },
		making: func(name string) bool { return s.making(l, name) },
	}
}

// making says whether a name is that of a file in the making. Every rank clears
// away its own at its start, in the directories that it sees; those of ranks
// that now run elsewhere are left over.
func (s *Store) making(l *level, name string) bool {
	rank, ok := tempRank(name)
	if !ok || rank >= s.opt.Size {
		return false
	}
	if l.name == LevelGlobal || len(s.opt.Nodes) != s.opt.Size {
		return true
	}
	return s.opt.Nodes[rank] == s.opt.Nodes[s.opt.Rank]
}

// maxPending is how many epochs wait at a level for the last one.
const maxPending = 8

// prunable lists the epochs that no rule keeps, and what is odd about those that
// stay.
func (d *levelDir) prunable(r *keepRules) (dead []Epoch, left []Leftover, err error) {
	epochs, err := d.epochs()
	if err != nil {
		return nil, nil, err
	}
	var committed, garbage []Epoch
	for _, e := range epochs {
		have, err := d.hasManifest(e)
		switch {
		case have || err != nil: // a manifest that cannot be looked at is one
			committed = append(committed, e)
		case len(committed) > 0:
			garbage = append(garbage, e)
		}
	}
	kept, left := d.keptOf(committed, r)
	for _, e := range committed {
		if !kept[e] {
			dead = append(dead, e)
		}
	}
	for _, e := range garbage {
		if !kept[e] && !r.held(e) && !d.hasTemp(e, r.making) {
			dead = append(dead, e)
		}
	}
	return dead, left, nil
}

// hasTemp says whether a file of the epoch is in the making. An epoch that
// cannot be looked at has one.
func (d *levelDir) hasTemp(e Epoch, making func(name string) bool) bool {
	files, err := d.fs.ReadDir(d.epochPath(e))
	if err != nil {
		return ignoreGone(err) != nil
	}
	for _, f := range files {
		if making(f.Name) {
			return true
		}
	}
	return false
}

// keptOf applies the keep rules to the committed epochs, newest first.
func (d *levelDir) keptOf(committed []Epoch, r *keepRules) (kept map[Epoch]bool, left []Leftover) {
	kept = map[Epoch]bool{}
	counted, extra := 0, 0 // epochs that count; others that are kept and older than one that does
	failed := 0            // given up and newer than all that count
	for _, e := range committed {
		due := counted < r.keep || e > r.widest && counted < maxPending
		switch {
		case r.held(e) || r.every > 0 && e%Epoch(r.every) == 0 && !r.failed(e):
		case !due, r.failed(e) && counted > 0:
			continue
		case r.failed(e):
			// A restart may find all of its shards; but votes may go on failing.
			if failed++; failed > r.keep {
				continue
			}
		case counted > 0 && !r.counts(e):
			// In place of one that counts, should there be none.
			if extra++; counted+extra > r.keep {
				continue
			}
		}
		origins, err := d.originsOf(e)
		if errors.Is(err, ErrNotCommitted) {
			continue // removed by another rank meanwhile
		}
		if err != nil {
			left = append(left, Leftover{Path: join(d.epochPath(e), format.ManifestName),
				Err: fmt.Errorf("epoch %d stays and does not count: %w", e, err)})
		}
		kept[e] = true
		for _, o := range origins {
			kept[o] = true
		}
		if err == nil && r.counts(e) {
			counted++
		}
	}
	return kept, left
}

// originsOf lists the epochs that an epoch here refers to. When its manifest
// cannot be read the error says so, and they are those that the shards here
// refer to.
func (d *levelDir) originsOf(e Epoch) ([]Epoch, error) {
	m, err := d.readManifest(e)
	if err == nil {
		return m.Origins(), nil
	}
	if errors.Is(err, ErrNotCommitted) {
		return nil, err
	}
	files, rerr := d.fs.ReadDir(d.epochPath(e))
	if rerr != nil {
		return nil, errors.Join(err, rerr)
	}
	set := map[Epoch]bool{}
	for _, f := range files {
		for _, o := range d.originsIn(e, f.Name) {
			set[o] = true
		}
	}
	return format.SortedEpochs(set), err
}

// originsIn reads them from a shard or pack; none if it cannot be read.
func (d *levelDir) originsIn(e Epoch, name string) (out []Epoch) {
	if _, ok := format.ParsePackName(name); ok {
		infos, err := d.readPack(e, name)
		if err != nil {
			return nil
		}
		for i := range infos {
			out = append(out, infos[i].Origins...)
		}
		return out
	}
	rank, row, ok := format.ParseName(name)
	if !ok || row >= 0 {
		return nil
	}
	info, _, err := d.uncommitted(e, rank)
	if err != nil {
		return nil
	}
	return slices.Clone(info.Origins)
}
