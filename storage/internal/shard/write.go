package shard

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/holdfast-hpc/holdfast/internal/invariants"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/zeebo/xxh3"
)

// pageSections is the size from which a section starts on a page of its own, so
// that it can be written from where it lies. Smaller ones are packed together.
const pageSections = 64 << 10

// Spec says what shard is to be written and how.
type Spec struct {
	Head     format.Header
	Sections []Section
	Base     *format.Index // an earlier shard of the rank at this place; may be nil
	Whole    bool          // nothing is referred to; what a source says of Base is checked
	Little   bool          // epochs that have little of it are referred to, too: earlier builds did
	Wanted   *format.Index // what is expected to be written; may be nil
	Compress compression
	Name     string // of the file, if it is not the rank's shard
	Hole     int64  // what is left out behind the header, whole pages: tests make shards large by it
	Room     int64  // length that the shard is to have, whole pages; 0: what it needs
}

// earlier is the chunks that an earlier shard has for a section. The layout lies in every shard itself, so that
// whoever finds one without its manifest can read it.
func (p *Spec) earlier(section string) []format.Chunk {
	if section == format.LayoutSection {
		return nil
	}
	return format.ChunksIn(p.Base, section)
}

// shardWriter writes the bytes of one shard, in one pass over the sections.
type shardWriter struct {
	w     *Writer
	spec  *Spec
	start int64 // where the shard begins in the file
	idx   format.Index
	pack  format.Compressor

	layout *format.Layout // what the section of that name says
	trial  compressTrial
	reuse  reuse
	base   [16]byte // digest of the earlier shard, once a source is asked about it
}

// Write appends a whole shard and returns what a manifest needs to know
// of it. Nothing is synced.
func Write(ctx context.Context, w *Writer, spec *Spec) (format.ShardInfo, *format.Index, error) {
	s := &shardWriter{w: w, spec: spec, start: w.Pos(), reuse: spec.reuse()}
	s.idx = format.Index{
		Epoch: spec.Head.Epoch, Rank: spec.Head.Rank, Size: spec.Head.Size,
		ChunkBytes: format.ChunkBytes,
	}
	if err := spec.Fits(); err != nil {
		return format.ShardInfo{}, nil, err
	}
	refers := spec.Base != nil && !spec.Whole
	if !refers && spec.Compress == compressNever && spec.Hole == 0 { // else it will be much shorter
		w.reserve(cmp.Or(spec.Room, wholePages(spec.Need())))
	}
	if err := w.CopyIn(spec.Head.Encode()); err != nil {
		return format.ShardInfo{}, nil, err
	}
	if err := w.skipTo(w.Pos() + spec.Hole); err != nil {
		return format.ShardInfo{}, nil, err
	}
	for i := range spec.Sections {
		if err := s.section(ctx, &spec.Sections[i]); err != nil {
			return format.ShardInfo{}, nil, err
		}
	}
	info, err := s.end()
	return info, &s.idx, err
}

// end appends index and footer.
func (s *shardWriter) end() (format.ShardInfo, error) {
	index := s.idx.Encode()
	f := format.Footer{
		Magic: format.FooterMagic, IndexOff: s.w.Pos() - s.start, IndexLen: int64(len(index)),
		IndexHash: format.Hash(index), Epoch: s.idx.Epoch, Rank: s.idx.Rank,
	}
	if _, err := format.DecodeIndex(s.spec.FileName(), index, f.IndexOff); err != nil {
		return format.ShardInfo{}, fmt.Errorf("the shard could not be read back: %w", err)
	}
	if err := s.w.CopyIn(index); err != nil {
		return format.ShardInfo{}, err
	}
	if err := s.w.skipTo(s.start + s.spec.Room - vfs.Align); err != nil {
		return format.ShardInfo{}, err
	}
	if err := s.w.AlignTo(vfs.Align, format.FooterLen); err != nil {
		return format.ShardInfo{}, err
	}
	f.ShardLen = s.w.Pos() + format.FooterLen - s.start
	if err := s.w.CopyIn(f.Encode()); err != nil {
		return format.ShardInfo{}, err
	}
	return format.ShardInfo{
		Rank: s.idx.Rank, Node: s.spec.Head.Node,
		Bytes: s.idx.Bytes(), Stored: s.idx.Owned(), ShardBytes: f.ShardLen,
		Digest: s.idx.Content(), Index: f.IndexHash, Origins: s.idx.Origins(),
		Pack: format.NoPack, Layout: s.layout,
	}, nil
}

func (s *shardWriter) section(ctx context.Context, sec *Section) error {
	if _, dup := s.idx.Section(sec.Name); dup {
		return fmt.Errorf("two sections have the name %q", sec.Name)
	}
	if sec.Size >= pageSections {
		if err := s.w.AlignTo(vfs.Align, 0); err != nil {
			return err
		}
	}
	s.idx.Sections = append(s.idx.Sections,
		format.Section{Name: sec.Name, Size: sec.Size, First: len(s.idx.Chunks)})
	if err := s.pieces(ctx, sec); err != nil {
		return fmt.Errorf("section %q: %w", sec.Name, err)
	}
	if sec.Name == format.LayoutSection {
		return s.noteLayout(sec)
	}
	return nil
}

// noteLayout reads the section that says what the shard has of global arrays, for the manifest.
func (s *shardWriter) noteLayout(sec *Section) error {
	b, err := layoutBytes(sec.Size, func(b []byte) error { return readSource(sec.Source, b, 0) })
	if err == nil {
		s.layout, err = format.DecodeLayout(s.spec.FileName(), s.idx.Rank, b)
	}
	return err
}

// layoutBytes reads a section of that many bytes, if it may be so long.
func layoutBytes(size int64, read func(b []byte) error) ([]byte, error) {
	if size > format.MaxLayoutBytes {
		return nil, &format.LimitError{What: "bytes of section " + format.LayoutSection, Have: size,
			Most: format.MaxLayoutBytes, Remedy: "declare fewer, larger blocks or items"}
	}
	b := make([]byte, size)
	return b, read(b)
}

// pieces cuts a section into blocks. Where the source knows its chunks, those
// that need not be stored are not even read.
func (s *shardWriter) pieces(ctx context.Context, sec *Section) error {
	const perBlock = BlockBytes / format.ChunkBytes
	n := int(format.ChunkCount(sec.Size, format.ChunkBytes))
	old := format.PadChunks(s.spec.earlier(sec.Name), n)
	known := format.PadChunks(knownChunks(sec), n)
	wanted := format.PadChunks(format.ChunksIn(s.spec.Wanted, sec.Name), n)
	claimed := s.claims(sec, old)
	for i, c := range claimed {
		if c && known[i].Length == 0 && !s.spec.Whole && !invariants.Enabled && s.wouldSkip(&old[i], &old[i]) {
			known[i] = old[i] // it need not be read
		}
	}
	for i := 0; i < n; {
		if s.skip(&known[i], &old[i]) {
			i++
			continue
		}
		end := i + 1
		for end < n && end-i < perBlock && !s.wouldSkip(&known[end], &old[end]) {
			end++
		}
		off := int64(i) * format.ChunkBytes
		size := int(min(int64(end)*format.ChunkBytes, sec.Size) - off)
		hints := chunkHints{old[i:end], known[i:end], wanted[i:end], claimed[i:end]}
		if err := s.piece(ctx, sec, off, size, hints); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// claims are the chunks that the source says to have the bytes of old.
func (s *shardWriter) claims(sec *Section, old []format.Chunk) []bool {
	claimed := make([]bool, len(old))
	c, ok := sec.Source.(Comparer)
	if !ok || s.spec.Base == nil {
		return claimed
	}
	if s.base == ([16]byte{}) {
		s.base = s.spec.Base.Content()
	}
	unchanged := c.UnchangedSince(s.spec.Base.Epoch, s.base)
	if unchanged == nil {
		return claimed
	}
	for i := range claimed {
		length := min(format.ChunkBytes, sec.Size-int64(i)*format.ChunkBytes)
		claimed[i] = int64(old[i].Length) == length && unchanged(i)
	}
	return claimed
}

// chunkHints says of each chunk of a piece what an earlier shard had there, what
// the source knows of it, and what it should turn out to be; entries of length 0
// say nothing. A claimed one is old by the word of the source.
type chunkHints struct {
	old, known, wanted []format.Chunk
	claimed            []bool
}

// chunkSource is a Source that has verified the bytes it yields against chunks
// cut like ours, so that they need not be hashed again.
type chunkSource interface {
	KnownChunks() []format.Chunk
}

func knownChunks(sec *Section) []format.Chunk {
	if k, ok := sec.Source.(chunkSource); ok {
		return k.KnownChunks()
	}
	return nil
}

// same says whether the earlier chunk can be referred to.
func (s *shardWriter) same(hash [16]byte, length uint32, old *format.Chunk) bool {
	return s.reuse.holds(old, hash, length)
}

func (s *shardWriter) wouldSkip(known, old *format.Chunk) bool {
	return known.Length > 0 && (known.Codec == format.CodecZero || s.same(known.Hash, known.Length, old))
}

// skip enters a chunk whose bytes need not be read.
func (s *shardWriter) skip(known, old *format.Chunk) bool {
	if !s.wouldSkip(known, old) {
		return false
	}
	c := *old
	if known.Codec == format.CodecZero {
		c = format.Chunk{Origin: s.idx.Epoch, Length: known.Length, Codec: format.CodecZero, Hash: known.Hash}
	}
	s.idx.Chunks = append(s.idx.Chunks, c)
	return true
}

// piece writes up to blockBytes of a section.
func (s *shardWriter) piece(ctx context.Context, sec *Section, off int64, n int, hints chunkHints) error {
	var p []byte
	var from *lease
	if sl, ok := sec.Source.(Slicer); ok {
		p = sl.Slice(off, n)
	}
	if p == nil {
		l, err := s.w.pool.Lease(ctx)
		if err != nil {
			return err
		}
		defer l.Drop()
		if err := readSource(sec.Source, l.Buf[:n], off); err != nil {
			return err
		}
		p, from = l.Buf[:n], l
	}
	if len(p) != n {
		return fmt.Errorf("source returned %d of %d bytes at offset %d", len(p), n, off)
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
	for at := 0; at < len(p); at += format.ChunkBytes {
		end := min(at+format.ChunkBytes, len(p))
		c := format.Chunk{Origin: s.idx.Epoch, Length: uint32(end - at)}
		k := at / format.ChunkBytes
		stored := s.encode(&c, p[at:end], &hints.old[k], &hints.known[k], &hints.wanted[k])
		if hints.claimed[k] && c.Hash != hints.old[k].Hash {
			return fmt.Errorf("since epoch %d, of which the shard holds its bytes: %w: check the device's memory and "+
				"the bus", s.spec.Base.Epoch, ErrClaim)
		}
		if c.Codec == format.CodecRaw && c.Origin == s.idx.Epoch {
			c.Off = s.w.Pos() - s.start + int64(at-run)
			s.idx.Chunks = append(s.idx.Chunks, c)
			continue
		}
		if err := s.w.Append(p[run:at], from); err != nil {
			return err
		}
		run = end
		if c.Origin == s.idx.Epoch && c.Stored > 0 {
			c.Off = s.w.Pos() - s.start
			if err := s.w.CopyIn(stored); err != nil {
				return err
			}
		}
		s.idx.Chunks = append(s.idx.Chunks, c)
	}
	return s.w.Append(p[run:], from)
}

// encode decides how a chunk is stored and fills its entry but for the offset.
// It returns the stored bytes if they are not the original ones.
func (s *shardWriter) encode(c *format.Chunk, p []byte, old, known, wanted *format.Chunk) []byte {
	if known.Length == 0 {
		c.Hash = xxh3.Hash128(p).Bytes()
	} else {
		c.Hash = known.Hash
	}
	if format.NonZero(p) < 0 {
		c.Codec = format.CodecZero
		return nil
	}
	if s.same(c.Hash, c.Length, old) {
		*c = *old
		return nil
	}
	if s.tryCompress(p) {
		if q := s.pack.Compress(c, p); q != nil {
			c.Stored, c.CRC = uint32(len(q)), format.CRC(q)
			return q
		}
	}
	c.Stored = c.Length
	if known.Length == c.Length && known.Codec == format.CodecRaw {
		c.CRC = known.CRC
	} else if w := wanted; w.Length == c.Length && w.Codec == format.CodecRaw && w.Hash == c.Hash {
		c.CRC = w.CRC // the same bytes were summed before
	} else {
		c.CRC = format.CRC(p)
	}
	return nil
}

// Fits says why a shard could not be read back. It is asked before anything is
// written; writeShard decodes the index on top of it, which has the last word.
func (p *Spec) Fits() error {
	const remedy = "use more ranks, or protect less on each"
	bytes, chunks, index := int64(0), int64(0), int64(format.RecordExtra+28)
	for i := range p.Sections {
		sec := &p.Sections[i]
		if len(sec.Name) > format.MaxNameLen {
			return &format.LimitError{What: "length of a section's name", Have: int64(len(sec.Name)),
				Most: format.MaxNameLen, Remedy: "give it a shorter name"}
		}
		if sec.Size < 0 {
			return fmt.Errorf("section %q has %d bytes", sec.Name, sec.Size)
		}
		if bytes += sec.Size; bytes < 0 || sec.Size > maxShardBytes || bytes > maxShardBytes {
			return &format.LimitError{What: fmt.Sprintf("bytes of a shard, with section %q", sec.Name), Have: sec.Size,
				Most: maxShardBytes, Remedy: remedy}
		}
		chunks += format.ChunkCount(sec.Size, format.ChunkBytes)
		index += 10 + int64(len(sec.Name))
	}
	if index += chunks * format.ChunkEntryLen; index > format.MaxRecordLen {
		most := (format.MaxRecordLen - (index - chunks*format.ChunkEntryLen)) / format.ChunkEntryLen * format.ChunkBytes
		if most < 0 { // names alone are too much
			return &format.LimitError{What: "bytes of the names of all sections",
				Have: index - chunks*format.ChunkEntryLen, Most: format.MaxRecordLen,
				Remedy: "protect fewer things with shorter names"}
		}
		return &format.LimitError{What: "bytes of a shard", Have: bytes, Most: most, Remedy: remedy}
	}
	return nil
}

// maxShardBytes bounds the sum of a shard's sections, far above what an index
// can hold, so that sums do not overflow.
const maxShardBytes = 1 << 60

// RoomNeeded is the length of the shard if nothing can be compressed. The chunks
// are those that are wanted.
func (p *Spec) RoomNeeded() (int64, error) {
	reuse := p.reuse()
	x := format.Index{}
	chunks := int64(0)
	at := int64(format.HeaderLen)
	for i := range p.Sections {
		sec := &p.Sections[i]
		want := format.ChunksIn(p.Wanted, sec.Name)
		if n := format.ChunkCount(sec.Size, format.ChunkBytes); int64(len(want)) != n {
			return 0, fmt.Errorf("section %q has %d chunks, the record has %d: %w", sec.Name, n, len(want),
				format.ErrCorrupt)
		}
		if sec.Size >= pageSections {
			at = wholePages(at)
		}
		old := format.PadChunks(p.earlier(sec.Name), len(want))
		for k := range want {
			if c := &want[k]; c.Codec != format.CodecZero && !reuse.holds(&old[k], c.Hash, c.Length) {
				at += int64(c.Length)
			}
		}
		x.Sections = append(x.Sections, format.Section{Name: sec.Name})
		chunks += int64(len(want))
	}
	at += int64(len(x.Encode())) + chunks*format.ChunkEntryLen
	return wholePages(at + format.FooterLen), nil
}

func wholePages(n int64) int64 { return (n + vfs.Align - 1) / vfs.Align * vfs.Align }

// FileName is the final name of what is written.
func (p *Spec) FileName() string {
	if p.Name != "" {
		return p.Name
	}
	return format.ShardName(p.Head.Rank)
}

// Need bounds the bytes that the shard takes when nothing is saved.
func (p *Spec) Need() int64 {
	n := int64(2 * format.HeaderLen)
	for i := range p.Sections {
		size := p.Sections[i].Size
		n += size + format.HeaderLen + format.ChunkCount(size, format.ChunkBytes)*format.ChunkEntryLen
	}
	return n
}
