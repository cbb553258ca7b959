package shard

import (
	"context"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// EndPack appends the record that lists the shards, and a footer that finds it.
func EndPack(w *Writer, e format.Epoch, first int, infos []format.ShardInfo) error {
	index := format.EncodePackIndex(infos)
	f := format.Footer{Magic: format.PackMagic, IndexOff: w.Pos(), IndexLen: int64(len(index)),
		IndexHash: format.Hash(index), Epoch: e, Rank: first}
	if err := w.CopyIn(index); err != nil {
		return err
	}
	if err := w.AlignTo(vfs.Align, format.FooterLen); err != nil {
		return err
	}
	f.ShardLen = w.Pos() + format.FooterLen
	return w.CopyIn(f.Encode())
}

// CopyTo writes the bytes of a shard, as they are, to f.
func CopyTo(ctx context.Context, f vfs.File, pool *Pool, t *Throttle, x *Extent) error {
	return WriteTo(ctx, f, pool, t, func(w *Writer) error { return copyBlocks(ctx, x, w, pool) })
}

func copyBlocks(ctx context.Context, x *Extent, w *Writer, pool *Pool) error {
	for off := int64(0); off < x.N; off += BlockBytes {
		l, err := pool.Lease(ctx)
		if err != nil {
			return err
		}
		p := l.Buf[:min(BlockBytes, x.N-off)]
		if err = format.ReadFull(x, p, off); err == nil {
			err = w.Append(p, l)
		}
		l.Drop()
		if err != nil {
			return err
		}
	}
	return nil
}
