package capture

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-hpc/holdfast/storage"
)

// A shard written by this package has these sections; docs/FORMAT.md describes
// their bytes.
const (
	sectionVars    = "vars"    // table of everything protected in memory, small values inline
	sectionData    = "data/"   // + name: one large value
	sectionGPU     = "gpu/"    // + name: object record of a device
	sectionMailbox = "mailbox" // messages drained and not yet received
)

// inlineBytes is the size below which a value is kept in the table.
const inlineBytes = 64 << 10

const (
	varsMagic   = "HFVR"
	varsVersion = 1
)

// entry is one line of the table of variables.
type entry struct {
	name, kind string
	size       int64
	inline     []byte // nil when the bytes are in a section of their own
}

// encodeVars writes the table: magic, version as 16 bits, number of entries as
// 32 bits, then for each entry its name, kind, size and inline flag, then all
// inline bytes in the same order. Integers are little-endian; strings have a
// 16-bit length before them.
func encodeVars(entries []entry) ([]byte, error) {
	b := append([]byte(nil), varsMagic...)
	b = binary.LittleEndian.AppendUint16(b, varsVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(entries)))
	for _, e := range entries {
		for _, s := range []string{e.name, e.kind} {
			if len(s) > 1<<16-1 {
				return nil, fmt.Errorf("name or layout of %q is longer than %d bytes", e.name, 1<<16-1)
			}
			b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
			b = append(b, s...)
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(e.size))
		if e.inline != nil {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	for _, e := range entries {
		b = append(b, e.inline...)
	}
	return b, nil
}

// decodeVars reads what encodeVars wrote. The bytes have been verified by
// storage; what does not fit is corruption all the same.
func decodeVars(b []byte) ([]entry, error) {
	d := varsReader{b: b}
	if string(d.take(len(varsMagic))) != varsMagic {
		return nil, corruptVars("no table of variables")
	}
	if v := binary.LittleEndian.Uint16(d.take(2)); d.bad || v != varsVersion {
		return nil, fmt.Errorf("table of variables has version %d, this program reads %d; use a newer holdfast", v,
			varsVersion)
	}
	n := binary.LittleEndian.Uint32(d.take(4))
	if int64(n) > int64(len(d.b)) {
		return nil, corruptVars("more entries than bytes")
	}
	entries := make([]entry, 0, n)
	var inline []bool
	for range n {
		e := entry{name: d.str(), kind: d.str()}
		e.size = int64(binary.LittleEndian.Uint64(d.take(8)))
		inline = append(inline, d.take(1)[0] == 1)
		if e.size < 0 {
			return nil, corruptVars("negative size")
		}
		entries = append(entries, e)
	}
	for i := range entries {
		if inline[i] {
			if entries[i].size > int64(len(d.b)) {
				return nil, corruptVars("inline bytes truncated")
			}
			entries[i].inline = d.take(int(entries[i].size))
		}
	}
	if d.bad || len(d.b) > 0 {
		return nil, corruptVars("length does not fit the entries")
	}
	return entries, nil
}

func corruptVars(why string) error {
	return fmt.Errorf("section %s: %s: %w", sectionVars, why, storage.ErrCorrupt)
}

type varsReader struct {
	b   []byte
	bad bool
}

// take returns n bytes, zeros when there are too few.
func (d *varsReader) take(n int) []byte {
	if n > len(d.b) {
		d.bad, d.b = true, nil
		return make([]byte, min(n, 64))
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *varsReader) str() string {
	n := int(binary.LittleEndian.Uint16(d.take(2)))
	if n > len(d.b) {
		d.bad, d.b = true, nil
		return ""
	}
	return string(d.take(n))
}
