package storage

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// chunkBytes is the length of every chunk of a section but its last. It is
// written into each index, so other builds may choose another.
const (
	chunkBytes    = 256 << 10
	minChunkBytes = 4 << 10
	maxChunkBytes = 64 << 20
	chunkEntryLen = 48
)

// codec says how the stored bytes of a chunk are to be decoded.
type codec uint8

const (
	codecRaw  codec = 0 // the original bytes
	codecZero codec = 1 // nothing is stored: all bytes are zero
	codecLZ4  codec = 2 // one LZ4 block
)

// filter says what was done to the original bytes before the codec.
type filter uint8

const (
	filterNone    filter = 0
	filterShuffle filter = 1 // byte planes of elements of width bytes
)

// chunk is one entry of a shard's index.
type chunk struct {
	origin Epoch  // the epoch whose shard of this rank holds the bytes
	off    int64  // where they start in that shard
	stored uint32 // bytes on the disk
	length uint32 // original bytes
	codec  codec
	filter filter
	width  uint8
	crc    uint32   // CRC-32C of the stored bytes
	hash   [16]byte // xxh3-128 of the original bytes
}

// sectionEntry is a named run of chunks.
type sectionEntry struct {
	name  string
	size  int64
	first int // index of its first chunk; derived, not on disk
}

// shardIndex describes a whole shard.
type shardIndex struct {
	epoch      Epoch
	rank, size int
	chunkBytes int
	sections   []sectionEntry
	chunks     []chunk
}

func chunkCount(size int64, chunkBytes int) int64 {
	return (size + int64(chunkBytes) - 1) / int64(chunkBytes)
}

// bytes is the sum of the section sizes.
func (x *shardIndex) bytes() (n int64) {
	for _, s := range x.sections {
		n += s.size
	}
	return n
}

// owned is the number of bytes stored in this shard itself.
func (x *shardIndex) owned() (n int64) {
	for i := range x.chunks {
		if x.chunks[i].origin == x.epoch {
			n += int64(x.chunks[i].stored)
		}
	}
	return n
}

// origins lists the other epochs that chunks refer to, ascending.
func (x *shardIndex) origins() []Epoch {
	seen := map[Epoch]bool{}
	for i := range x.chunks {
		if o := x.chunks[i].origin; o != x.epoch {
			seen[o] = true
		}
	}
	return sortedEpochs(seen)
}

// section finds a section by name.
func (x *shardIndex) section(name string) (*sectionEntry, bool) {
	for i := range x.sections {
		if x.sections[i].name == name {
			return &x.sections[i], true
		}
	}
	return nil, false
}

// content is a digest of what the shard says, whatever way its bytes are
// stored: copies at different levels have the same.
func (x *shardIndex) content() [16]byte {
	var e encoder
	e.u64(uint64(x.epoch))
	e.u32(uint32(x.rank))
	e.u32(uint32(x.size))
	e.u32(uint32(x.chunkBytes))
	for _, s := range x.sections {
		e.str(s.name)
		e.u64(uint64(s.size))
	}
	for i := range x.chunks {
		e.sum(x.chunks[i].hash)
	}
	return hashOf(e.b)
}

func hashOf(b []byte) [16]byte { return xxh3.Hash128(b).Bytes() }

// encode returns the sealed index record.
func (x *shardIndex) encode() []byte {
	var e encoder
	e.u64(uint64(x.epoch))
	e.u32(uint32(x.rank))
	e.u32(uint32(x.size))
	e.u32(uint32(x.chunkBytes))
	e.u32(uint32(len(x.sections)))
	for _, s := range x.sections {
		e.str(s.name)
		e.u64(uint64(s.size))
	}
	e.u32(uint32(len(x.chunks)))
	for i := range x.chunks {
		c := &x.chunks[i]
		e.u64(uint64(c.origin))
		e.u64(uint64(c.off))
		e.u32(c.stored)
		e.u32(c.length)
		e.u8(uint8(c.codec))
		e.u8(uint8(c.filter))
		e.u8(c.width)
		e.u8(0)
		e.u32(c.crc)
		e.sum(c.hash)
	}
	return sealRecord(kindShardIndex, e.b)
}

// decodeIndex opens an index record. dataEnd is where the shard's data ends:
// no chunk of its own may reach beyond it.
func decodeIndex(file string, b []byte, dataEnd int64) (*shardIndex, error) {
	payload, n, err := openRecord(file, b, kindShardIndex)
	if err != nil {
		return nil, err
	}
	bad := func(reason string) (*shardIndex, error) {
		return nil, &CorruptError{File: file, Off: dataEnd, Len: int64(n), Reason: "shard index: " + reason}
	}
	if n != len(b) {
		return bad("bytes after the record")
	}
	d := &decoder{b: payload}
	x := &shardIndex{
		epoch:      Epoch(d.u64()),
		rank:       int(d.u32()),
		size:       int(d.u32()),
		chunkBytes: int(d.u32()),
	}
	if x.epoch == 0 || x.rank >= x.size || x.chunkBytes < minChunkBytes || x.chunkBytes > maxChunkBytes {
		return bad("epoch, rank, size or chunk length out of range")
	}
	if reason := x.decodeSections(d); reason != "" {
		return bad(reason)
	}
	if reason := x.decodeChunks(d, dataEnd); reason != "" {
		return bad(reason)
	}
	if !d.done() {
		return bad("fields do not fit the length")
	}
	return x, nil
}

func (x *shardIndex) decodeSections(d *decoder) (reason string) {
	n := d.count(10)
	seen := make(map[string]bool, n)
	for range n {
		s := sectionEntry{name: d.str(), size: d.i64()}
		if seen[s.name] {
			return "two sections are named " + fmt.Sprintf("%q", s.name)
		}
		seen[s.name] = true
		x.sections = append(x.sections, s)
	}
	if d.bad {
		return "sections do not fit the length"
	}
	return ""
}

func (x *shardIndex) decodeChunks(d *decoder, dataEnd int64) (reason string) {
	n := d.count(chunkEntryLen)
	if want := x.placeSections(); want != int64(n) || d.bad {
		return fmt.Sprintf("%d chunks, the sections need %d", n, want)
	}
	x.chunks = make([]chunk, n)
	for i := range x.chunks {
		c := &x.chunks[i]
		c.origin = Epoch(d.u64())
		c.off = d.i64()
		c.stored = d.u32()
		c.length = d.u32()
		c.codec = codec(d.u8())
		c.filter = filter(d.u8())
		c.width = d.u8()
		d.u8()
		c.crc = d.u32()
		c.hash = d.sum()
	}
	for i := range x.sections {
		if reason := x.checkSection(&x.sections[i], dataEnd); reason != "" {
			return reason
		}
	}
	return ""
}

// placeSections derives the first chunk of each section and returns the number
// of chunks in all.
func (x *shardIndex) placeSections() int64 {
	var at int64
	for i := range x.sections {
		x.sections[i].first = int(at)
		at += chunkCount(x.sections[i].size, x.chunkBytes)
		if at < 0 || at > maxRecordLen/chunkEntryLen {
			return -1
		}
	}
	return at
}

func (x *shardIndex) checkSection(s *sectionEntry, dataEnd int64) (reason string) {
	left := s.size
	for i := s.first; left > 0; i++ {
		c := &x.chunks[i]
		if int64(c.length) != min(left, int64(x.chunkBytes)) {
			return fmt.Sprintf("chunk %d has a wrong length", i)
		}
		if reason := c.check(x.epoch, dataEnd); reason != "" {
			return fmt.Sprintf("chunk %d %s", i, reason)
		}
		left -= int64(c.length)
	}
	return ""
}

func (c *chunk) check(own Epoch, dataEnd int64) (reason string) {
	switch {
	case c.origin == 0 || c.origin > own:
		return "refers to a later epoch"
	case c.codec > codecLZ4 || c.filter > filterShuffle:
		return "has an unknown codec or filter"
	case c.codec == codecRaw && (c.stored != c.length || c.filter != filterNone):
		return "is raw and its lengths differ"
	case c.codec == codecZero && (c.stored != 0 || c.origin != own):
		return "is zero and yet stored"
	case c.codec == codecLZ4 && (c.stored == 0 || c.stored >= c.length):
		return "is compressed and not smaller"
	case c.filter == filterShuffle && c.width < 2:
		return "is shuffled by a width below 2"
	case c.stored > 0 && c.off < shardHeaderLen:
		return "starts in the header"
	case c.origin == own && c.stored > 0 && c.off+int64(c.stored) > dataEnd:
		return "reaches into the index"
	}
	return ""
}
