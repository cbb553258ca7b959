package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// copying is a way of shards from one level to another. All copies go by it, except that the ranks of a NodePack write
// theirs themselves.
type copying struct {
	to     *levelState
	dir    level.Epochs // where the files go: that of to, or of the same level at another rank
	shards []*Shard     // of one epoch
	packed bool         // into few large files; else each into its own
	secs   []Section    // of the only shard, in memory; nil: it is read
	anew   bool         // what an earlier attempt completed is written again
}

// copyFile is one file that a copying makes.
type copyFile struct {
	name   string
	pack   int // number of the pack, or format.NoPack
	shards []*Shard
}

// copyShards brings the shards to where they are durable and not yet committed. What an earlier attempt completed is
// not written again; what is committed is left alone, and its indices are not remembered.
func (s *Store) copyShards(ctx context.Context, c *copying) (infos []ShardInfo, err error) {
	if infos, ok, err := committedInfos(c.dir, c.shards); ok || err != nil {
		return infos, err
	}
	done, err := s.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	files := []copyFile{}
	if c.packed {
		files = divideIntoPacks(c.shards, c.to.cfg.PackBytes)
	} else {
		for _, sh := range c.shards {
			files = append(files, copyFile{format.ShardName(sh.rank), format.NoPack, []*Shard{sh}})
		}
	}
	for i := range files {
		part, err := s.copyInto(ctx, c, &files[i])
		if err != nil {
			return nil, err
		}
		infos = append(infos, part...)
	}
	return infos, nil
}

// committedInfos returns the manifest's entries when the epoch is committed already.
func committedInfos(to level.Epochs, shards []*Shard) (infos []ShardInfo, ok bool, err error) {
	if len(shards) == 0 {
		return nil, true, nil
	}
	m, err := to.ReadManifest(shards[0].epoch)
	if errors.Is(err, ErrNotCommitted) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	for _, sh := range shards {
		info, err := m.Shard(sh.rank)
		if err != nil {
			return nil, false, err
		}
		if info.Digest != sh.digest {
			return nil, false, ErrCommitted
		}
		infos = append(infos, info)
	}
	return infos, true, nil
}

// copyInto makes one file, unless it is there complete: under its final name, which it got after it was synced.
func (s *Store) copyInto(ctx context.Context, c *copying, f *copyFile) ([]ShardInfo, error) {
	e := f.shards[0].epoch
	infos, idxs, err := f.existing(c.dir, e)
	if err == nil && !c.anew {
		err = c.dir.SyncEpoch(e)
	} else {
		specs := make([]*shard.Spec, len(f.shards))
		for i, sh := range f.shards {
			secs := c.secs
			if secs == nil {
				secs = sh.asSections(ctx)
			}
			specs[i] = s.copySpec(ctx, c.to, sh, secs)
		}
		err = c.dir.Put(e, f.name, level.RoomOf(specs...), func(to vfs.File) error {
			return s.writing(ctx, to, s.throttle(c.to), func(w *shard.Writer) (err error) {
				infos, idxs, err = f.write(ctx, w, specs)
				return err
			})
		})
	}
	if err != nil {
		return nil, err
	}
	c.to.remember(e, idxs...)
	return infos, nil
}

// copySpec is how a copy of a shard is to be written at a level.
func (s *Store) copySpec(ctx context.Context, to *levelState, sh *Shard, secs []Section) *shard.Spec {
	spec := s.spec(sh.epoch, sh.rank, secs)
	spec.Head.Node = sh.node()
	spec.Wanted = sh.shape
	s.prepareSpec(to, spec)
	spec.Base = s.lastShard(ctx, to, sh.rank, sh.epoch)
	return spec
}

// write writes shard after shard, then the index of a pack.
func (f *copyFile) write(ctx context.Context, w *shard.Writer, specs []*shard.Spec) (infos []ShardInfo,
	idxs []*format.Index, err error) {
	for i, spec := range specs {
		base := w.Pos()
		info, idx, err := writeCopy(ctx, w, spec, f.shards[i].digest)
		if err != nil {
			return nil, nil, err
		}
		if f.pack != format.NoPack {
			info.Pack, info.Base = f.pack, base
		}
		infos, idxs = append(infos, info), append(idxs, idx)
	}
	if f.pack != format.NoPack {
		err = endPack(w, specs[0].Head.Epoch, f.pack, infos)
	}
	return infos, idxs, err
}

// writeCopy writes a shard that must be the one with the digest.
func writeCopy(ctx context.Context, w *shard.Writer, spec *shard.Spec, digest [16]byte) (ShardInfo, *format.Index,
	error) {
	info, idx, err := shard.Write(ctx, w, spec)
	if err == nil && info.Digest != digest {
		err = fmt.Errorf("the copy of rank %d's shard is not the committed one: %w", info.Rank, ErrCorrupt)
	}
	return info, idx, err
}

// existing describes a file that is complete, if it holds what would be written.
func (f *copyFile) existing(d level.Epochs, e Epoch) ([]ShardInfo, []*format.Index, error) {
	if f.pack != format.NoPack {
		return f.openPack(d, e)
	}
	info, idx, err := level.Uncommitted(d, e, f.shards[0].rank)
	if err == nil && info.Digest != f.shards[0].digest {
		err = errOtherShards
	}
	info.Node = f.shards[0].node()
	return []ShardInfo{info}, []*format.Index{idx}, err
}

var errOtherShards = errors.New("file of other shards")

// openPack is existing for a pack.
func (f *copyFile) openPack(d level.Epochs, e Epoch) (infos []ShardInfo, idxs []*format.Index, err error) {
	infos, err = level.ReadPack(d, e, f.name)
	if err != nil {
		return nil, nil, err
	}
	if len(infos) != len(f.shards) {
		return nil, nil, errOtherShards
	}
	for i, sh := range f.shards {
		if infos[i].Rank != sh.rank || infos[i].Digest != sh.digest || infos[i].Pack != f.pack {
			return nil, nil, errOtherShards
		}
		x, err := level.OpenExtent(d, e, f.name, infos[i])
		if err != nil {
			return nil, nil, err
		}
		idx, err := x.Index(e, sh.rank)
		if err := errors.Join(err, x.Close()); err != nil {
			return nil, nil, err
		}
		idxs = append(idxs, idx)
	}
	return infos, idxs, nil
}
