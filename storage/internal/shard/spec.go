// Package shard writes the shard of one rank and reads it back. It writes in one pass through page-aligned buffers, at
// the allowed pace; it verifies every chunk that it reads before it returns it. Owners and names of files are the
// business of other packages.
package shard

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// pageSections is the size from which a section starts on a page of its own, so
// that it can be written from where it lies. Smaller ones are packed together.
const pageSections = 64 << 10

// Spec describes the shard to write.
type Spec struct {
	Head     format.Header
	Sections []Section
	Base     *format.Index // an earlier shard of the rank at this place; may be nil
	Whole    bool          // the shard refers to no other; claims of sources about Base are checked
	Wanted   *format.Index // the expected shard; may be nil
	Digest   [16]byte      // required digest; zero: that of the sections
	Compress compression
	Name     string // of the file, if it is not the rank's shard
	Hole     int64  // bytes left out behind the header, whole pages: tests make shards large by it
	Room     int64  // required length of the shard, whole pages; 0: the least
}

// earlier returns the chunks that an earlier shard has for a section. The layout lies in every shard itself, so that
// whoever finds one without its manifest can read it.
func (p *Spec) earlier(section string) []format.Chunk {
	if section == format.LayoutSection {
		return nil
	}
	return format.ChunksIn(p.Base, section)
}

// Fits returns an error if a shard could not be read back. It is called before anything is written; writeShard also
// decodes the index, which decides.
func (p *Spec) Fits() error {
	const remedy = "use more ranks, or protect less on each"
	bytes, chunks, index := int64(0), int64(0), int64(format.RecordExtra+28)
	for i := range p.Sections {
		sec := &p.Sections[i]
		if len(sec.Name) > format.MaxNameLen {
			return format.TooLarge("length of a section's name", int64(len(sec.Name)), format.MaxNameLen,
				"give it a shorter name")
		}
		if sec.Size < 0 {
			return fmt.Errorf("section %q has %d bytes", sec.Name, sec.Size)
		}
		if bytes += sec.Size; bytes < 0 || sec.Size > maxShardBytes || bytes > maxShardBytes {
			return format.TooLarge(fmt.Sprintf("bytes of a shard, with section %q", sec.Name), sec.Size, maxShardBytes,
				remedy)
		}
		chunks += format.ChunkCount(sec.Size, format.ChunkBytes)
		index += 10 + int64(len(sec.Name))
	}
	if index += chunks * format.ChunkEntryLen; index > format.MaxRecordLen {
		most := (format.MaxRecordLen - (index - chunks*format.ChunkEntryLen)) / format.ChunkEntryLen * format.ChunkBytes
		if most < 0 { // names are too much by themselves
			return format.TooLarge("bytes of the names of all sections", index-chunks*format.ChunkEntryLen,
				format.MaxRecordLen, "protect fewer things with shorter names")
		}
		return format.TooLarge("bytes of a shard", bytes, most, remedy)
	}
	return nil
}

// maxShardBytes bounds the sum of a shard's sections, far above the capacity of an index, so that sums do not overflow.
const maxShardBytes = 1 << 60

// RoomNeeded returns the length of the shard if nothing can be compressed. The chunks
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
			if c := &want[k]; c.Codec != format.CodecZero && !reuse.has(&old[k], c.Hash, c.Length) {
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

// FileName returns the final name of the file.
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
