package storage

import (
	"context"
	"time"

	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

var testPool, testInbound = shard.NewPool(64), shard.NewPool(64)

// Shared makes stores of one test process share buffers.
func Shared(o Options) Options {
	o.pool, o.inbound = testPool, testInbound
	return o
}

// What tests compare with.
const (
	DefaultKeep = defaultKeep
	SizeBytes   = sizeBytes
)

// Validate is what Open does first.
func (o *Options) Validate() error { return o.validate() }

// NameOf is that of the pack of these ranks.
func (n *NodePack) NameOf(ranks []int) string { return n.nameOf(&nodePackFile{ranks: ranks}, "") }

// Spoil gives the first chunk another hash.
func (m *MemoryShard) Spoil() { m.index.Chunks[0].Hash[0] ^= 1 }

// Beating makes a store rewrite its locks so often.
func Beating(o Options, every time.Duration) Options {
	o.beat = every
	return o
}

// PutFar is Put of a shard whose chunks, index and footer lie gap bytes, whole pages,
// further on than they would: what lies between is a hole in the file.
func PutFar(ctx context.Context, s *Store, e Epoch, level string, gap int64, secs []Section) (ShardInfo, error) {
	l, err := s.at(level)
	if err != nil {
		return ShardInfo{}, err
	}
	spec := s.spec(e, s.opt.Rank, secs)
	spec.Hole = gap
	info, idx, err := s.writeOut(ctx, l, spec, nil)
	l.remember(e, idx)
	return info, err
}

// Widen makes the part take so many more bytes, whole pages, of its pack: a hole
// before its footer.
func (p *Part) Widen(bytes int64) { p.spec.Room += bytes }

// Level is the store's view of one of its levels.
func (s *Store) Level(i int) *levelState { return s.levels[i] }

// Config is how the store uses one of its levels.
func (s *Store) Config(i int) *LevelConfig { return &s.levels[i].cfg }

// DirAt is the directory of one of the levels.
func (s *Store) DirAt(i int) string { return s.opt.Levels[i].Dir }

// OnlyLevels makes the store forget all but its first n levels.
func (s *Store) OnlyLevels(n int) { s.levels = s.levels[:n] }
