package format

import (
	"fmt"
	"maps"
	"slices"

	"github.com/zeebo/xxh3"
)

// ChunkBytes is the length of every chunk of a section but its last. It is
// written into each index, so other builds may choose another.
const (
	ChunkBytes    = 256 << 10
	MinChunkBytes = 4 << 10
	maxChunkBytes = 64 << 20
	ChunkEntryLen = 48
)

// codec is the encoding of a chunk's stored bytes.
type codec uint8

// The codecs, as FORMAT.md numbers them.
const (
	CodecRaw  codec = 0 // the original bytes
	CodecZero codec = 1 // nothing is stored: all bytes are zero
	CodecLZ4  codec = 2 // one LZ4 block
)

// filter is applied to the original bytes before the codec.
type filter uint8

// The filters, as FORMAT.md numbers them.
const (
	filterNone    filter = 0
	FilterShuffle filter = 1 // byte planes of elements of width bytes
)

// Chunk is one entry of a shard's index.
type Chunk struct {
	Origin Epoch  // the epoch whose shard of this rank holds the bytes
	Off    int64  // their offset in that shard
	Stored uint32 // bytes on the disk
	Length uint32 // original bytes
	Codec  codec
	Filter filter
	Width  uint8
	CRC    uint32   // CRC-32C of the stored bytes
	Hash   [16]byte // xxh3-128 of the original bytes
}

// Section is a named run of chunks.
type Section struct {
	Name  string
	Size  int64
	First int // index of its first chunk; derived, not on disk
}

// Index describes a whole shard.
type Index struct {
	Epoch      Epoch
	Rank, Size int
	ChunkBytes int
	Sections   []Section
	Chunks     []Chunk
}

// ChunkCount returns the number of chunks of chunkBytes that hold size bytes.
func ChunkCount(size int64, chunkBytes int) int64 {
	return (size + int64(chunkBytes) - 1) / int64(chunkBytes)
}

// Bytes returns the sum of the section sizes.
func (x *Index) Bytes() (n int64) {
	for _, s := range x.Sections {
		n += s.Size
	}
	return n
}

// Owned returns the number of bytes stored in this shard itself.
func (x *Index) Owned() (n int64) {
	for i := range x.Chunks {
		if x.Chunks[i].Origin == x.Epoch {
			n += int64(x.Chunks[i].Stored)
		}
	}
	return n
}

// Info describes the shard of n bytes, a file of its own, whose index record has the hash.
func (x *Index) Info(hash [16]byte, n int64) ShardInfo {
	return ShardInfo{Rank: x.Rank, Bytes: x.Bytes(), Stored: x.Owned(), ShardBytes: n, Digest: x.Content(), Index: hash,
		Origins: x.Origins(), Pack: NoPack}
}

// Origins lists the other epochs that chunks refer to, ascending.
func (x *Index) Origins() []Epoch {
	seen := map[Epoch]bool{}
	for i := range x.Chunks {
		if o := x.Chunks[i].Origin; o != x.Epoch {
			seen[o] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Section finds a section by name.
func (x *Index) Section(name string) (*Section, bool) {
	for i := range x.Sections {
		if x.Sections[i].Name == name {
			return &x.Sections[i], true
		}
	}
	return nil, false
}

// Content returns a digest of the shard's contents, however its bytes are stored: copies at different levels have the
// same.
func (x *Index) Content() [16]byte {
	var e Encoder
	e.U64(uint64(x.Epoch))
	e.U32(uint32(x.Rank))
	e.U32(uint32(x.Size))
	e.U32(uint32(x.ChunkBytes))
	for _, s := range x.Sections {
		e.Str(s.Name)
		e.U64(uint64(s.Size))
	}
	for i := range x.Chunks {
		e.Sum(x.Chunks[i].Hash)
	}
	return Hash(e.B)
}

// Hash returns the xxh3-128 of b.
func Hash(b []byte) [16]byte { return xxh3.Hash128(b).Bytes() }

func (x *Index) fields(f Fields) {
	f.Epoch(&x.Epoch)
	f.Int(&x.Rank)
	f.Int(&x.Size)
	f.Int(&x.ChunkBytes)
	List(f, &x.Sections, 10, func(s *Section) {
		f.Str(&s.Name)
		f.I64(&s.Size)
	})
	var unused uint8
	List(f, &x.Chunks, ChunkEntryLen, func(c *Chunk) {
		f.Epoch(&c.Origin)
		f.I64(&c.Off)
		f.U32(&c.Stored)
		f.U32(&c.Length)
		f.U8((*uint8)(&c.Codec))
		f.U8((*uint8)(&c.Filter))
		f.U8(&c.Width)
		f.U8(&unused)
		f.U32(&c.CRC)
		f.Sum(&c.Hash)
	})
}

// Encode returns the sealed index record.
func (x *Index) Encode() []byte { return seal(KindShardIndex, x.fields, nil) }

// DecodeIndex opens an index record. dataEnd is where the shard's data ends:
// no chunk of its own may reach beyond it.
func DecodeIndex(file string, b []byte, dataEnd int64) (*Index, error) {
	payload, n, err := openRecord(file, b, KindShardIndex)
	if err != nil {
		return nil, err
	}
	bad := func(reason string) (*Index, error) {
		return nil, &CorruptError{File: file, Off: dataEnd, Len: int64(n), Reason: "shard index: " + reason}
	}
	if n != len(b) {
		return bad("bytes after the record")
	}
	d, x := &Decoder{B: payload}, &Index{}
	if x.fields(Taking(d)); !d.Done() {
		return bad("fields do not fit the length")
	}
	if reason := x.check(dataEnd); reason != "" {
		return bad(reason)
	}
	return x, nil
}

func (x *Index) check(dataEnd int64) (reason string) {
	if x.Epoch == 0 || x.Rank >= x.Size || x.ChunkBytes < MinChunkBytes || x.ChunkBytes > maxChunkBytes {
		return "epoch, rank, size or chunk length out of range"
	}
	seen := make(map[string]bool, len(x.Sections))
	for _, s := range x.Sections {
		if seen[s.Name] {
			return fmt.Sprintf("two sections are named %q", s.Name)
		}
		seen[s.Name] = true
	}
	if want := x.PlaceSections(); want != int64(len(x.Chunks)) {
		return fmt.Sprintf("%d chunks, the sections need %d", len(x.Chunks), want)
	}
	for i := range x.Sections {
		if reason := x.checkSection(&x.Sections[i], dataEnd); reason != "" {
			return reason
		}
	}
	return ""
}

// PlaceSections derives the first chunk of each section and returns the number
// of chunks in all.
func (x *Index) PlaceSections() int64 {
	var at int64
	for i := range x.Sections {
		x.Sections[i].First = int(at)
		at += ChunkCount(x.Sections[i].Size, x.ChunkBytes)
		if at < 0 || at > MaxRecordLen/ChunkEntryLen {
			return -1
		}
	}
	return at
}

func (x *Index) checkSection(s *Section, dataEnd int64) (reason string) {
	left := s.Size
	for i := s.First; left > 0; i++ {
		c := &x.Chunks[i]
		if int64(c.Length) != min(left, int64(x.ChunkBytes)) {
			return fmt.Sprintf("chunk %d has a wrong length", i)
		}
		if reason := c.check(x.Epoch, dataEnd); reason != "" {
			return fmt.Sprintf("chunk %d %s", i, reason)
		}
		left -= int64(c.Length)
	}
	return ""
}

func (c *Chunk) check(own Epoch, dataEnd int64) (reason string) {
	switch {
	case c.Origin == 0 || c.Origin > own:
		return "refers to a later epoch"
	case c.Codec > CodecLZ4 || c.Filter > FilterShuffle:
		return "has an unknown codec or filter"
	case c.Codec == CodecRaw && (c.Stored != c.Length || c.Filter != filterNone):
		return "is raw and its lengths differ"
	case c.Codec == CodecZero && (c.Stored != 0 || c.Origin != own):
		return "is zero and yet stored"
	case c.Codec == CodecLZ4 && (c.Stored == 0 || c.Stored >= c.Length):
		return "is compressed and not smaller"
	case c.Filter == FilterShuffle && c.Width < 2:
		return "is shuffled by a width below 2"
	case c.Stored > 0 && c.Off < HeaderLen:
		return "starts in the header"
	case c.Origin == own && c.Stored > 0 && c.Off+int64(c.Stored) > dataEnd:
		return "reaches into the index"
	}
	return ""
}

// PadChunks returns n chunks: those of list and then empty ones.
func PadChunks(list []Chunk, n int) []Chunk {
	if len(list) < n {
		list = append(append(make([]Chunk, 0, n), list...), make([]Chunk, n-len(list))...)
	}
	return list[:n]
}

// Has reports whether c has the bytes of another chunk on the disk, in an epoch
// later than tooOld.
func (c *Chunk) Has(hash [16]byte, length uint32, tooOld Epoch) bool {
	return c.Length == length && c.Codec != CodecZero && c.Hash == hash && c.Origin > tooOld
}

// ChunksIn returns the chunks that a shard, if any, has for a section.
func ChunksIn(x *Index, name string) []Chunk {
	if x == nil || x.ChunkBytes != ChunkBytes {
		return nil
	}
	sec, ok := x.Section(name)
	if !ok {
		return nil
	}
	return x.ChunksOf(sec)
}

// ChunksOf returns the chunks of a section.
func (x *Index) ChunksOf(sec *Section) []Chunk {
	return x.Chunks[sec.First : sec.First+int(ChunkCount(sec.Size, x.ChunkBytes))]
}
