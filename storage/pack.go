package storage

import (
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// divideIntoPacks puts shards together in ascending order of ranks. A flush that a crash cut short continues after
// the last whole pack.
func divideIntoPacks(shards []*Shard, limit int64) []copyFile {
	sorted := slices.Clone(shards)
	slices.SortFunc(sorted, func(a, b *Shard) int { return a.rank - b.rank })
	bytes := make([]int64, len(sorted))
	for i, sh := range sorted {
		bytes[i] = sh.shape.Bytes()
	}
	var files []copyFile
	for _, p := range packRuns(bytes, limit) {
		first := sorted[p.from].rank
		files = append(files, copyFile{format.PackName(first), first, sorted[p.from:p.to]})
	}
	return files
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
