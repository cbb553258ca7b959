// Package format encodes and decodes the bytes on the disk, as docs/FORMAT.md describes them: records, shards with
// their index and chunks, manifests, packs, parity groups, and the small files of a job. It checks all values that it
// decodes; it opens no file and reads no clock.
package format

import (
	"cmp"
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
	RecordHead   = 16
	RecordExtra  = RecordHead + 4
	MaxRecordLen = 1 << 30
)

// RecordKind is the kind of a record. The numbers are on disk for ever.
type RecordKind uint16

// The kinds of records, as FORMAT.md lists them.
const (
	kindMarker      RecordKind = 1
	kindShardHeader RecordKind = 2
	KindShardIndex  RecordKind = 3
	KindManifest    RecordKind = 4
	kindPackIndex   RecordKind = 5
	kindParityGroup RecordKind = 6
	kindAttempts    RecordKind = 7
	kindRunLock     RecordKind = 8
	kindLedger      RecordKind = 9
	kindHistory     RecordKind = 10
	kindPin         RecordKind = 11
)

var kindNames = map[RecordKind]string{
	kindMarker: "job marker", kindShardHeader: "shard header", KindShardIndex: "shard index", KindManifest: "manifest",
	kindPackIndex: "pack index", kindParityGroup: "parity group", kindAttempts: "restore attempts",
	kindRunLock: "run lock", kindLedger: "ledger", kindHistory: "note that the job has begun",
	kindPin: "note that an epoch is to stay",
}

// String names the kind, as messages about damage do.
func (k RecordKind) String() string { return cmp.Or(kindNames[k], "unknown record") }

// Version is the version of records that have only one; the other versions name theirs.
const (
	Version         = 1
	versionLayouts  = 2 // of manifests: with layouts of arrays
	versionOwned    = 2 // of job markers, ledgers and notes that the job has begun: with the identity of the run
	versionOwnedAll = 3 // of manifests: with the identity of the run, and perhaps with layouts
)

// newest returns the newest version of a kind that this build reads.
func (k RecordKind) newest() uint16 {
	switch k {
	case KindManifest:
		return versionOwnedAll
	case kindMarker, kindLedger, kindHistory:
		return versionOwned
	}
	return Version
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC returns the CRC-32C of b.
func CRC(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// UpdateCRC continues with a CRC-32C.
func UpdateCRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// SealRecord wraps payload in an envelope.
func SealRecord(kind RecordKind, payload []byte) []byte { return sealVersion(kind, Version, payload) }

func sealVersion(kind RecordKind, version uint16, payload []byte) []byte {
	b := make([]byte, 0, len(payload)+RecordExtra)
	b = append(b, recordMagic...)
	b = binary.LittleEndian.AppendUint16(b, uint16(kind))
	b = binary.LittleEndian.AppendUint16(b, version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	return binary.LittleEndian.AppendUint32(b, CRC(b))
}

// openRecord checks the envelope at the start of b and returns the payload and
// the length of the whole record. file is named in errors. The checksum is
// verified before the version and the payload are looked at: the envelope is
// the same in all versions.
func openRecord(file string, b []byte, kind RecordKind) (payload []byte, n int, err error) {
	payload, _, n, err = openVersion(file, b, kind)
	return payload, n, err
}

// openVersion is openRecord for a kind with several versions.
func openVersion(file string, b []byte, kind RecordKind) (payload []byte, version uint16, n int, err error) {
	bad := func(length int, reason string) ([]byte, uint16, int, error) {
		return nil, 0, 0, &CorruptError{File: file, Len: int64(length), Reason: kind.String() + ": " + reason}
	}
	if len(b) < RecordExtra {
		return bad(len(b), "too short")
	}
	if string(b[:8]) != recordMagic {
		return bad(8, "wrong magic")
	}
	length := binary.LittleEndian.Uint32(b[12:])
	version = binary.LittleEndian.Uint16(b[10:])
	total := int64(length) + RecordExtra
	if total > int64(len(b)) {
		return bad(RecordHead, "length beyond the end")
	}
	n = int(total)
	if CRC(b[:n-4]) != binary.LittleEndian.Uint32(b[n-4:]) {
		return bad(n, "checksum does not match")
	}
	if have := RecordKind(binary.LittleEndian.Uint16(b[8:])); have != kind {
		return bad(RecordHead, "is a "+have.String())
	}
	if version == 0 || version > kind.newest() {
		return nil, 0, 0, &VersionError{File: file, What: kind.String(), Have: int(version), Known: int(kind.newest())}
	}
	return b[RecordHead : n-4], version, n, nil
}

// RecordLen returns the length of the record that begins with the RecordHead bytes of b; ok reports whether one does.
func RecordLen(b []byte) (n int64, ok bool) {
	return int64(binary.LittleEndian.Uint32(b[12:])) + RecordExtra, string(b[:8]) == recordMagic
}

// seal makes a file of one record. run is the identity of its run; nil: the kind has none.
func seal(kind RecordKind, fields func(f Fields), run *Identity) []byte {
	var e Encoder
	fields(Appending(&e))
	if run == nil || run.IsZero() {
		return SealRecord(kind, e.B)
	}
	IdentityFields(Appending(&e), run)
	return sealVersion(kind, versionOwned, e.B)
}

// unseal decodes a file of seal. The fields must fill it.
func unseal(file string, b []byte, kind RecordKind, fields func(f Fields), run *Identity) error {
	payload, version, n, err := openVersion(file, b, kind)
	if err != nil {
		return err
	}
	d := &Decoder{B: payload}
	fields(Taking(d))
	if version == versionOwned {
		IdentityFields(Taking(d), run)
		d.Bad = d.Bad || run.IsZero()
	}
	if !d.Done() || n != len(b) {
		return &CorruptError{File: file, Len: int64(len(b)), Reason: kind.String() + ": fields do not fit"}
	}
	return nil
}

// Encoder appends little-endian fields.
type Encoder struct{ B []byte }

// U8 appends a byte.
func (e *Encoder) U8(v uint8)   { e.B = append(e.B, v) }
func (e *Encoder) u16(v uint16) { e.B = binary.LittleEndian.AppendUint16(e.B, v) }

// U32 appends four bytes.
func (e *Encoder) U32(v uint32) { e.B = binary.LittleEndian.AppendUint32(e.B, v) }

// U64 appends eight bytes.
func (e *Encoder) U64(v uint64) { e.B = binary.LittleEndian.AppendUint64(e.B, v) }

// Sum appends a digest.
func (e *Encoder) Sum(v [16]byte) { e.B = append(e.B, v[:]...) }

// Str appends a string of at most 65,535 bytes after its length.
func (e *Encoder) Str(s string) { e.u16(uint16(len(s))); e.B = append(e.B, s...) }

func (e *Encoder) flag(v bool) { e.U8(map[bool]uint8{true: 1}[v]) }

// Decoder takes fields off a payload. After the first field that does not fit
// it yields zeros and remembers that it failed.
type Decoder struct {
	B   []byte
	Bad bool
}

func (d *Decoder) take(n int) []byte {
	if d.Bad || n < 0 || n > len(d.B) {
		d.Bad = true
		return nil
	}
	p := d.B[:n]
	d.B = d.B[n:]
	return p
}

// U8 takes a byte.
func (d *Decoder) U8() uint8 {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (d *Decoder) u16() uint16 {
	if p := d.take(2); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

// U32 takes four bytes.
func (d *Decoder) U32() uint32 {
	if p := d.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

// U64 takes eight bytes.
func (d *Decoder) U64() uint64 {
	if p := d.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// I64 takes a length or offset: more than 2^62 is damage.
func (d *Decoder) I64() int64 {
	v := d.U64()
	if v > 1<<62 {
		d.Bad = true
		return 0
	}
	return int64(v)
}

// Sum takes a digest.
func (d *Decoder) Sum() (s [16]byte) {
	copy(s[:], d.take(16))
	return s
}

// Str takes a string.
func (d *Decoder) Str() string { return string(d.take(int(d.u16()))) }

// Count takes a number of items of at least itemBytes each, and refuses one
// that the rest of the payload cannot hold.
func (d *Decoder) Count(itemBytes int) int {
	n := d.U32()
	if int64(n)*int64(itemBytes) > int64(len(d.B)) {
		d.Bad = true
		return 0
	}
	return int(n)
}

func (d *Decoder) flag() bool {
	n := d.U8()
	d.Bad = d.Bad || n > 1
	return n == 1
}

// Done reports whether everything was taken and everything fitted.
func (d *Decoder) Done() bool { return !d.Bad && len(d.B) == 0 }
