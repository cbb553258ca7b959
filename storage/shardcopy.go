package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/zeebo/xxh3"
)

// source is a place from which shards can be had.
type source interface {
	// levelName is the level that the copies belong to.
	levelName() string
	// locate opens the bytes of a committed shard. The error matches
	// ErrNotCommitted when the epoch does not exist there.
	locate(ctx context.Context, e Epoch, rank int) (*extent, error)
}

// extent is a shard's run of bytes, wherever it lies.
type extent struct {
	io.ReaderAt        // offsets are relative to the shard's start
	io.Closer          //
	name        string // for errors
	n           int64
	base        int64 // offset of the shard in the file called name
	info        ShardInfo
}

// shardCopy is one copy of a shard, open for verified reading.
type shardCopy struct {
	from  source
	at    *extent
	idx   *format.Index
	mu    sync.Mutex
	other map[Epoch]*extent // guarded by mu: earlier shards that chunks refer to
}

// openCopy opens a shard and checks that its index is the committed one.
func openCopy(ctx context.Context, from source, e Epoch, rank int) (*shardCopy, error) {
	x, err := from.locate(ctx, e, rank)
	if err != nil {
		return nil, err
	}
	idx, err := x.index(e, rank)
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return &shardCopy{from: from, at: x, idx: idx, other: map[Epoch]*extent{}}, nil
}

// footer reads the footer and compares it with the manifest.
func (x *extent) footer(e Epoch, rank int) (*format.Footer, error) {
	f, err := format.ReadFooter(x.name, x, x.n)
	if err != nil {
		return nil, err
	}
	if f.Epoch != e || f.Rank != rank || f.IndexHash != x.info.Index {
		return nil, &CorruptError{File: x.name, Off: x.base + x.n - format.FooterLen, Len: format.FooterLen,
			Reason: "is not the shard that was committed"}
	}
	return f, nil
}

func (x *extent) index(e Epoch, rank int) (*format.Index, error) {
	f, err := x.footer(e, rank)
	if err != nil {
		return nil, err
	}
	idx, err := format.ReadIndex(x.name, x, f)
	if err != nil {
		return nil, err
	}
	if idx.Content() != x.info.Digest {
		return nil, &CorruptError{File: x.name, Off: x.base + f.IndexOff, Len: f.IndexLen,
			Reason: "content is not what was committed"}
	}
	return idx, nil
}

// holder returns the shard that holds the stored bytes of c.
func (s *shardCopy) holder(ctx context.Context, c *format.Chunk) (*extent, error) {
	if c.Origin == s.idx.Epoch {
		return s.at, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.other[c.Origin]; x != nil {
		return x, nil
	}
	x, err := s.from.locate(ctx, c.Origin, s.idx.Rank)
	if err != nil {
		return nil, fmt.Errorf("epoch %d holds the chunk: %w", c.Origin, err)
	}
	s.other[c.Origin] = x
	return x, nil
}

// readChunk reads chunk i into dst, which has its length, and verifies it.
func (s *shardCopy) readChunk(ctx context.Context, i int, dst []byte, k *scratch) error {
	c := &s.idx.Chunks[i]
	if c.Codec == format.CodecZero {
		clear(dst)
		return checkHash(s.at, c, dst)
	}
	x, err := s.holder(ctx, c)
	if err != nil {
		return err
	}
	stored := dst
	if c.Codec != format.CodecRaw {
		stored = k.stored(int(c.Stored))
	}
	if err := format.ReadFull(x, stored, c.Off); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return x.corrupt(c, "file is cut short")
		}
		return err
	}
	// Of a chunk stored as it is both sums are over the same bytes, and the
	// hash, which is the stronger, follows below.
	if (c.Codec != format.CodecRaw || k.strict) && format.CRC(stored) != c.CRC {
		return x.corrupt(c, fmt.Sprintf("chunk %d: checksum does not match", i))
	}
	if c.Codec == format.CodecLZ4 {
		if err := format.DecodeChunk(dst, stored, k.planes(len(dst)), c); err != nil {
			return x.corrupt(c, err.Error())
		}
	}
	return checkHash(x, c, dst)
}

// readTogether reads chunks that are stored as they are, one after the other in
// one shard, with a single read. It says whether all came out right.
func (s *shardCopy) readTogether(ctx context.Context, i, n int, dst []byte) bool {
	list := s.idx.Chunks[i : i+n]
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

func checkHash(x *extent, c *format.Chunk, p []byte) error {
	if xxh3.Hash128(p).Bytes() != c.Hash {
		return x.corrupt(c, "hash of the original bytes does not match")
	}
	return nil
}

func (x *extent) corrupt(c *format.Chunk, reason string) error {
	return &CorruptError{File: x.name, Off: x.base + c.Off, Len: int64(c.Stored), Reason: reason}
}

func (s *shardCopy) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.at.Close()
	for _, x := range s.other {
		err = errors.Join(err, x.Close())
	}
	clear(s.other)
	return err
}

// scratch is memory for decoding. It belongs to one goroutine.
type scratch struct {
	a, b, c []byte
	strict  bool // check the checksum even where the hash covers the same bytes
}

func (k *scratch) stored(n int) []byte { return room(&k.a, n) }
func (k *scratch) planes(n int) []byte { return room(&k.b, n) }
func (k *scratch) whole(n int) []byte  { return room(&k.c, n) }

func room(p *[]byte, n int) []byte {
	if len(*p) < n {
		*p = make([]byte, n)
	}
	return (*p)[:n]
}

// levelName makes a levelDir a source.
func (d *levelDir) levelName() string { return d.name }

// locate opens the file that the manifest names.
func (d *levelDir) locate(ctx context.Context, e Epoch, rank int) (*extent, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := d.readManifest(e)
	if err != nil {
		return nil, err
	}
	return d.locateIn(m, rank)
}

func (d *levelDir) locateIn(m *format.Manifest, rank int) (*extent, error) {
	info, err := m.Shard(rank)
	if err != nil {
		return nil, err
	}
	name := format.ShardName(rank)
	if info.Pack != format.NoPack {
		name = format.PackName(info.Pack)
	}
	return d.openExtent(m.Epoch, name, info)
}

func (d *levelDir) openExtent(e Epoch, name string, info ShardInfo) (*extent, error) {
	file, err := d.epochFile(e, name)
	if err != nil {
		return nil, err
	}
	f, err := d.fs.Open(file)
	if err != nil {
		return nil, err
	}
	n, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	short := n < info.Base+info.ShardBytes
	if long := info.Pack == format.NoPack && n > info.ShardBytes; short || long {
		err := &CorruptError{File: file, Len: n,
			Reason: fmt.Sprintf("file has %d bytes, the shard ends at %d", n, info.Base+info.ShardBytes)}
		return nil, errors.Join(err, f.Close())
	}
	return &extent{
		ReaderAt: io.NewSectionReader(f, info.Base, info.ShardBytes), Closer: f,
		name: file, n: info.ShardBytes, base: info.Base, info: info,
	}, nil
}
