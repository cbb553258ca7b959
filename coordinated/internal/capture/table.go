package capture

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/codec"
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

// InlineBytes is the size below which a value is kept in the table.
const InlineBytes = 64 << 10

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

// decodeVars reads the bytes of encodeVars. storage has verified them; an impossible value is corruption all the same.
func decodeVars(b []byte) ([]entry, error) {
	r := codec.Reader{B: b}
	if string(r.Take(len(varsMagic))) != varsMagic {
		return nil, corruptVars("no table of variables")
	}
	if v := r.Fixed(2); v != varsVersion {
		return nil, fmt.Errorf("table of variables has version %d, this program reads %d; use a newer holdfast", v,
			varsVersion)
	}
	n := r.Fixed(4)
	if n > uint64(len(r.B)) {
		return nil, corruptVars("more entries than bytes")
	}
	entries := make([]entry, 0, n)
	var inline []bool
	for range n {
		e := entry{name: string(r.Take(int(r.Fixed(2)))), kind: string(r.Take(int(r.Fixed(2))))}
		e.size = int64(r.Fixed(8))
		inline = append(inline, r.Fixed(1) == 1)
		if e.size < 0 {
			return nil, corruptVars("negative size")
		}
		entries = append(entries, e)
	}
	for i := range entries {
		if inline[i] {
			if entries[i].size > int64(len(r.B)) {
				return nil, corruptVars("inline bytes truncated")
			}
			entries[i].inline = r.Take(int(entries[i].size))
		}
	}
	if r.End() != nil {
		return nil, corruptVars("length does not fit the entries")
	}
	return entries, nil
}

func corruptVars(why string) error {
	return fmt.Errorf("section %s: %s: %w", sectionVars, why, storage.ErrCorrupt)
}
