package format

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"
)

// A shard is a header page, the stored chunks, the index record, zeros up to a
// whole page, and a footer in the last bytes of the last page.
const (
	pageLen     = 4096 // the unit in which files are written
	HeaderLen   = pageLen
	FooterLen   = 64
	FooterMagic = "HFSHARD\n"
	PackMagic   = "HFPACK\n\x00"
)

// Header names the owner of a shard, for people and for verify. A restore does not need it.
type Header struct {
	Epoch      Epoch
	Rank, Size int
	Created    int64 // nanoseconds since 1970
	Job        string
	Node       string
}

func (h *Header) fields(f Fields) {
	f.Epoch(&h.Epoch)
	f.Int(&h.Rank)
	f.Int(&h.Size)
	f.Time(&h.Created)
	f.Str(&h.Job)
	f.Str(&h.Node)
}

// Encode returns the header page.
func (h *Header) Encode() []byte {
	page := make([]byte, HeaderLen)
	copy(page, seal(kindShardHeader, h.fields, nil))
	return page
}

// DecodeHeader opens a header page.
func DecodeHeader(file string, page []byte) (*Header, error) {
	payload, n, err := openRecord(file, page, kindShardHeader)
	if err != nil {
		return nil, err
	}
	h, d := &Header{}, &Decoder{B: payload}
	if h.fields(Taking(d)); !d.Done() {
		return nil, &CorruptError{File: file, Len: int64(n), Reason: "shard header: fields do not fit the length"}
	}
	if i := NonZero(page[n:]); i >= 0 {
		return nil, &CorruptError{File: file, Off: int64(n + i), Len: 1, Reason: "padding is not zero"}
	}
	return h, nil
}

// Footer finds and identifies the index.
type Footer struct {
	Magic     string
	IndexOff  int64
	IndexLen  int64
	IndexHash [16]byte
	ShardLen  int64 // length of the whole shard, header to footer
	Epoch     Epoch
	Rank      int
}

// Encode returns the footer.
func (f *Footer) Encode() []byte {
	e := Encoder{B: make([]byte, 0, FooterLen)}
	e.B = append(e.B, f.Magic...)
	e.U64(uint64(f.IndexOff))
	e.U64(uint64(f.IndexLen))
	e.Sum(f.IndexHash)
	e.U64(uint64(f.ShardLen))
	e.U64(uint64(f.Epoch))
	e.U32(uint32(f.Rank))
	e.U32(CRC(e.B))
	return e.B
}

// ReadFooter reads the footer of a shard of n bytes.
func ReadFooter(file string, r io.ReaderAt, n int64) (*Footer, error) {
	return ReadFooterOf(FooterMagic, file, r, n)
}

// ReadCommitted reads the footer of the shard in r, and compares it with its entry in the manifest of an epoch.
func ReadCommitted(file string, r io.ReaderAt, e Epoch, i *ShardInfo) (*Footer, error) {
	f, err := ReadFooter(file, r, i.ShardBytes)
	if err == nil && (f.Epoch != e || f.Rank != i.Rank || f.IndexHash != i.Index) {
		return nil, &CorruptError{File: file, Off: i.Base + i.ShardBytes - FooterLen, Len: FooterLen,
			Reason: "is not the shard that was committed"}
	}
	return f, err
}

// ReadFooterOf reads the footer of a file that ends in one with this magic.
func ReadFooterOf(magic, file string, r io.ReaderAt, n int64) (*Footer, error) {
	bad := func(reason string) (*Footer, error) {
		return nil, &CorruptError{File: file, Off: max(n-FooterLen, 0), Len: FooterLen, Reason: "shard footer: " +
			reason}
	}
	if n < HeaderLen+pageLen || n%pageLen != 0 {
		return bad(fmt.Sprintf("the file is truncated: it has %d bytes", n))
	}
	b := make([]byte, FooterLen)
	if err := ReadFull(r, b, n-FooterLen); err != nil {
		return nil, err
	}
	if string(b[:8]) != magic {
		return bad("wrong magic")
	}
	if CRC(b[:FooterLen-4]) != binary.LittleEndian.Uint32(b[FooterLen-4:]) {
		return bad("checksum does not match")
	}
	d := &Decoder{B: b[8:]}
	f := &Footer{Magic: magic, IndexOff: d.I64(), IndexLen: d.I64(), IndexHash: d.Sum(), ShardLen: d.I64(),
		Epoch: Epoch(d.U64()), Rank: int(d.U32())}
	if d.Bad || f.ShardLen != n || f.IndexOff < HeaderLen ||
		f.IndexLen < RecordExtra || f.IndexLen > MaxRecordLen || f.IndexOff+f.IndexLen > n-FooterLen {
		return bad("offsets out of range")
	}
	return f, nil
}

// ReadIndex reads and checks the index that the footer points at.
func ReadIndex(file string, r io.ReaderAt, f *Footer) (*Index, error) {
	b, err := f.ReadIndexed(r)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, &CorruptError{File: file, Off: f.IndexOff, Len: f.IndexLen,
			Reason: "shard index: hash does not match"}
	}
	x, err := DecodeIndex(file, b, f.IndexOff)
	if err != nil {
		return nil, err
	}
	if x.Epoch != f.Epoch || x.Rank != f.Rank {
		return nil, &CorruptError{File: file, Off: f.IndexOff, Len: f.IndexLen,
			Reason: "shard index: belongs to another shard"}
	}
	return x, nil
}

// ReadShardIndex reads the footer of a shard of n bytes, and the index that it points at.
func ReadShardIndex(file string, r io.ReaderAt, n int64) (*Footer, *Index, error) {
	f, err := ReadFooter(file, r, n)
	if err != nil {
		return nil, nil, err
	}
	x, err := ReadIndex(file, r, f)
	return f, x, err
}

// ReadIndexed reads the record that the footer points at; nil if its hash differs. It only takes memory for a long
// record once the hash is right: a file with a hole may claim any length.
func (f *Footer) ReadIndexed(r io.ReaderAt) ([]byte, error) {
	const piece = 1 << 20
	if f.IndexLen > piece {
		h := xxh3.New()
		_, err := io.CopyBuffer(h, io.NewSectionReader(r, f.IndexOff, f.IndexLen), make([]byte, piece))
		if err != nil || h.Sum128().Bytes() != f.IndexHash {
			return nil, err
		}
	}
	b := make([]byte, f.IndexLen)
	if err := ReadFull(r, b, f.IndexOff); err != nil || Hash(b) != f.IndexHash {
		return nil, err
	}
	return b, nil
}

// ReadFull reads all of b; a file that ends before is damage, not the end.
func ReadFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == io.EOF || err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

var zeroPage [pageLen]byte

// NonZero returns the index of the first byte that is not zero, or -1. Long runs of
// zeros are compared by pages: a shard in a pack may have GiB of them.
func NonZero(b []byte) int {
	at := 0
	for len(b)-at >= len(zeroPage) && string(b[at:at+len(zeroPage)]) == string(zeroPage[:]) {
		at += len(zeroPage)
	}
	for i, v := range b[at:] {
		if v != 0 {
			return at + i
		}
	}
	return -1
}
