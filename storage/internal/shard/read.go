package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Source is a place from which shards can be had.
type Source interface {
	// Name is the level that the copies belong to.
	Name() string
	// locate opens the bytes of a committed shard. The error matches
	// ErrNotCommitted when the epoch does not exist there.
	Locate(ctx context.Context, e format.Epoch, rank int) (*Extent, error)
}

// ErrNoOtherWay marks a Source that would have to do without something which it does not have in the first place.
var ErrNoOtherWay = errors.New("no other way to compute the shard")

// Extent is a shard's run of bytes, wherever it lies.
type Extent struct {
	io.ReaderAt        // offsets are relative to the shard's start
	io.Closer          //
	Name        string // for errors
	N           int64
	Base        int64 // offset of the shard in the file called name
	Info        format.ShardInfo
	Known       *format.Index // of bytes that lie there in another form than in a file; else nil
}

// Copy is one copy of a shard, open for verified reading.
type Copy struct {
	From  Source
	At    *Extent
	Index *format.Index
	mu    sync.Mutex
	Other map[format.Epoch]*Extent // guarded by mu: earlier shards that chunks refer to
}

// Open opens a shard and checks that its index is the committed one.
func Open(ctx context.Context, from Source, e format.Epoch, rank int) (*Copy, error) {
	x, err := from.Locate(ctx, e, rank)
	if err != nil {
		return nil, err
	}
	return x.Open(from, e)
}

// Open makes a Copy of the shard, whose index must be the committed one. After an error the Extent is closed.
func (x *Extent) Open(from Source, e format.Epoch) (*Copy, error) {
	idx := x.Known
	if idx == nil {
		var err error
		if idx, err = x.Index(e); err != nil {
			return nil, errors.Join(err, x.Close())
		}
	}
	return &Copy{From: from, At: x, Index: idx, Other: map[format.Epoch]*Extent{}}, nil
}

// Index reads the index and compares it with the manifest.
func (x *Extent) Index(e format.Epoch) (*format.Index, error) {
	f, err := format.ReadCommitted(x.Name, x, e, &x.Info)
	if err != nil {
		return nil, err
	}
	idx, err := format.ReadIndex(x.Name, x, f)
	if err != nil {
		return nil, err
	}
	if idx.Content() != x.Info.Digest {
		return nil, &format.CorruptError{File: x.Name, Off: x.Base + f.IndexOff, Len: f.IndexLen,
			Reason: "content is not what was committed"}
	}
	if !format.Agrees(x.Info.Layout, idx) {
		return nil, &format.CorruptError{File: x.Name, Off: x.Base + f.IndexOff, Len: f.IndexLen,
			Reason: "the layout of its arrays is not that of the manifest"}
	}
	return idx, nil
}

// holder returns the shard that holds the stored bytes of c.
func (s *Copy) holder(ctx context.Context, c *format.Chunk) (*Extent, error) {
	if c.Origin == s.Index.Epoch {
		return s.At, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.Other[c.Origin]; x != nil {
		return x, nil
	}
	x, err := s.From.Locate(ctx, c.Origin, s.Index.Rank)
	if err != nil {
		return nil, fmt.Errorf("epoch %d holds the chunk: %w", c.Origin, err)
	}
	s.Other[c.Origin] = x
	return x, nil
}

// ReadChunk reads chunk i into dst, which has its length, and verifies it.
func (s *Copy) ReadChunk(ctx context.Context, i int, dst []byte, k *Scratch) error {
	c := &s.Index.Chunks[i]
	if c.Codec == format.CodecZero {
		clear(dst)
		return checkHash(s.At, c, dst)
	}
	x, err := s.holder(ctx, c)
	if err != nil {
		return err
	}
	stored := dst
	if c.Codec != format.CodecRaw {
		stored = room(&k.a, int(c.Stored))
	}
	if err := format.ReadFull(x, stored, c.Off); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return x.corrupt(c, "file is truncated")
		}
		return err
	}
	// Of a chunk stored as it is both sums are over the same bytes, and the
	// hash, which is the stronger, follows below.
	if (c.Codec != format.CodecRaw || k.strict) && format.CRC(stored) != c.CRC {
		return x.corrupt(c, fmt.Sprintf("chunk %d: checksum does not match", i))
	}
	if c.Codec == format.CodecLZ4 {
		if err := format.DecodeChunk(dst, stored, room(&k.b, len(dst)), c); err != nil {
			return x.corrupt(c, err.Error())
		}
	}
	return checkHash(x, c, dst)
}

// ReadTogether reads chunks that are stored as they are, one after the other in
// one shard, with a single read. It reports whether all came out right.
func (s *Copy) ReadTogether(ctx context.Context, i, n int, dst []byte) bool {
	list := s.Index.Chunks[i : i+n]
	end := list[0].Off
	for k := range list {
		c := &list[k]
		if c.Codec != format.CodecRaw || c.Origin != list[0].Origin || c.Off != end {
			return false
		}
		end += int64(c.Length)
	}
	x, err := s.holder(ctx, &list[0])
	if err != nil || format.ReadFull(x, dst, list[0].Off) != nil {
		return false
	}
	for k := range list {
		p := dst[:list[k].Length]
		if xxh3.Hash128(p).Bytes() != list[k].Hash {
			return false
		}
		dst = dst[len(p):]
	}
	return true
}

func checkHash(x *Extent, c *format.Chunk, p []byte) error {
	if xxh3.Hash128(p).Bytes() != c.Hash {
		return x.corrupt(c, "hash of the original bytes does not match")
	}
	return nil
}

func (x *Extent) corrupt(c *format.Chunk, reason string) error {
	return &format.CorruptError{File: x.Name, Off: x.Base + c.Off, Len: int64(c.Stored), Reason: reason}
}

// Close closes the files.
func (s *Copy) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.At.Close()
	for _, x := range s.Other {
		err = errors.Join(err, x.Close())
	}
	clear(s.Other)
	return err
}

// Scratch is memory for decoding. It belongs to one goroutine.
type Scratch struct {
	a, b, c []byte
	strict  bool // check the checksum even if the hash covers the same bytes
}

// Whole is memory for a chunk.
func (k *Scratch) Whole(n int) []byte { return room(&k.c, n) }

func room(p *[]byte, n int) []byte {
	if len(*p) < n {
		*p = make([]byte, n)
	}
	return (*p)[:n]
}

// ReadRange fills dst with the bytes of a section from off on, in parallel; read
// yields runs of n whole chunks from chunk i on.
func ReadRange(x *format.Index, sec *format.Section, dst []byte, off int64, workers int,
	read func(i, n int, dst []byte, mem *Scratch) error) error {
	if off < 0 || off+int64(len(dst)) > sec.Size {
		return fmt.Errorf("section %q has %d bytes, [%d,%d) asked for", sec.Name, sec.Size, off, off+int64(len(dst)))
	}
	if len(dst) == 0 {
		return nil
	}
	step := int64(x.ChunkBytes)
	run := max(runBytes/step, 1)
	first, last := off/step, (off+int64(len(dst))-1)/step
	runs := int((last-first)/run) + 1
	return Parallel(runs, workers, func(k int, mem *Scratch) error {
		from := first + int64(k)*run
		to := min(from+run, last+1)
		at := from*step - off // beginning of the run relative to dst
		n := min(to*step, sec.Size) - from*step
		i := sec.First + int(from)
		if at >= 0 && at+n <= int64(len(dst)) {
			return read(i, int(to-from), dst[at:at+n], mem)
		}
		whole := mem.Whole(int(n))
		if err := read(i, int(to-from), whole, mem); err != nil {
			return err
		}
		copy(dst[max(at, 0):], whole[max(-at, 0):])
		return nil
	})
}

// runBytes is how much is read at once: more than one chunk, because disks like
// that, and little enough to be hashed while it is in the cache of the core.
const runBytes = 1 << 20

// Readers is the number of goroutines that read a shard for a waiting program. Each waits for the disk or hashes its
// bytes, so it takes more of them than requests that keep a disk busy, even on few cores; but more make no disk faster.
const Readers = 8

// Parallel calls do for 0..n-1 from at most workers goroutines and returns the first error.
func Parallel(n, workers int, do func(i int, mem *Scratch) error) error {
	workers = min(n, workers)
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var mem Scratch
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i, &mem); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	if p := failed.Load(); p != nil {
		return *p
	}
	return nil
}

// OpenFile opens a file in the form of a shard, without a manifest to compare. The caller closes f if there is an
// error, the copy if not.
func OpenFile(file string, f vfs.File) (*Copy, error) {
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	foot, idx, err := format.ReadShardIndex(file, f, n)
	if err != nil {
		return nil, err
	}
	x := &Extent{ReaderAt: f, Closer: f, Name: file, N: n, Info: idx.Info(foot.IndexHash, n)}
	c := &Copy{At: x, Index: idx, Other: map[format.Epoch]*Extent{}}
	x.Info.Layout, err = c.layout()
	return c, err
}

func (c *Copy) layout() (*format.Layout, error) {
	sec, ok := c.Index.Section(format.LayoutSection)
	if !ok {
		return nil, nil
	}
	for i := range c.Index.ChunksOf(sec) {
		if chunk := &c.Index.ChunksOf(sec)[i]; chunk.Origin != c.Index.Epoch {
			return nil, c.At.corrupt(chunk, "the layout of the arrays is said to be in another shard")
		}
	}
	b, err := layoutBytes(sec.Size, func(b []byte) error { return c.ReadSection(format.LayoutSection, b, 0) })
	if err != nil {
		return nil, err
	}
	return format.DecodeLayout(c.At.Name, c.Index.Rank, b)
}

// ReadSection reads a range of a section, verified.
func (c *Copy) ReadSection(name string, dst []byte, off int64) error {
	sec, ok := c.Index.Section(name)
	if !ok {
		return fmt.Errorf("%w: %q", ErrNoSection, name)
	}
	return ReadRange(c.Index, sec, dst, off, 1, func(i, n int, dst []byte, mem *Scratch) error {
		for ; n > 0; i, n = i+1, n-1 {
			length := int(c.Index.Chunks[i].Length)
			if err := c.ReadChunk(context.Background(), i, dst[:length], mem); err != nil {
				return err
			}
			dst = dst[length:]
		}
		return nil
	})
}
