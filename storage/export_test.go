package storage

import (
	"context"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

var testInbound = newBuffers(64)

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
	if err := l.ensureEpoch(e); err != nil {
		return ShardInfo{}, err
	}
	spec := s.spec(e, s.opt.Rank, secs)
	var info ShardInfo
	var idx *format.Index
	err = l.create(e, spec.fileName(), func(f vfs.File) (err error) {
		w := newBlockWriter(ctx, f, s.pool, nil)
		if info, idx, err = writeFar(ctx, w, spec, gap); err != nil {
			w.abort()
			return err
		}
		return w.finish()
	})
	l.remember(e, idx)
	return info, err
}

// writeFar is writeShard with a hole behind the header.
func writeFar(ctx context.Context, w *blockWriter, spec *shardSpec, gap int64) (ShardInfo, *format.Index, error) {
	s := &shardWriter{w: w, spec: spec, start: w.pos(), idx: format.Index{
		Epoch: spec.head.Epoch, Rank: spec.head.Rank, Size: spec.head.Size, ChunkBytes: format.ChunkBytes}}
	if err := w.copyIn(spec.head.Encode()); err != nil {
		return ShardInfo{}, nil, err
	}
	if err := w.skipTo(w.pos() + gap); err != nil {
		return ShardInfo{}, nil, err
	}
	for i := range spec.sections {
		if err := s.section(ctx, &spec.sections[i]); err != nil {
			return ShardInfo{}, nil, err
		}
	}
	info, err := s.end()
	return info, &s.idx, err
}

// Widen makes the part take so many more bytes, whole pages, of its pack: a hole
// before its footer.
func (p *Part) Widen(bytes int64) { p.spec.room += bytes }
