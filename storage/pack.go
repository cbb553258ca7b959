package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// packBytes is how long a pack may grow before a new one is begun. A flush that
// a crash cut short goes on after the last whole pack.
const packBytes = 8 << 30

// packJob is a pack to be written.
type packJob struct {
	first  int // rank after which the pack is named
	shards []*Shard
}

// FlushNode copies the shards of several ranks, those of a node, to the
// directory of a level, packed into few large files. Apart from that it is like
// Flush; the shards come from the level from, whose directory the ranks share
// or which is reached through the Transport. One rank of each node calls it for
// all, or another if that one dies; packs that are complete are not written
// again. The result is in the order of ranks.
func (s *Store) FlushNode(ctx context.Context, e Epoch, from, to string, ranks []int) ([]ShardInfo, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if _, err := s.at(from); err != nil {
		return nil, err
	}
	l, err := s.packedAt(to)
	if err != nil {
		return nil, err
	}
	defer s.hold(e)()
	infos, err := s.flushNode(ctx, e, from, l, ranks)
	return infos, s.fault("flush", e, to, err)
}

// packedAt finds a level that takes packs.
func (s *Store) packedAt(name string) (*levelState, error) {
	l, err := s.at(name)
	if err == nil && l.Lent() {
		err = &OptionError{Field: "Levels", Reason: "level " + name + " takes no packs; call Flush on every rank"}
	}
	return l, err
}

func (s *Store) flushNode(ctx context.Context, e Epoch, from string, to *levelState, ranks []int) (infos []ShardInfo,
	err error) {
	var shards []*Shard
	defer func() {
		for _, sh := range shards {
			err = errors.Join(err, sh.Close())
		}
	}()
	for _, r := range ranks {
		sh, err := s.fetch(ctx, e, r, s.sources(e, r, from))
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		shards = append(shards, sh)
	}
	if infos, ok, err := committedInfos(&to.Dir, shards); ok || err != nil {
		return infos, err
	}
	if err := to.EnsureEpoch(e); err != nil {
		return nil, to.Unusable(err)
	}
	done, err := s.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	for _, job := range divideIntoPacks(shards, packBytes) {
		part, err := s.pack(ctx, job, to)
		if err != nil {
			return nil, err
		}
		infos = append(infos, part...)
	}
	return inOrder(infos, ranks), nil
}

// committedInfos returns the manifest's entries when the epoch is committed
// already.
func committedInfos(to *level.Dir, shards []*Shard) (infos []ShardInfo, ok bool, err error) {
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

func inOrder(infos []ShardInfo, ranks []int) []ShardInfo {
	slices.SortFunc(infos, func(a, b ShardInfo) int {
		return slices.Index(ranks, a.Rank) - slices.Index(ranks, b.Rank)
	})
	return infos
}

// divideIntoPacks puts shards together in ascending order of ranks.
func divideIntoPacks(shards []*Shard, limit int64) []packJob {
	sorted := slices.Clone(shards)
	slices.SortFunc(sorted, func(a, b *Shard) int { return a.rank - b.rank })
	bytes := make([]int64, len(sorted))
	for i, sh := range sorted {
		bytes[i] = sh.shape.Bytes()
	}
	var jobs []packJob
	for _, p := range packRuns(bytes, limit) {
		jobs = append(jobs, packJob{first: sorted[p.from].rank, shards: sorted[p.from:p.to]})
	}
	return jobs
}

// packRun is a run of shards, given by place, that go into one pack.
type packRun struct{ from, to int }

// packRuns divides shards of so many bytes each. The result depends on nothing
// else: all ranks of a node find the same.
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

// pack writes one pack, unless it is there complete.
func (s *Store) pack(ctx context.Context, job packJob, to *levelState) ([]ShardInfo, error) {
	e := job.shards[0].epoch
	name := format.PackName(job.first)
	if infos, idxs, err := to.openPack(e, name, job); err == nil {
		to.rememberAll(e, idxs)
		return infos, to.SyncEpoch(e)
	}
	var infos []ShardInfo
	var idxs []*format.Index
	var need int64
	specs := make([]*shard.Spec, len(job.shards))
	for i, sh := range job.shards {
		specs[i] = s.spec(e, sh.rank, sh.asSections(ctx))
		specs[i].Head.Node = sh.copies[0].At.Info.Node
		s.prepareSpec(to, specs[i])
		specs[i].Base = s.lastShard(ctx, to, sh.rank, e)
		need += specs[i].Need()
	}
	if err := to.CheckSpace(specs...); err != nil {
		return nil, err
	}
	err := to.Create(e, name, func(f vfs.File) (err error) {
		infos, idxs, err = s.writePack(ctx, f, job, specs, s.throttle(to))
		return err
	})
	if err != nil {
		return nil, to.SpaceError(err, need)
	}
	to.rememberAll(e, idxs)
	return infos, nil
}

func (l *levelState) rememberAll(e Epoch, idxs []*format.Index) {
	for _, idx := range idxs {
		l.remember(e, idx)
	}
}

// writePack writes shard after shard, then the index of the pack.
func (s *Store) writePack(ctx context.Context, f vfs.File, job packJob, specs []*shard.Spec,
	t *shard.Throttle) ([]ShardInfo, []*format.Index, error) {
	w := shard.NewWriter(ctx, f, s.pool, t)
	var infos []ShardInfo
	var idxs []*format.Index
	for i, spec := range specs {
		base := w.Pos()
		info, idx, err := shard.Write(ctx, w, spec)
		if err == nil && info.Digest != job.shards[i].digest {
			err = fmt.Errorf("copy of rank %d differs from its source: %w", info.Rank, ErrCorrupt)
		}
		if err != nil {
			w.Abort()
			return nil, nil, err
		}
		info.Pack, info.Base = job.first, base
		infos, idxs = append(infos, info), append(idxs, idx)
	}
	if err := endPack(w, specs[0].Head.Epoch, job.first, infos); err != nil {
		w.Abort()
		return nil, nil, err
	}
	return infos, idxs, w.Finish()
}

// endPack appends the record that lists the shards, and a footer that finds it.
func endPack(w *shard.Writer, e Epoch, first int, infos []ShardInfo) error {
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

var errOtherPack = errors.New("pack of other shards")

// openPack describes a pack that is complete under its final name, if it holds
// what job would write.
func (l *levelState) openPack(e Epoch, name string, job packJob) ([]ShardInfo, []*format.Index, error) {
	infos, err := l.ReadPack(e, name)
	if err != nil {
		return nil, nil, err
	}
	if len(infos) != len(job.shards) {
		return nil, nil, errOtherPack
	}
	var idxs []*format.Index
	for i, sh := range job.shards {
		if infos[i].Rank != sh.rank || infos[i].Digest != sh.digest || infos[i].Pack != job.first {
			return nil, nil, errOtherPack
		}
		x, err := l.OpenExtent(e, name, infos[i])
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
