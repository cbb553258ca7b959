package storage

import (
	"maps"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// What a shard at the level with the data may refer to where parity rows are computed from
// it. The rows of an epoch rebuild its files byte by byte, references included, so all that
// these refer to must have rows as well. Epochs may be passed over at parity, and fail there;
// the base of a shard is therefore the newest epoch that parity has, not the newest of its
// own level.

// mostBases is how many indices of the newest shards are kept until parity takes one of
// them. Only the newest ones are sent there.
const mostBases = 4

// bases has what shards of this rank at the level with the data may refer to.
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

// rowsOf is the level whose rows are computed from the shards at l, if epochs go there;
// nil: there is none.
func (s *Store) rowsOf(l *levelState) *levelState {
	if !l.Traits().Data {
		return nil
	}
	r := s.withTraits(func(t level.Traits) bool { return t.Rows })
	if r == nil || r.out != nil || r.cfg.Unused {
		return nil
	}
	return r
}

// agreedNewest is the newest epoch that is committed at the level for sure, in this run.
func (s *Store) agreedNewest(l *levelState) Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.votes.Load() {
		return l.agreed.newest
	}
	return l.last
}

// baseAt is the shard that a new one of this rank may refer to; nil: there is none.
func (s *Store) baseAt(l *levelState, rank int, e Epoch) *format.Index {
	r := s.rowsOf(l)
	if r == nil {
		base := l.lastCommitted(rank, e)
		if base == nil {
			base = s.adoptedBefore(l, rank, e)
		}
		return s.present(l, base)
	}
	newest := s.agreedNewest(r)
	l.mu.Lock()
	base := l.bases.indices[newest]
	l.mu.Unlock()
	if base == nil || base.Rank != rank || newest >= e || level.CheckOrigins(l, append(base.Origins(), newest)) != nil {
		return nil // pruned: no later epoch shares anything with it
	}
	return base
}

// keepBase remembers the shards put for an epoch that is committed at l now.
func (s *Store) keepBase(l *levelState, idxs []*format.Index) {
	r := s.rowsOf(l)
	if r == nil {
		return
	}
	newest := s.agreedNewest(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, idx := range idxs {
		if idx.Rank == s.opt.Rank {
			l.bases.keep(idx, newest)
		}
	}
}

// sending says that rows of an epoch are being computed, so it may be the next base.
func (s *Store) sending(data *levelState, e Epoch) {
	data.mu.Lock()
	defer data.mu.Unlock()
	if data.bases.indices[e] != nil {
		data.bases.sent[e] = true
	}
}
