package peer

import (
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// MemShard is the part of a shard that lies in memory.
type MemShard struct {
	mu    sync.RWMutex
	spans []memSpan // guarded by mu; ascending; nil when it is no longer served
}

// memSpan is n bytes of the shard from off on: p, or the bytes of src from at on.
type memSpan struct {
	off, n int64
	p      []byte
	src    shard.Gathered
	at     int64
}

func (s *memSpan) copy(p []byte, from int64) int {
	if s.src == nil {
		return copy(p, s.p[from:])
	}
	n, err := s.src.ReadAt(p[:min(int64(len(p)), s.n-from)], s.at+from)
	if err != nil {
		return 0 // the file has it, too
	}
	return n
}

// NewMemShard finds the parts of a shard in the memory of the sections that were put.
func NewMemShard(x *format.Index, secs []shard.Section) (*MemShard, error) {
	m := &MemShard{}
	for i := range secs {
		sec := &secs[i]
		chunks := format.ChunksIn(x, sec.Name)
		if int64(len(chunks)) != format.ChunkCount(sec.Size, x.ChunkBytes) {
			return nil, fmt.Errorf("section %q changed since it was written: %w", sec.Name, format.ErrCorrupt)
		}
		sl, ok := sec.Source.(shard.Slicer)
		gathered, scattered := sec.Source.(shard.Gathered)
		if !ok && !scattered {
			continue
		}
		for k := range chunks {
			c := &chunks[k]
			if c.Codec != format.CodecRaw || c.Origin != x.Epoch {
				continue
			}
			at := int64(k) * int64(x.ChunkBytes)
			if scattered {
				m.spans = append(m.spans, memSpan{off: c.Off, n: int64(c.Length), src: gathered, at: at})
			} else if p := sl.Slice(at, int(c.Length)); p != nil {
				m.spans = append(m.spans, memSpan{off: c.Off, n: int64(len(p)), p: p})
			}
		}
	}
	sort.Slice(m.spans, func(i, j int) bool { return m.spans[i].off < m.spans[j].off })
	return m, nil
}

// copyAt copies the bytes in memory from off on, and returns their number. When there is none, gap is how far it is to
// the next bytes, at most len(p).
func (m *MemShard) copyAt(p []byte, off int64) (n, gap int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	i, at := slices.BinarySearchFunc(m.spans, off, func(s memSpan, off int64) int {
		return int(min(max(s.off-off, -1), 1))
	})
	if !at {
		i-- // the span that begins before off
	}
	for ; i >= 0 && i < len(m.spans) && n < len(p); i++ {
		s := m.spans[i]
		from := off + int64(n) - s.off
		if from < 0 || from >= s.n {
			break
		}
		n += s.copy(p[n:], from)
	}
	if n > 0 {
		return n, 0
	}
	if gap = len(p); i+1 < len(m.spans) {
		gap = int(min(int64(gap), m.spans[i+1].off-off))
	}
	return 0, gap
}

// MemFS serves reads of some files from memory.
type MemFS struct {
	vfs.FS
	served sync.Map // of paths: *MemShard
}

// Serve serves reads of a file from memory until release is called, which waits for reads under way.
func (f *MemFS) Serve(path string, m *MemShard) (release func()) {
	f.served.Store(path, m)
	return func() {
		f.served.CompareAndDelete(path, m)
		m.mu.Lock()
		m.spans = nil
		m.mu.Unlock()
	}
}

// Open opens a file for reading; it reads the parts of a lent one that lie in memory from there.
func (f *MemFS) Open(name string) (vfs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if m, served := f.served.Load(name); served {
		return &memFile{file, m.(*MemShard)}, nil
	}
	return file, nil
}

// memFile is an open file, part of which is in memory.
type memFile struct {
	vfs.File
	m *MemShard
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		n, gap := f.m.copyAt(p[done:], off+int64(done))
		if n == 0 {
			var err error
			if n, err = f.File.ReadAt(p[done:done+gap], off+int64(done)); err != nil {
				return done + n, err
			}
		}
		done += n
	}
	return done, nil
}
