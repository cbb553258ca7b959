package storage

import (
	"encoding/binary"
	"hash/crc32"
)

// A record is the envelope of everything that is not shard data:
//
//	0   8  magic "HOLDFAST"
//	8   2  kind
//	10  2  version
//	12  4  payload length n
//	16  n  payload
//	16+n 4 CRC-32C of bytes [0,16+n)
const (
	recordMagic  = "HOLDFAST"
	recordHead   = 16
	recordExtra  = recordHead + 4
	maxRecordLen = 1 << 30
)

// recordKind tells records apart. The numbers are on disk for ever.
type recordKind uint16

const (
	kindMarker      recordKind = 1
	kindShardHeader recordKind = 2
	kindShardIndex  recordKind = 3
	kindManifest    recordKind = 4
	kindPackIndex   recordKind = 5
	kindParityGroup recordKind = 6
	kindTrial       recordKind = 7
	kindRunLock     recordKind = 8
	kindLedger      recordKind = 9
	kindBegun       recordKind = 10
)

func (k recordKind) String() string {
	switch k {
	case kindMarker:
		return "job marker"
	case kindShardHeader:
		return "shard header"
	case kindShardIndex:
		return "shard index"
	case kindManifest:
		return "manifest"
	case kindPackIndex:
		return "pack index"
	case kindParityGroup:
		return "parity group"
	case kindTrial:
		return "restore trials"
	case kindRunLock:
		return "run lock"
	case kindLedger:
		return "ledger"
	case kindBegun:
		return "note that the job has begun"
	}
	return "unknown record"
}

// formatVersion is the version of every record kind that this build writes, and
// the newest that it reads.
const formatVersion = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crcOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func crcUpdate(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// sealRecord wraps payload in an envelope.
func sealRecord(kind recordKind, payload []byte) []byte {
	b := make([]byte, 0, len(payload)+recordExtra)
	b = append(b, recordMagic...)
	b = binary.LittleEndian.AppendUint16(b, uint16(kind))
	b = binary.LittleEndian.AppendUint16(b, formatVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	return binary.LittleEndian.AppendUint32(b, crcOf(b))
}

// openRecord checks the envelope at the start of b and returns the payload and
// the length of the whole record. file is named in errors. The checksum is
// verified before the version and the payload are looked at: the envelope is
// the same in all versions.
func openRecord(file string, b []byte, kind recordKind) (payload []byte, n int, err error) {
	bad := func(length int, reason string) ([]byte, int, error) {
		return nil, 0, &CorruptError{File: file, Len: int64(length), Reason: kind.String() + ": " + reason}
	}
	if len(b) < recordExtra {
		return bad(len(b), "too short")
	}
	if string(b[:8]) != recordMagic {
		return bad(8, "wrong magic")
	}
	length := binary.LittleEndian.Uint32(b[12:])
	version := binary.LittleEndian.Uint16(b[10:])
	total := int64(length) + recordExtra
	if total > int64(len(b)) {
		return bad(recordHead, "length beyond the end")
	}
	n = int(total)
	if crcOf(b[:n-4]) != binary.LittleEndian.Uint32(b[n-4:]) {
		return bad(n, "checksum does not match")
	}
	if have := recordKind(binary.LittleEndian.Uint16(b[8:])); have != kind {
		return bad(recordHead, "is a "+have.String())
	}
	if version == 0 || version > formatVersion {
		return nil, 0, &VersionError{File: file, What: kind.String(), Have: int(version), Known: formatVersion}
	}
	return b[recordHead : n-4], n, nil
}

// encoder appends little-endian fields.
type encoder struct{ b []byte }

func (e *encoder) u8(v uint8)     { e.b = append(e.b, v) }
func (e *encoder) u16(v uint16)   { e.b = binary.LittleEndian.AppendUint16(e.b, v) }
func (e *encoder) u32(v uint32)   { e.b = binary.LittleEndian.AppendUint32(e.b, v) }
func (e *encoder) u64(v uint64)   { e.b = binary.LittleEndian.AppendUint64(e.b, v) }
func (e *encoder) sum(v [16]byte) { e.b = append(e.b, v[:]...) }
func (e *encoder) str(s string)   { e.u16(uint16(len(s))); e.b = append(e.b, s...) }
func (e *encoder) epochs(l []Epoch) {
	e.u32(uint32(len(l)))
	for _, v := range l {
		e.u64(uint64(v))
	}
}

// decoder takes fields off a payload. After the first field that does not fit
// it yields zeros and remembers that it failed.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.b) {
		d.bad = true
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) u8() uint8 {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if p := d.take(2); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if p := d.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if p := d.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// i64 takes a length or offset: more than 2^62 is damage.
func (d *decoder) i64() int64 {
	v := d.u64()
	if v > 1<<62 {
		d.bad = true
		return 0
	}
	return int64(v)
}

func (d *decoder) sum() (s [16]byte) {
	copy(s[:], d.take(16))
	return s
}

func (d *decoder) str() string { return string(d.take(int(d.u16()))) }

// count takes a number of items of at least itemBytes each, and refuses one
// that the rest of the payload cannot hold.
func (d *decoder) count(itemBytes int) int {
	n := d.u32()
	if int64(n)*int64(itemBytes) > int64(len(d.b)) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoder) epochs() []Epoch {
	n := d.count(8)
	var out []Epoch
	for range n {
		out = append(out, Epoch(d.u64()))
	}
	return out
}

// done reports whether everything was taken and everything fitted.
func (d *decoder) done() bool { return !d.bad && len(d.b) == 0 }
