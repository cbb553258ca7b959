package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// SourceMemory is the Shard.Level of a shard that is read from memory. It is no level: nothing is committed there.
const SourceMemory = "memory"

// MemoryShard is a rank's shard of a committed epoch that still lies in the memory it was put from, after the program
// has ended. A Store that has it in its Options reads the epoch from there first. Chunks that the manifest of a level
// does not confirm count as damaged, so the memory need not be trusted. But it must no longer change once it was
// verified. Its calls are local.
type MemoryShard struct {
	index *format.Index // all chunks stored as they are, one section after the other
	secs  []Section
	base  []int64 // where each section starts

	mu        sync.RWMutex
	forgotten bool // guarded by mu: the memory may no longer be read

	once   sync.Once
	damage error // by once
}

// InMemory returns the sections of this rank's shard of e as a MemoryShard for a later Store. It returns nil if this
// Store has not committed e as its newest at any level. Sources are Slicers. It copies no bytes.
func (s *Store) InMemory(e Epoch, secs []Section) *MemoryShard {
	for _, l := range s.levels {
		l.mu.Lock()
		idx := l.base[s.opt.Rank]
		l.mu.Unlock()
		if idx != nil && idx.Epoch == e {
			return newMemoryShard(idx, secs)
		}
	}
	return nil
}

// newMemoryShard describes memory by the index of the shard that was put from it.
func newMemoryShard(put *format.Index, secs []Section) *MemoryShard {
	m := &MemoryShard{secs: secs}
	if len(secs) != len(put.Sections) {
		return nil
	}
	x := *put
	x.Chunks = make([]format.Chunk, len(put.Chunks))
	var at int64
	for i := range secs {
		sec := &put.Sections[i]
		if _, is := secs[i].Source.(Slicer); !is || secs[i].Name != sec.Name || secs[i].Size != sec.Size {
			return nil
		}
		m.base = append(m.base, at)
		for left, k := sec.Size, sec.First; left > 0; k++ {
			c := &put.Chunks[k]
			x.Chunks[k] = format.Chunk{Origin: put.Epoch, Off: at, Stored: c.Length, Length: c.Length, Hash: c.Hash}
			at += int64(c.Length)
			left -= int64(c.Length)
		}
	}
	m.index = &x
	return m
}

// Epoch returns the epoch of the shard; 0 of nil.
func (m *MemoryShard) Epoch() Epoch {
	if m == nil {
		return 0
	}
	return m.index.Epoch
}

// LiesIn reports whether any of the sections lies in this piece of memory.
func (m *MemoryShard) LiesIn(b []byte) bool {
	first := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return slices.ContainsFunc(m.secs, func(sec Section) bool {
		at := sec.Source.(Slicer).Slice(0, int(sec.Size))
		p := uintptr(unsafe.Pointer(unsafe.SliceData(at)))
		return len(at) > 0 && p >= first && p < first+uintptr(len(b))
	})
}

// Verify checks every byte in place, once: from then on the memory must not change, and later calls return the same
// result. Cost: one pass over the memory by several goroutines. Damage matches ErrCorrupt, and names section and bytes.
func (m *MemoryShard) Verify() error {
	m.once.Do(func() { m.damage = m.verify() })
	return m.damage
}

func (m *MemoryShard) verify() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.forgotten {
		return errForgotten
	}
	for i := range m.secs {
		x := &m.index.Sections[i]
		err := shard.Parallel(int(format.ChunkCount(x.Size, m.index.ChunkBytes)), shard.Readers,
			func(k int, _ *shard.Scratch) error {
				c := &m.index.Chunks[x.First+k]
				off := int64(k) * int64(m.index.ChunkBytes)
				if format.Hash(m.secs[i].Source.(Slicer).Slice(off, int(c.Length))) != c.Hash {
					return fmt.Errorf("section %q, bytes %d to %d: %w", x.Name, off, off+int64(c.Length), ErrCorrupt)
				}
				return nil
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// Forget ends the use of the memory. It waits for reads under way; later ones go to the levels.
func (m *MemoryShard) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgotten, m.secs = true, nil
}

var errForgotten = errors.New("the memory of the earlier start was given back")

// ReadAt reads the sections as if they lay one after the other. It copies them to p. After Forget it fails.
func (m *MemoryShard) ReadAt(p []byte, off int64) (n int, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.forgotten {
		return 0, errForgotten
	}
	for i := 0; i < len(m.secs) && n < len(p); i++ {
		if from := off + int64(n) - m.base[i]; from >= 0 && from < m.secs[i].Size {
			part := min(m.secs[i].Size-from, int64(len(p)-n))
			n += copy(p[n:], m.secs[i].Source.(Slicer).Slice(from, int(part)))
		}
	}
	if n < len(p) {
		return n, fmt.Errorf("%d bytes at %d: the memory of the earlier start has fewer", len(p), off)
	}
	return n, nil
}

// Close does nothing: whoever has made the memory frees it, after Forget.
func (m *MemoryShard) Close() error { return nil }

// matches reports whether the memory has exactly the shard of a manifest's entry.
func (m *MemoryShard) matches(e Epoch, info *ShardInfo) bool {
	if m == nil {
		return false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return !m.forgotten && m.index.Epoch == e && m.index.Rank == info.Rank && m.index.Content() == info.Digest
}

// memorySource is a MemoryShard as a source of shards.
type memorySource struct {
	s *Store
	m *MemoryShard
}

func (f *memorySource) Name() string { return SourceMemory }

// Locate finds a level that has committed the epoch with these contents.
func (f *memorySource) Locate(ctx context.Context, e Epoch, rank int) (*shard.Extent, error) {
	for _, l := range f.s.levels {
		info, id, err := f.committed(ctx, l, e, rank)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil && f.m.matches(e, &info) && f.s.catalog.Contents.Allows(e, id) {
			return &shard.Extent{ReaderAt: f.m, Closer: f.m, Name: SourceMemory, N: info.Bytes, Info: info,
				Known: f.m.index}, nil
		}
	}
	return nil, fmt.Errorf("%w: no level has committed what is in memory", ErrNotCommitted)
}

// committed returns a level's entry of this rank's shard: from rank 0, or from the manifest.
func (f *memorySource) committed(ctx context.Context, l *levelState, e Epoch, rank int) (info ShardInfo,
	id func() [16]byte, err error) {
	if info, id := l.Listed.Shard(e); info != nil && rank == f.s.opt.Rank {
		return *info, func() [16]byte { return id }, nil
	}
	m, err := f.s.catalog.Manifest(ctx, l.Level, e)
	if err == nil && rank >= len(m.Shards) {
		err = ErrNotCommitted
	}
	if err != nil {
		return info, nil, err
	}
	return m.Shards[rank], m.ID, nil
}

// VerifyMemory makes it a fetch.InPlace.
func (f *memorySource) VerifyMemory() error { return f.m.Verify() }

func (f *memorySource) Section(name string) []byte {
	for _, sec := range f.m.secs {
		if sec.Name == name {
			return sec.Source.(Slicer).Slice(0, int(sec.Size))
		}
	}
	return nil
}
