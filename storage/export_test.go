package storage

import (
	"context"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

var testInbound = shard.NewPool(64)

// Shared makes stores of one test process share buffers.
func Shared(o Options) Options {
	o.pool, o.inbound = testPool, testInbound
	return o
}

// PutFar is Put of a shard whose chunks, index and footer lie gap bytes, whole pages,
// further on than they would: what lies between is a hole in the file.
func PutFar(ctx context.Context, s *Store, e Epoch, level string, gap int64, secs []Section) (ShardInfo, error) {
	l, err := s.at(level)
	if err != nil {
		return ShardInfo{}, err
	}
	if err := l.EnsureEpoch(e); err != nil {
		return ShardInfo{}, err
	}
	spec := s.spec(e, s.opt.Rank, secs)
	var info ShardInfo
	var idx *format.Index
	err = l.Create(e, spec.FileName(), func(f vfs.File) (err error) {
		w := shard.NewWriter(ctx, f, s.pool, nil)
		spec.Hole = gap
		if info, idx, err = shard.Write(ctx, w, spec); err != nil {
			w.Abort()
			return err
		}
		return w.Finish()
	})
	l.remember(e, idx)
	return info, err
}

// Widen makes the part take so many more bytes, whole pages, of its pack: a hole
// before its footer.
func (p *Part) Widen(bytes int64) { p.spec.Room += bytes }
