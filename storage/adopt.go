package storage

import (
	"errors"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// adopted is the shard that a run has restored, as what its first shards at a level refer to.
type adopted struct {
	idx     *format.Index
	release func()      // lets Prune remove it and what it refers to
	durable atomic.Bool // its names were synced: the run that committed it may have died before that
	later   Epoch       // guarded by the level's mu: committed since, so that this is no base any more; 0: none
}

// Adopt lets the next shard of this rank refer to the one that was restored: what has not changed since
// need not be written again. It says whether that will be so; if not, the next shard is written whole, as
// the first one of a directory is. sh is open still, and all ranks have restored the epoch.
//
// It is adopted at the level that it was read from, if it lies in this rank's own directory there, and each
// of its chunks was read from there and found right. So an epoch that came from another node, another level
// or memory is not adopted, nor one with a damaged chunk, even where another place made that good; nor one
// of another number of ranks. Nothing is adopted at a level that ranks share, nor where other ranks keep
// copies of shards, nor where parity is computed from them, since it is not known then that the epoch has
// its rows.
//
// Prune keeps the epoch until a later one is committed at the level, which keeps what it refers to. If
// it has gone nevertheless, the next shard is written whole.
func (s *Store) Adopt(sh *Shard) bool {
	leave, err := s.enter()
	if err != nil {
		return false
	}
	defer leave()
	own, ok := fetch.CopyOf(sh).From.(*ownSource)
	idx := fetch.IndexOf(sh)
	if !ok || idx.Rank != s.opt.Rank || idx.Size != s.opt.Size || !fetch.Proven(sh) {
		return false
	}
	l := own.l
	if t := l.Traits(); t.Shared || t.WrittenByOthers || t.Copies || t.Rows || s.rowsOf(l) != nil {
		return false
	}
	a := &adopted{idx: idx, release: s.hold(append(idx.Origins(), idx.Epoch)...)}
	l.mu.Lock()
	if l.last != 0 || l.adopted != nil {
		l.mu.Unlock()
		a.release()
		return false
	}
	l.adopted = a
	l.mu.Unlock()
	return true
}

// adoptedBefore is the adopted shard of a rank, if nothing was committed at the level since; nil: there is none. Its
// epoch is made durable, which the run that wrote it may not have come to: what refers to it must not outlive it.
func (s *Store) adoptedBefore(l *levelState, rank int, e Epoch) *format.Index {
	l.mu.Lock()
	a := l.adopted
	if a != nil && (a.later != 0 || a.idx.Rank != rank || a.idx.Epoch >= e) {
		a = nil
	}
	l.mu.Unlock()
	if a == nil {
		return nil
	}
	if a.durable.Load() {
		return a.idx
	}
	var errs []error
	for _, o := range append(a.idx.Origins(), a.idx.Epoch) {
		errs = append(errs, l.SyncEpoch(o))
	}
	if err := errors.Join(errs...); err != nil {
		s.log.Warn("holdfast: epoch written in full: the restored one is not to be referred to", "level", l.Name(),
			"epoch", a.idx.Epoch, "err", err)
		return nil
	}
	a.durable.Store(true)
	return a.idx
}

// disown notes that e was committed at the level: its shards are what later ones refer to. l.mu is held. The result is
// called without it. It lets the adopted epoch go after another commit: a Prune that looked around before the first one
// does not know that e refers to it.
func (l *levelState) disown(e Epoch) (release func()) {
	a := l.adopted
	switch {
	case a == nil || e <= a.idx.Epoch || e == a.later:
	case a.later == 0:
		a.later = e
	default:
		l.adopted = nil
		return a.release
	}
	return func() {}
}
