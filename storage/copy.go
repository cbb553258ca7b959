package storage

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// copying is a way of shards from one level to another. All copies go by it, except that the ranks of a NodePack write
// theirs themselves.
type copying struct {
	to     *levelState
	dir    level.Epochs // of the files: at to, or at the same level of another rank
	shards []*Shard     // of one epoch
	packed bool         // into few large files; else each into its own
	secs   []Section    // of the only shard, in memory; nil: it is read
}

// copyFile is one file that a copying makes.
type copyFile struct {
	name   string
	pack   int // number of the pack, or format.NoPack
	shards []*Shard
}

// copyShards makes the shards durable and not yet committed. It does not write again the files that an earlier attempt
// completed; it leaves committed files alone, and does not remember their indices.
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
			files = append(files, copyFile{format.ShardName(sh.Rank()), format.NoPack, []*Shard{sh}})
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
	m, err := to.ReadManifest(shards[0].Epoch())
	if errors.Is(err, ErrNotCommitted) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	for _, sh := range shards {
		info, err := m.Shard(sh.Rank())
		if err != nil {
			return nil, false, err
		}
		if info.Digest != sh.Digest() {
			return nil, false, ErrCommitted
		}
		infos = append(infos, info)
	}
	return infos, true, nil
}

// copyInto makes one file, unless a complete one is there. The footer of a file proves that: it is written when all
// bytes before it are durable, or the file gets its name when all of it is.
func (s *Store) copyInto(ctx context.Context, c *copying, f *copyFile) ([]ShardInfo, error) {
	e := f.shards[0].Epoch()
	infos, idxs, err := f.existing(c.dir, e)
	if err == nil {
		if err = level.SyncFile(c.dir, e, f.name); err == nil { // its writer may not have come so far
			err = c.dir.SyncEpoch(e)
		}
	} else {
		specs := make([]*shard.Spec, len(f.shards))
		for i, sh := range f.shards {
			secs := c.secs
			if secs == nil {
				secs = fetch.Sections(ctx, sh, flushCores)
			}
			specs[i] = s.copySpec(ctx, c.to, sh, secs)
		}
		err = c.dir.Put(e, f.name, fetch.RoomOf(specs...), func(to vfs.File) error {
			return shard.WriteTo(ctx, to, s.pools.Own, s.throttle(c.to), func(w *shard.Writer) (err error) {
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

// copySpec returns how a copy of a shard is to be written at a level.
func (s *Store) copySpec(ctx context.Context, to *levelState, sh *Shard, secs []Section) *shard.Spec {
	spec := s.spec(sh.Epoch(), sh.Rank(), secs)
	spec.Head.Node = fetch.CopyOf(sh).At.Info.Node
	spec.Wanted, spec.Digest = fetch.IndexOf(sh), sh.Digest()
	to.cfg.compression(spec)
	spec.Base = s.lastShard(ctx, to, sh.Rank(), sh.Epoch())
	return spec
}

// write writes shard after shard, then the index of a pack.
func (f *copyFile) write(ctx context.Context, w *shard.Writer, specs []*shard.Spec) (infos []ShardInfo,
	idxs []*format.Index, err error) {
	for _, spec := range specs {
		base := w.Pos()
		info, idx, err := shard.Write(ctx, w, spec)
		if err != nil {
			return nil, nil, err
		}
		if f.pack != format.NoPack {
			info.Pack, info.Base = f.pack, base
		}
		infos, idxs = append(infos, info), append(idxs, idx)
	}
	if f.pack != format.NoPack {
		err = shard.EndPack(w, specs[0].Head.Epoch, f.pack, infos)
	}
	return infos, idxs, err
}

// existing describes a complete file, if it holds the bytes that would be written.
func (f *copyFile) existing(d level.Epochs, e Epoch) ([]ShardInfo, []*format.Index, error) {
	if f.pack != format.NoPack {
		return f.openPack(d, e)
	}
	info, idx, err := fetch.Uncommitted(d, e, f.shards[0].Rank())
	if err == nil && info.Digest != f.shards[0].Digest() {
		err = errOtherShards
	}
	info.Node = fetch.CopyOf(f.shards[0]).At.Info.Node
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
		if infos[i].Rank != sh.Rank() || infos[i].Digest != sh.Digest() || infos[i].Pack != f.pack {
			return nil, nil, errOtherShards
		}
		infos[i].Layout = sh.Layout()
		x, err := fetch.OpenExtent(d, e, f.name, infos[i])
		if err != nil {
			return nil, nil, err
		}
		idx, err := x.Index(e)
		if err := errors.Join(err, x.Close()); err != nil {
			return nil, nil, err
		}
		idxs = append(idxs, idx)
	}
	return infos, idxs, nil
}

// divideIntoPacks puts shards together in ascending order of ranks. A flush that a crash cut short continues after
// the last whole pack.
func divideIntoPacks(shards []*Shard, limit int64) []copyFile {
	sorted := slices.Clone(shards)
	slices.SortFunc(sorted, func(a, b *Shard) int { return a.Rank() - b.Rank() })
	bytes := make([]int64, len(sorted))
	for i, sh := range sorted {
		bytes[i] = fetch.IndexOf(sh).Bytes()
	}
	var files []copyFile
	for _, p := range packRuns(bytes, limit) {
		first := sorted[p.from].Rank()
		files = append(files, copyFile{format.PackName(first), first, sorted[p.from:p.to]})
	}
	return files
}

// packRun is a run of shards, given by place, that go into one pack.
type packRun struct{ from, to int }

// packRuns divides shards of the given sizes. The result depends on nothing else: all ranks of a node find the same.
func packRuns(bytes []int64, limit int64) []packRun {
	var runs []packRun
	var room int64
	for i, n := range bytes {
		if len(runs) == 0 || n > room {
			runs = append(runs, packRun{i, i})
			room = limit
		}
		runs[len(runs)-1].to = i + 1
		room -= n
	}
	return runs
}
