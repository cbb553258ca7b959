package storage

import (
	"context"
	"fmt"
	"io"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/zeebo/xxh3"
)

// pageSections is the size from which a section starts on a page of its own, so
// that it can be written from where it lies. Smaller ones are packed together.
const pageSections = 64 << 10

// shardSpec says what shard is to be written and how.
type shardSpec struct {
	head     shardHeader
	sections []Section
	base     *shardIndex // an earlier shard of the rank at this place; may be nil
	wanted   *shardIndex // what is expected to be written; may be nil
	compress compression
	name     string // of the file, if it is not the rank's shard
	room     int64  // length that the shard is to have, whole pages; 0: what it needs
}

// shardWriter writes the bytes of one shard, in one pass over the sections.
type shardWriter struct {
	w     *blockWriter
	spec  *shardSpec
	start int64 // where the shard begins in the file
	idx   shardIndex
	pack  packer

	trial  compressTrial
	tooOld Epoch // chunks of this epoch and earlier ones are not referred to
}

// writeShard appends a whole shard and returns what a manifest needs to know
// of it. Nothing is synced.
func writeShard(ctx context.Context, w *blockWriter, spec *shardSpec) (ShardInfo, *shardIndex, error) {
	s := &shardWriter{w: w, spec: spec, start: w.pos(), tooOld: oldestUseful(spec.base)}
	s.idx = shardIndex{
		epoch: spec.head.epoch, rank: spec.head.rank, size: spec.head.size,
		chunkBytes: chunkBytes,
	}
	if err := spec.fits(); err != nil {
		return ShardInfo{}, nil, err
	}
	if err := w.copyIn(spec.head.encode()); err != nil {
		return ShardInfo{}, nil, err
	}
	for i := range spec.sections {
		if err := s.section(ctx, &spec.sections[i]); err != nil {
			return ShardInfo{}, nil, err
		}
	}
	info, err := s.end()
	return info, &s.idx, err
}

// end appends index and footer.
func (s *shardWriter) end() (ShardInfo, error) {
	index := s.idx.encode()
	f := footer{
		magic: footerMagic, indexOff: s.w.pos() - s.start, indexLen: int64(len(index)), indexHash: hashOf(index),
		epoch: s.idx.epoch, rank: s.idx.rank,
	}
	if _, err := decodeIndex(s.spec.fileName(), index, f.indexOff); err != nil {
		return ShardInfo{}, fmt.Errorf("the shard could not be read back: %w", err)
	}
	if err := s.w.copyIn(index); err != nil {
		return ShardInfo{}, err
	}
	if err := s.w.skipTo(s.start + s.spec.room - vfs.Align); err != nil {
		return ShardInfo{}, err
	}
	if err := s.w.alignTo(vfs.Align, footerLen); err != nil {
		return ShardInfo{}, err
	}
	f.shardLen = s.w.pos() + footerLen - s.start
	if err := s.w.copyIn(f.encode()); err != nil {
		return ShardInfo{}, err
	}
	return ShardInfo{
		Rank: s.idx.rank, Node: s.spec.head.node,
		Bytes: s.idx.bytes(), Stored: s.idx.owned(), ShardBytes: f.shardLen,
		Digest: s.idx.content(), index: f.indexHash, origins: s.idx.origins(),
		pack: noPack,
	}, nil
}

func (s *shardWriter) section(ctx context.Context, sec *Section) error {
	if _, dup := s.idx.section(sec.Name); dup {
		return fmt.Errorf("two sections are named %q", sec.Name)
	}
	if sec.Size >= pageSections {
		if err := s.w.alignTo(vfs.Align, 0); err != nil {
			return err
		}
	}
	s.idx.sections = append(s.idx.sections,
		sectionEntry{name: sec.Name, size: sec.Size, first: len(s.idx.chunks)})
	if err := s.pieces(ctx, sec); err != nil {
		return fmt.Errorf("section %q: %w", sec.Name, err)
	}
	return nil
}

// pieces cuts a section into blocks. Where the source knows its chunks, those
// that need not be stored are not even read.
func (s *shardWriter) pieces(ctx context.Context, sec *Section) error {
	const perBlock = blockBytes / chunkBytes
	n := int(chunkCount(sec.Size, chunkBytes))
	old := padChunks(chunksIn(s.spec.base, sec.Name), n)
	known := padChunks(knownChunks(sec), n)
	wanted := padChunks(chunksIn(s.spec.wanted, sec.Name), n)
	for i := 0; i < n; {
		if s.skip(&known[i], &old[i]) {
			i++
			continue
		}
		end := i + 1
		for end < n && end-i < perBlock && !s.wouldSkip(&known[end], &old[end]) {
			end++
		}
		off := int64(i) * chunkBytes
		size := int(min(int64(end)*chunkBytes, sec.Size) - off)
		if err := s.piece(ctx, sec, off, size, chunkHints{old[i:end], known[i:end], wanted[i:end]}); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// chunkHints says of each chunk of a piece what an earlier shard had there, what
// the source knows of it, and what it should turn out to be; entries of length 0
// say nothing.
type chunkHints struct{ old, known, wanted []chunk }

func padChunks(list []chunk, n int) []chunk {
	if len(list) < n {
		list = append(append(make([]chunk, 0, n), list...), make([]chunk, n-len(list))...)
	}
	return list[:n]
}

// chunkSource is a Source that has verified the bytes it yields against chunks
// cut like ours, so that they need not be hashed again.
type chunkSource interface {
	knownChunks() []chunk
}

func knownChunks(sec *Section) []chunk {
	if k, ok := sec.Source.(chunkSource); ok {
		return k.knownChunks()
	}
	return nil
}

// same says whether the earlier chunk can be referred to.
func (s *shardWriter) same(hash [16]byte, length uint32, old *chunk) bool {
	return old.holds(hash, length, s.tooOld)
}

// holds says whether c has the bytes of another chunk on the disk, in an epoch
// later than tooOld.
func (c *chunk) holds(hash [16]byte, length uint32, tooOld Epoch) bool {
	return c.length == length && c.codec != codecZero && c.hash == hash && c.origin > tooOld
}

func (s *shardWriter) wouldSkip(known, old *chunk) bool {
	return known.length > 0 && (known.codec == codecZero || s.same(known.hash, known.length, old))
}

// maxOrigins bounds how many earlier epochs a shard may refer to, and so how
// many are kept for its sake.
const maxOrigins = 8

// oldestUseful is the newest epoch that a shard after base may no longer refer
// to, so that it refers to at most maxOrigins; what lies there is written again.
func oldestUseful(base *shardIndex) Epoch {
	if base == nil {
		return 0
	}
	list := append(base.origins(), base.epoch)
	if len(list) <= maxOrigins {
		return 0
	}
	return list[len(list)-maxOrigins-1]
}

// skip enters a chunk whose bytes need not be read.
func (s *shardWriter) skip(known, old *chunk) bool {
	if !s.wouldSkip(known, old) {
		return false
	}
	c := *old
	if known.codec == codecZero {
		c = chunk{origin: s.idx.epoch, length: known.length, codec: codecZero, hash: known.hash}
	}
	s.idx.chunks = append(s.idx.chunks, c)
	return true
}

// chunksIn returns the chunks that a shard, if any, has for a section.
func chunksIn(x *shardIndex, name string) []chunk {
	if x == nil || x.chunkBytes != chunkBytes {
		return nil
	}
	sec, ok := x.section(name)
	if !ok {
		return nil
	}
	return x.chunks[sec.first : sec.first+int(chunkCount(sec.size, x.chunkBytes))]
}

// piece writes up to blockBytes of a section.
func (s *shardWriter) piece(ctx context.Context, sec *Section, off int64, n int, hints chunkHints) error {
	var p []byte
	var from *lease
	if sl, ok := sec.Source.(Slicer); ok {
		p = sl.Slice(off, n)
	}
	if p == nil {
		l, err := s.w.pool.lease(ctx)
		if err != nil {
			return err
		}
		defer l.drop()
		if err := readSource(sec.Source, l.buf[:n], off); err != nil {
			return err
		}
		p, from = l.buf[:n], l
	}
	if len(p) != n {
		return fmt.Errorf("source gave %d bytes of %d at %d", len(p), n, off)
	}
	return s.chunksOf(p, from, hints)
}

func readSource(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = fmt.Errorf("source ends after %d bytes: %w", off+int64(n), io.ErrUnexpectedEOF)
	}
	return err
}

// chunksOf writes p as chunks. Chunks that are stored as they are and follow
// each other go to the file in one run.
func (s *shardWriter) chunksOf(p []byte, from *lease, hints chunkHints) error {
	run := 0 // start of the bytes in p that are not yet appended
	for at := 0; at < len(p); at += chunkBytes {
		end := min(at+chunkBytes, len(p))
		c := chunk{origin: s.idx.epoch, length: uint32(end - at)}
		k := at / chunkBytes
		stored := s.encode(&c, p[at:end], &hints.old[k], &hints.known[k], &hints.wanted[k])
		if c.codec == codecRaw && c.origin == s.idx.epoch {
			c.off = s.w.pos() - s.start + int64(at-run)
			s.idx.chunks = append(s.idx.chunks, c)
			continue
		}
		if err := s.w.append(p[run:at], from); err != nil {
			return err
		}
		run = end
		if c.origin == s.idx.epoch && c.stored > 0 {
			c.off = s.w.pos() - s.start
			if err := s.w.copyIn(stored); err != nil {
				return err
			}
		}
		s.idx.chunks = append(s.idx.chunks, c)
	}
	return s.w.append(p[run:], from)
}

// encode decides how a chunk is stored and fills its entry but for the offset.
// It returns the stored bytes if they are not the original ones.
func (s *shardWriter) encode(c *chunk, p []byte, old, known, wanted *chunk) []byte {
	if known.length == 0 {
		c.hash = xxh3.Hash128(p).Bytes()
	} else {
		c.hash = known.hash
	}
	if nonZero(p) < 0 {
		c.codec = codecZero
		return nil
	}
	if s.same(c.hash, c.length, old) {
		*c = *old
		return nil
	}
	if s.tryCompress(p) {
		if q := s.pack.compress(c, p); q != nil {
			c.stored, c.crc = uint32(len(q)), crcOf(q)
			return q
		}
	}
	c.stored = c.length
	if known.length == c.length && known.codec == codecRaw {
		c.crc = known.crc
	} else if w := wanted; w.length == c.length && w.codec == codecRaw && w.hash == c.hash {
		c.crc = w.crc // the same bytes were summed before
	} else {
		c.crc = crcOf(p)
	}
	return nil
}
