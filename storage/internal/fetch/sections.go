package fetch

import (
	"context"
	"io"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// IndexOf returns the index of the copy that was opened first: names, sizes, hashes.
func IndexOf(sh *Shard) *format.Index { return sh.shape }

// CopyOf returns the copy that was opened first.
func CopyOf(sh *Shard) *shard.Copy {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.copies[0]
}

// Proven reports whether the first place of the shard has every chunk right, because each was read there and no damage
// was found: then later shards may refer to it. The section that no shard refers to need not have been read.
func Proven(sh *Shard) bool {
	sh.mu.Lock()
	damaged := len(sh.damage) > 0
	sh.mu.Unlock()
	if damaged {
		return false
	}
	for i := range sh.shape.Sections {
		sec := &sh.shape.Sections[i]
		if sec.Name == format.LayoutSection {
			continue
		}
		for k := range sh.shape.ChunksOf(sec) {
			if !sh.right[sec.First+k].Load() {
				return false
			}
		}
	}
	return true
}

// OnClose has Close call f, once.
func OnClose(sh *Shard, f func()) { sh.leaving = f }

// Sections makes the sections of a shard Sources for a copy in the background, read by that many workers.
func Sections(ctx context.Context, sh *Shard, workers int) []shard.Section {
	sh.workers = workers
	var secs []shard.Section
	for _, sec := range sh.Sections() {
		secs = append(secs, shard.Section{Name: sec.Name, Size: sec.Size, Source: &sectionReader{ctx, sh, sec}})
	}
	return secs
}

// sectionReader reads a section of a shard as a Source.
type sectionReader struct {
	ctx context.Context
	sh  *Shard
	sec SectionInfo
}

func (r *sectionReader) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > r.sec.Size {
		return 0, io.ErrUnexpectedEOF
	}
	if err := r.sh.ReadAt(r.ctx, r.sec.Name, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

// KnownChunks makes sectionReader a chunkSource.
func (r *sectionReader) KnownChunks() []format.Chunk {
	return format.ChunksIn(r.sh.shape, r.sec.Name)
}
