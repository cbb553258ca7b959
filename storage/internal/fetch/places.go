package fetch

import (
	"context"
	"errors"
	"io"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// At makes a level a source of the shards of the epochs that are committed there.
func At(l level.Epochs) shard.Source { return place{l} }

// place is a level as a source.
type place struct{ l level.Epochs }

func (p place) Name() string { return p.l.Name() }

// Locate opens the file that the manifest names.
func (p place) Locate(ctx context.Context, e format.Epoch, rank int) (*shard.Extent, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := p.l.ReadManifest(e)
	if err != nil {
		return nil, err
	}
	return LocateIn(p.l, m, rank)
}

// LocateIn opens the file that a manifest names.
func LocateIn(l level.Epochs, m *format.Manifest, rank int) (*shard.Extent, error) {
	info, err := m.Shard(rank)
	if err != nil {
		return nil, err
	}
	return OpenExtent(l, m.Epoch, info.FileName(), info)
}

// OpenExtent opens a shard in a file of an epoch, whose length must be right.
func OpenExtent(l level.Epochs, e format.Epoch, name string, info format.ShardInfo) (*shard.Extent, error) {
	f, file, err := level.OpenShard(l, e, name, &info)
	if err != nil {
		return nil, err
	}
	return &shard.Extent{
		ReaderAt: io.NewSectionReader(f, info.Base, info.ShardBytes), Closer: f,
		Name: file, N: info.ShardBytes, Base: info.Base, Info: info,
	}, nil
}

// OpenCommitted opens the shard file that a manifest names and checks that it is that one.
func OpenCommitted(l level.Epochs, e format.Epoch, info format.ShardInfo) (*shard.Extent, error) {
	info.Pack, info.Base = format.NoPack, 0
	x, err := OpenExtent(l, e, format.ShardName(info.Rank), info)
	if err != nil {
		return nil, err
	}
	if _, err := format.ReadCommitted(x.Name, x, e, &info); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// Uncommitted describes a shard file that no manifest names yet.
func Uncommitted(l level.Epochs, e format.Epoch, rank int) (info format.ShardInfo, idx *format.Index, err error) {
	f, file, err := l.Open(e, format.ShardName(rank))
	if err != nil {
		return info, nil, err
	}
	c, err := shard.OpenFile(file, f)
	if err != nil {
		return info, nil, errors.Join(err, f.Close())
	}
	return c.At.Info, c.Index, c.Close()
}

// VerifyPack compares a pack with its own index, and checks that it holds nothing else.
func VerifyPack(l level.Epochs, m *format.Manifest, name string) []error {
	infos, err := level.ReadPack(l, m.Epoch, name)
	if err != nil {
		return []error{err}
	}
	var end int64
	for i := range infos {
		entry, err := m.Shard(infos[i].Rank)
		if err != nil || entry.Index != infos[i].Index || entry.Base != infos[i].Base || entry.FileName() != name {
			return []error{&format.CorruptError{File: level.FileOf(l, m.Epoch, name),
				Reason: "pack index does not agree with the manifest"}}
		}
		end = max(end, entry.Base+entry.ShardBytes)
	}
	x, err := OpenExtent(l, m.Epoch, name, format.ShardInfo{ShardBytes: end, Pack: 0})
	if err != nil {
		return []error{err}
	}
	defer x.Close()
	return x.VerifyTail(end)
}

// RoomOf returns the room that shards take at a level. The new part of a shard that refers to earlier ones is only
// known once it is written.
func RoomOf(specs ...*shard.Spec) (r level.Room) {
	for _, spec := range specs {
		n := spec.Need()
		if r.Most += n; spec.Base == nil {
			r.Sure += n
		}
	}
	return r
}
