package level

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Probe checks length and footer of a shard.
func (d *Dir) Probe(m *format.Manifest, rank int) (err error) {
	x, err := d.LocateIn(m, rank)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	_, err = x.Footer(m.Epoch, rank)
	return err
}

// Uncommitted describes a shard file that no manifest names yet.
func (d *Dir) Uncommitted(e format.Epoch, rank int) (info format.ShardInfo, idx *format.Index, err error) {
	file := filepath.Join(d.EpochPath(e), format.ShardName(rank))
	f, err := d.FS.Open(file)
	if err != nil {
		return info, nil, err
	}
	c, err := shard.OpenFile(file, f)
	if err != nil {
		return info, nil, errors.Join(err, f.Close())
	}
	return c.At.Info, c.Index, c.Close()
}

// OpenCommitted opens the shard file that a manifest names and checks that it
// is that one.
func (d *Dir) OpenCommitted(e format.Epoch, info format.ShardInfo) (*shard.Extent, error) {
	info.Pack, info.Base = format.NoPack, 0
	x, err := d.OpenExtent(e, format.ShardName(info.Rank), info)
	if err != nil {
		return nil, err
	}
	if _, err := x.Footer(e, info.Rank); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// Create makes a file of an epoch: fill writes it under a temporary name, which
// is then synced and published. After an error nothing is left.
func (d *Dir) Create(e format.Epoch, name string, fill func(f vfs.File) error) (err error) {
	temp := TempName(name, d.Owner)
	path := filepath.Join(d.EpochPath(e), temp)
	f, err := d.FS.Create(path, true)
	if err != nil {
		return d.Unusable(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfThere(d.FS, path))
		}
	}()
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return d.Publish(e, temp, name)
}

// CheckSpace refuses early what would not fit. A file system that cannot tell
// is given the benefit of the doubt, and so are shards that refer to an earlier
// one: how much of them is new shows only while they are written.
func (d *Dir) CheckSpace(specs ...*shard.Spec) error {
	var need int64
	for _, spec := range specs {
		if spec.Base == nil {
			need += spec.Need()
		}
	}
	return d.CheckRoom(need)
}

// CheckRoom is a *SpaceError where the file system says that so many bytes do not fit.
func (d *Dir) CheckRoom(need int64) error {
	free, err := d.FS.Free(d.Path)
	if err != nil || free >= need {
		return nil
	}
	return &SpaceError{Level: d.Name, Dir: d.Path, Need: need, Free: free}
}

// SpaceError turns the system's word for a full disk into ours.
func (d *Dir) SpaceError(err error, need int64) error {
	var known *SpaceError
	if err == nil || errors.As(err, &known) {
		return err
	}
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	free, ferr := d.FS.Free(d.Path)
	if ferr != nil {
		free = 0
	}
	return errors.Join(&SpaceError{Level: d.Name, Dir: d.Path, Need: need, Free: free}, err)
}

// LevelName makes a levelDir a source.
func (d *Dir) LevelName() string { return d.Name }

// Locate opens the file that the manifest names.
func (d *Dir) Locate(ctx context.Context, e format.Epoch, rank int) (*shard.Extent, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := d.ReadManifest(e)
	if err != nil {
		return nil, err
	}
	return d.LocateIn(m, rank)
}

// LocateIn opens the file that a manifest names.
func (d *Dir) LocateIn(m *format.Manifest, rank int) (*shard.Extent, error) {
	info, err := m.Shard(rank)
	if err != nil {
		return nil, err
	}
	name := format.ShardName(rank)
	if info.Pack != format.NoPack {
		name = format.PackName(info.Pack)
	}
	return d.OpenExtent(m.Epoch, name, info)
}

// OpenExtent opens a shard in a file of an epoch, whose length must be right.
func (d *Dir) OpenExtent(e format.Epoch, name string, info format.ShardInfo) (*shard.Extent, error) {
	f, file, err := d.Open(e, name)
	if err != nil {
		return nil, err
	}
	n, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	short := n < info.Base+info.ShardBytes
	if long := info.Pack == format.NoPack && n > info.ShardBytes; short || long {
		err := &format.CorruptError{File: file, Len: n,
			Reason: fmt.Sprintf("file has %d bytes, the shard ends at %d", n, info.Base+info.ShardBytes)}
		return nil, errors.Join(err, f.Close())
	}
	return &shard.Extent{
		ReaderAt: io.NewSectionReader(f, info.Base, info.ShardBytes), Closer: f,
		Name: file, N: info.ShardBytes, Base: info.Base, Info: info,
	}, nil
}
