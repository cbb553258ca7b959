package format_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/pierrec/lz4/v4"
	"github.com/zeebo/xxh3"
)

// independentReader reads checkpoints by docs/FORMAT.md alone: it uses nothing of package
// storage, so that the document and the code check each other.
type independentReader struct {
	t     *testing.T
	kinds map[string]int // chunks read, by codec, filter and whether they are of an earlier epoch
}

func (s *independentReader) must(ok bool, format string, args ...any) {
	s.t.Helper()
	if !ok {
		s.t.Fatalf("the independent reader: "+format, args...)
	}
}

func (s *independentReader) file(elem ...string) []byte {
	b, err := os.ReadFile(filepath.Join(elem...))
	s.must(err == nil, "%v", err)
	return b
}

var castagnoliTable = crc32.MakeTable(crc32.Castagnoli)

// record opens a record that fills b.
func (s *independentReader) record(b []byte, kind uint16) *fields {
	s.must(string(b[:8]) == "HOLDFAST" && binary.LittleEndian.Uint16(b[8:]) == kind, "no record of kind %d", kind)
	n := int(binary.LittleEndian.Uint32(b[12:]))
	s.must(n+20 == len(b) && crc32.Checksum(b[:16+n], castagnoliTable) == binary.LittleEndian.Uint32(b[16+n:]),
		"record of kind %d", kind)
	return &fields{b[16 : 16+n]}
}

type fields struct{ b []byte }

func (f *fields) bytes(n int) []byte { p := f.b[:n]; f.b = f.b[n:]; return p }
func (f *fields) u8() int            { return int(f.bytes(1)[0]) }
func (f *fields) u16() int           { return int(binary.LittleEndian.Uint16(f.bytes(2))) }
func (f *fields) u32() int           { return int(binary.LittleEndian.Uint32(f.bytes(4))) }
func (f *fields) u64() int           { return int(binary.LittleEndian.Uint64(f.bytes(8))) }
func (f *fields) str() string        { return string(f.bytes(f.u16())) }

// entryOf is what the manifest says of a shard.
type entryOf struct {
	node          string
	length, start int
	index         [16]byte
	pack          uint32
}

func (s *independentReader) manifest(dir string, epoch int) (k, m int, out []entryOf) {
	f := s.record(s.file(dir, fmt.Sprintf("epoch-%010d", epoch), "manifest"), 4)
	s.must(f.u64() == epoch, "manifest of another epoch")
	size := f.u32()
	f.str() // job
	f.str() // level
	k, m = f.u16(), f.u16()
	for r := range size {
		s.must(f.u32() == r, "entries are not by rank")
		e := entryOf{node: f.str()}
		f.bytes(16)
		e.length = f.u64()
		f.bytes(16)
		e.index = [16]byte(f.bytes(16))
		e.pack = uint32(f.u32())
		e.start = f.u64()
		f.bytes(8 * f.u32())
		for range f.u32() {
			f.str()
		}
		out = append(out, e)
	}
	s.must(len(f.b) == 0, "bytes are left over in a manifest")
	return k, m, out
}

// shard yields the bytes of a committed shard as they lie.
func (s *independentReader) shard(dir string, epoch, rank int) []byte {
	_, _, entries := s.manifest(dir, epoch)
	e := entries[rank]
	name := fmt.Sprintf("rank-%06d.shard", rank)
	if e.pack != 0xffffffff {
		name = fmt.Sprintf("pack-%06d.shards", e.pack)
	}
	return s.file(dir, fmt.Sprintf("epoch-%010d", epoch), name)[e.start : e.start+e.length]
}

// sections reads a file in the form of a shard. origin yields the shard of an
// earlier epoch.
func (s *independentReader) sections(shard []byte, origin func(epoch int) []byte) map[string][]byte {
	foot := shard[len(shard)-64:]
	s.must(string(foot[:8]) == "HFSHARD\n" &&
		crc32.Checksum(foot[:60], castagnoliTable) == binary.LittleEndian.Uint32(foot[60:]), "footer")
	ff := &fields{foot[8:]}
	off, n := ff.u64(), ff.u64()
	sum := xxh3.Hash128(shard[off : off+n]).Bytes()
	s.must(bytes.Equal(sum[:], ff.bytes(16)), "hash of the index")
	f := s.record(shard[off:off+n], 3)
	epoch := f.u64()
	f.bytes(8)
	length := f.u32()
	type section struct {
		name string
		size int
	}
	var list []section
	for range f.u32() {
		list = append(list, section{f.str(), f.u64()})
	}
	f.u32()
	out := map[string][]byte{}
	for _, sec := range list {
		data := []byte{}
		for range (sec.size + length - 1) / length {
			data = append(data, s.chunk(f, shard, epoch, origin)...)
		}
		s.must(len(data) == sec.size, "section %s has %d bytes", sec.name, len(data))
		out[sec.name] = data
	}
	s.must(len(f.b) == 0, "bytes are left over in an index")
	return out
}

func (s *independentReader) chunk(f *fields, shard []byte, epoch int, origin func(epoch int) []byte) []byte {
	from, off, stored, length := f.u64(), f.u64(), f.u32(), f.u32()
	codec, filter, width := f.u8(), f.u8(), f.u8()
	f.u8()
	crc, hash := uint32(f.u32()), [16]byte(f.bytes(16))
	s.kinds[fmt.Sprintf("codec %d filter %d earlier %v", codec, filter, from != epoch)]++
	if from != epoch {
		shard = origin(from)
	}
	out := make([]byte, length)
	if codec != 1 {
		raw := shard[off : off+stored]
		s.must(crc32.Checksum(raw, castagnoliTable) == crc, "checksum of a chunk")
		copy(out, raw)
		if codec == 2 {
			n, err := lz4.UncompressBlock(raw, out)
			s.must(err == nil && n == length, "lz4: %v", err)
		}
	}
	if filter == 1 {
		plain, n := make([]byte, length), length/width
		for i := range n * width {
			plain[i%n*width+i/n] = out[i]
		}
		copy(plain[n*width:], out[n*width:])
		out = plain
	}
	s.must(xxh3.Hash128(out).Bytes() == hash, "hash of a chunk")
	return out
}
