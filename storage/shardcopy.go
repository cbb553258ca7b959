package storage

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// LevelName makes a levelDir a source.
func (d *levelDir) LevelName() string { return d.name }

// Locate opens the file that the manifest names.
func (d *levelDir) Locate(ctx context.Context, e Epoch, rank int) (*shard.Extent, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := d.readManifest(e)
	if err != nil {
		return nil, err
	}
	return d.locateIn(m, rank)
}

func (d *levelDir) locateIn(m *format.Manifest, rank int) (*shard.Extent, error) {
	info, err := m.Shard(rank)
	if err != nil {
		return nil, err
	}
	name := format.ShardName(rank)
	if info.Pack != format.NoPack {
		name = format.PackName(info.Pack)
	}
	return d.openExtent(m.Epoch, name, info)
}

func (d *levelDir) openExtent(e Epoch, name string, info ShardInfo) (*shard.Extent, error) {
	file, err := d.epochFile(e, name)
	if err != nil {
		return nil, err
	}
	f, err := d.fs.Open(file)
	if err != nil {
		return nil, err
	}
	n, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	short := n < info.Base+info.ShardBytes
	if long := info.Pack == format.NoPack && n > info.ShardBytes; short || long {
		err := &CorruptError{File: file, Len: n,
			Reason: fmt.Sprintf("file has %d bytes, the shard ends at %d", n, info.Base+info.ShardBytes)}
		return nil, errors.Join(err, f.Close())
	}
	return &shard.Extent{
		ReaderAt: io.NewSectionReader(f, info.Base, info.ShardBytes), Closer: f,
		Name: file, N: info.ShardBytes, Base: info.Base, Info: info,
	}, nil
}
