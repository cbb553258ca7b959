package format

import (
	"encoding/binary"

	"github.com/holdfast-hpc/holdfast/internal/layout"
)

// leastItem is the length of the shortest item: a key, and how many elements it has.
const leastItem = 2

// varint passes over a number in groups of seven bits, the lowest first; all bytes but the last have the highest bit
// set. Longer forms are damage.
func (f Fields) varint(v *uint64) {
	pass(f, v, func(e *Encoder, v uint64) { e.B = binary.AppendUvarint(e.B, v) }, func(d *Decoder) uint64 {
		v, n := binary.Uvarint(d.B)
		if d.Bad || n <= 0 || n > 1 && d.B[n-1] == 0 {
			d.Bad = true
			return 0
		}
		d.take(n)
		return v
	})
}

// zigzag maps integers to those without sign, small ones to small ones.
func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// itemFields passes over the items of a set, whose keys ascend. The caller makes sure that those that were taken can
// be.
func itemFields(f Fields, l *layout.Local) {
	before, first := int64(0), true
	List(f, &l.Items, leastItem, func(v *layout.Item) {
		it := *v
		switch key := uint64(it.Key.Int) - uint64(before); {
		case l.Kind == layout.KeyedString:
			length := uint64(len(it.Key.Str))
			f.varint(&length)
			pass(f, &it.Key.Str, func(e *Encoder, s string) { e.B = append(e.B, s...) },
				func(d *Decoder) string { return string(d.take(int(min(length, layout.MaxKeyLen+1)))) })
		case first:
			key = zigzag(it.Key.Int)
			f.varint(&key)
			it.Key.Int = unzigzag(key)
		default:
			f.varint(&key)
			it.Key.Int = int64(uint64(before) + key)
		}
		before, first = it.Key.Int, false
		elems := uint64(it.Bytes / l.Elem)
		f.varint(&elems)
		f.Refuse(elems > uint64(layout.MaxElems/l.Elem))
		if f.d != nil {
			it.Bytes = int64(elems) * l.Elem
			*v = it
		}
	})
}
