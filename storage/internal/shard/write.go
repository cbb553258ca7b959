package shard

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// shardWriter writes the bytes of one shard, in one pass over the sections: it plans each, and follows the plan.
type shardWriter struct {
	w *Writer
	planner
	start int64 // offset of the shard in the file
	idx   format.Index
	pack  format.Compressor

	layout *format.Layout // decoded from the section of that name
	trial  compressTrial
}

// Write appends a whole shard and returns its manifest entry. Nothing is synced.
func Write(ctx context.Context, w *Writer, spec *Spec) (format.ShardInfo, *format.Index, error) {
	s := &shardWriter{w: w, planner: planner{spec: spec, reuse: spec.reuse()}, start: w.Pos()}
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
	if err == nil && spec.Digest != [16]byte{} && info.Digest != spec.Digest {
		err = fmt.Errorf("the copy of rank %d's shard is not the committed one: %w", info.Rank, format.ErrCorrupt)
	}
	return info, &s.idx, err
}

// WriteShard writes a file that is one shard, as WriteTo and Write do.
func WriteShard(ctx context.Context, f vfs.File, pool *Pool, t *Throttle, spec *Spec) (info format.ShardInfo,
	idx *format.Index, err error) {
	err = WriteTo(ctx, f, pool, t, func(w *Writer) (err error) {
		info, idx, err = Write(ctx, w, spec)
		return err
	})
	return info, idx, err
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
	info := s.idx.Info(f.IndexHash, f.ShardLen)
	info.Node, info.Layout = s.spec.Head.Node, s.layout
	return info, nil
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
	if err := s.put(ctx, sec); err != nil {
		return fmt.Errorf("section %q: %w", sec.Name, err)
	}
	if sec.Name != format.LayoutSection {
		return nil
	}
	// The manifest repeats the shard's layout of global arrays.
	b, err := layoutBytes(sec.Size, func(b []byte) error { return readSource(sec.Source, b, 0) })
	if err == nil {
		s.layout, err = format.DecodeLayout(s.spec.FileName(), s.idx.Rank, b)
	}
	return err
}

// layoutBytes reads a section of size bytes, if it may be that long.
func layoutBytes(size int64, read func(b []byte) error) ([]byte, error) {
	if size > format.MaxLayoutBytes {
		return nil, format.TooLarge("bytes of section "+format.LayoutSection, size, format.MaxLayoutBytes,
			"declare fewer, larger blocks or items")
	}
	b := make([]byte, size)
	return b, read(b)
}

func (s *shardWriter) put(ctx context.Context, sec *Section) error {
	x := s.plan(sec)
	for _, st := range x.steps {
		switch st.action {
		case refer:
			s.idx.Chunks = append(s.idx.Chunks, x.old[st.from:st.to]...)
		case omit:
			for i := st.from; i < st.to; i++ {
				s.idx.Chunks = append(s.idx.Chunks, x.zeros(i, s.idx.Epoch))
			}
		default:
			if err := s.piece(ctx, sec, x, st); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *shardWriter) piece(ctx context.Context, sec *Section, x *plan, st step) error {
	off := int64(st.from) * format.ChunkBytes
	n := int(min(int64(st.to)*format.ChunkBytes, sec.Size) - off)
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
	return s.chunksOf(p, from, x, st.from)
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

// chunksOf writes p as the chunks of a plan from first on. Chunks that are stored as they are and follow
// each other go to the file in one run.
func (s *shardWriter) chunksOf(p []byte, from *lease, x *plan, first int) error {
	run := 0 // start of the bytes in p that are not yet appended
	for at := 0; at < len(p); at += format.ChunkBytes {
		end := min(at+format.ChunkBytes, len(p))
		c := format.Chunk{Origin: s.idx.Epoch, Length: uint32(end - at)}
		k := first + at/format.ChunkBytes
		stored := s.encode(&c, p[at:end], &x.old[k], &x.known[k], &x.wanted[k])
		if x.claimed[k] && c.Hash != x.old[k].Hash {
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
	if s.reuse.has(old, c.Hash, c.Length) {
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
