package storage

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// A shard is a header page, the stored chunks, the index record, zeros up to a
// whole page, and a footer in the last bytes of the last page.
const (
	shardHeaderLen = vfs.Align
	footerLen      = 64
	footerMagic    = "HFSHARD\n"
	packMagic      = "HFPACK\n\x00"
)

// shardHeader says whose shard it is, for people and for verify. Nothing in it
// is needed to restore.
type shardHeader struct {
	epoch      Epoch
	rank, size int
	created    time.Time
	job        string
	node       string
}

// encode returns the header page.
func (h *shardHeader) encode() []byte {
	var e encoder
	e.u64(uint64(h.epoch))
	e.u32(uint32(h.rank))
	e.u32(uint32(h.size))
	e.u64(uint64(h.created.UnixNano()))
	e.str(h.job)
	e.str(h.node)
	page := make([]byte, shardHeaderLen)
	copy(page, sealRecord(kindShardHeader, e.b))
	return page
}

func decodeHeader(file string, page []byte) (*shardHeader, error) {
	payload, n, err := openRecord(file, page, kindShardHeader)
	if err != nil {
		return nil, err
	}
	d := &decoder{b: payload}
	h := &shardHeader{epoch: Epoch(d.u64()), rank: int(d.u32()), size: int(d.u32())}
	h.created = time.Unix(0, int64(d.u64()))
	h.job, h.node = d.str(), d.str()
	if !d.done() {
		return nil, &CorruptError{File: file, Len: int64(n), Reason: "shard header: fields do not fit the length"}
	}
	if i := nonZero(page[n:]); i >= 0 {
		return nil, &CorruptError{File: file, Off: int64(n + i), Len: 1, Reason: "padding is not zero"}
	}
	return h, nil
}

// footer finds and identifies the index.
type footer struct {
	magic     string
	indexOff  int64
	indexLen  int64
	indexHash [16]byte
	shardLen  int64 // length of the whole shard, header to footer
	epoch     Epoch
	rank      int
}

func (f *footer) encode() []byte {
	e := encoder{b: make([]byte, 0, footerLen)}
	e.b = append(e.b, f.magic...)
	e.u64(uint64(f.indexOff))
	e.u64(uint64(f.indexLen))
	e.sum(f.indexHash)
	e.u64(uint64(f.shardLen))
	e.u64(uint64(f.epoch))
	e.u32(uint32(f.rank))
	e.u32(crcOf(e.b))
	return e.b
}

// readFooter reads the footer of a shard of n bytes.
func readFooter(file string, r io.ReaderAt, n int64) (*footer, error) {
	return readFooterOf(footerMagic, file, r, n)
}

func readFooterOf(magic, file string, r io.ReaderAt, n int64) (*footer, error) {
	bad := func(reason string) (*footer, error) {
		return nil, &CorruptError{File: file, Off: max(n-footerLen, 0), Len: footerLen, Reason: "shard footer: " +
			reason}
	}
	if n < shardHeaderLen+vfs.Align || n%vfs.Align != 0 {
		return bad(fmt.Sprintf("a file of %d bytes is cut short", n))
	}
	b := make([]byte, footerLen)
	if err := readFull(r, b, n-footerLen); err != nil {
		return nil, err
	}
	if string(b[:8]) != magic {
		return bad("wrong magic")
	}
	if crcOf(b[:footerLen-4]) != binary.LittleEndian.Uint32(b[footerLen-4:]) {
		return bad("checksum does not match")
	}
	d := &decoder{b: b[8:]}
	f := &footer{magic: magic, indexOff: d.i64(), indexLen: d.i64(), indexHash: d.sum(), shardLen: d.i64(),
		epoch: Epoch(d.u64()), rank: int(d.u32())}
	if d.bad || f.shardLen != n || f.indexOff < shardHeaderLen ||
		f.indexLen < recordExtra || f.indexLen > maxRecordLen || f.indexOff+f.indexLen > n-footerLen {
		return bad("offsets out of range")
	}
	return f, nil
}

// readIndex reads and checks the index that the footer points at.
func readIndex(file string, r io.ReaderAt, f *footer) (*shardIndex, error) {
	b := make([]byte, f.indexLen)
	if err := readFull(r, b, f.indexOff); err != nil {
		return nil, err
	}
	if hashOf(b) != f.indexHash {
		return nil, &CorruptError{File: file, Off: f.indexOff, Len: f.indexLen,
			Reason: "shard index: hash does not match"}
	}
	x, err := decodeIndex(file, b, f.indexOff)
	if err != nil {
		return nil, err
	}
	if x.epoch != f.epoch || x.rank != f.rank {
		return nil, &CorruptError{File: file, Off: f.indexOff, Len: f.indexLen,
			Reason: "shard index: is of another shard"}
	}
	return x, nil
}

// readFull reads all of b; a file that ends before is damage, not the end.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == io.EOF || err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// nonZero returns the index of the first byte that is not zero, or -1. Long runs of
// zeros are compared by pages: a shard in a pack may have GiB of them.
func nonZero(b []byte) int {
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
