package storage

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// The epochs that a shard at the level with the data may refer to if parity rows are computed from it. The rows of an
// epoch rebuild its files byte by byte, references included, so all that these refer to must have rows as well. Epochs
// may be passed over at parity, and fail there; the base of a shard is therefore the newest epoch that parity has, not
// the newest of its own level.

// mostBases is the number of indices of the newest shards that are kept until parity takes one. Only the newest ones
// are sent there.
const mostBases = 4

// bases has the shards that later shards of this rank may refer to, at the level with the data.
type bases struct {
	indices map[Epoch]*format.Index // committed there, of the newest epochs and those sent
	sent    map[Epoch]bool          // to the level with the rows; not older than the newest there
}

// keep remembers a committed shard, and forgets those that can be no base any more; rows is
// the newest epoch with rows.
func (b *bases) keep(idx *format.Index, rows Epoch) {
	if b.indices == nil {
		b.indices, b.sent = map[Epoch]*format.Index{}, map[Epoch]bool{}
	}
	b.indices[idx.Epoch] = idx
	maps.DeleteFunc(b.sent, func(e Epoch, _ bool) bool { return e < rows })
	epochs := slices.Sorted(maps.Keys(b.indices))
	for _, e := range epochs[:max(len(epochs)-mostBases, 0)] {
		if e != rows && !b.sent[e] {
			delete(b.indices, e)
		}
	}
}

// rowsOf returns the level whose rows are computed from the shards at l, if epochs go there, or nil.
func (s *Store) rowsOf(l *levelState) *levelState {
	if !l.Traits().Data {
		return nil
	}
	r := s.withTraits(func(t level.Traits) bool { return t.Rows })
	if r == nil || r.Unwritable != nil || r.cfg.Unused {
		return nil
	}
	return r
}

// baseAt returns the shard that a new one of this rank may refer to, or nil.
func (s *Store) baseAt(l *levelState, rank int, e Epoch) *format.Index {
	r := s.rowsOf(l)
	if r == nil {
		base := l.lastCommitted(rank, e)
		if base == nil {
			base = s.adoptedBefore(l, rank, e)
		}
		return s.present(l, base)
	}
	newest := s.catalog.NewestAgreed(r.Level)
	l.mu.Lock()
	base := l.bases.indices[newest]
	l.mu.Unlock()
	if base == nil || base.Rank != rank || newest >= e || level.CheckOrigins(l, append(base.Origins(), newest)) != nil {
		return nil // pruned: no later epoch shares anything with it
	}
	return base
}

// keepBase remembers the shards put for an epoch that is committed at l now.
func (s *Store) keepBase(l *levelState, e Epoch) {
	r := s.rowsOf(l)
	if r == nil {
		return
	}
	newest := s.catalog.NewestAgreed(r.Level)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, idx := range l.puts[e] {
		if idx.Rank == s.opt.Rank {
			l.bases.keep(idx, newest)
		}
	}
}

// writesAll reports that the shards of an epoch refer to no other.
func (l *levelState) writesAll(e Epoch) bool {
	return l.cfg.Full || l.cfg.FullEvery > 0 && e%Epoch(l.cfg.FullEvery) == 0
}

// present returns base if all that a shard may refer to through it is still
// there: people remove epochs by hand, and file systems come back empty.
func (s *Store) present(l *levelState, base *format.Index) *format.Index {
	if base == nil || s.opt.Collective && l.Traits().Shared {
		return base // rank 0 finds a missing one when it commits: see refreshBases
	}
	if err := level.CheckOrigins(l, append(base.Origins(), base.Epoch)); err != nil {
		s.log.Warn("holdfast: epoch written in full: an earlier epoch that it would refer to is missing", "level",
			l.Name(), "err", err)
		return nil
	}
	return base
}

// lastCommitted returns the index of rank's newest committed shard before e, or nil.
func (l *levelState) lastCommitted(rank int, e Epoch) *format.Index {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.base[rank]; b != nil && b.Epoch < e && b.Epoch == l.Newest() {
		return b
	}
	return nil
}

// lastShard is lastCommitted for a directory that several ranks write to: the
// shard may have been written by another one, in this run, and is then read.
func (s *Store) lastShard(ctx context.Context, l *levelState, rank int, e Epoch) *format.Index {
	if l.writesAll(e) {
		return nil
	}
	if b := l.lastCommitted(rank, e); b != nil {
		return s.present(l, b)
	}
	last := l.Newest()
	if last == 0 || last >= e || !l.Traits().Shared {
		return nil
	}
	c, err := shard.Open(ctx, fetch.At(l), last, rank)
	if err != nil {
		s.log.Debug("holdfast: shard written in full: there is no earlier one to refer to", "epoch", last, "rank",
			rank, "level", l.Name(), "err", err)
		return nil
	}
	if err := c.Close(); err != nil || c.Index.Size != s.opt.Size { // one of another number of ranks is no base
		return nil
	}
	return s.present(l, c.Index)
}

// adopted is a restored shard that the run's first shards at a level may refer to.
type adopted struct {
	idx     *format.Index
	release func()      // lets Prune remove it and those that it refers to
	durable atomic.Bool // its names were synced: the run that committed it may have died before that
	later   Epoch       // guarded by the level's mu: committed since, so that this is no base any more; 0: none
}

// Adopt lets the next shard of this rank refer to the restored one: unchanged chunks are not written again. It reports
// whether that is possible; if not, the next shard is written whole, like the first one of a directory. sh is still
// open, and all ranks have restored the epoch.
//
// It is adopted at the level from which it was read, under two conditions: it lies in this rank's own directory there,
// and each of its chunks was read from there and found right. So an epoch from another node, another level, memory or
// another number of ranks is not adopted. Nor is one with a damaged chunk, even if another place had a good copy.
// Nothing is adopted at a level that ranks share, nor with copies of shards on other ranks. Nor with parity, since the
// epoch may then lack its rows.
//
// Prune keeps the epoch until a later one is committed at the level, which keeps the epochs that it refers to. If it
// has gone nevertheless, the next shard is written whole.
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
	a := &adopted{idx: idx, release: s.catalog.Use(append(idx.Origins(), idx.Epoch)...)}
	l.mu.Lock()
	if l.Newest() != 0 || l.adopted != nil {
		l.mu.Unlock()
		a.release()
		return false
	}
	l.adopted = a
	l.mu.Unlock()
	return true
}

// adoptedBefore returns the adopted shard of a rank, if nothing was committed at the level since, or nil. It makes the
// epoch durable, which the run that wrote it may not have done: shards that refer to it must not outlive it.
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

// disown notes that e was committed at the level: later shards refer to its shards. l.mu is held. The result is called
// without it. It releases the adopted epoch after another commit: a Prune that looked before the first one does not
// know that e refers to it.
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
