package format

import (
	"encoding/binary"
	"errors"

	"github.com/holdfast-hpc/holdfast/internal/layout"
)

// leastItem is the length of the shortest item: a key, and how many elements it has.
const leastItem = 2

// varint appends a number in groups of seven bits, the lowest first; all bytes but the last have the highest bit set.
func (e *Encoder) varint(v uint64) { e.B = binary.AppendUvarint(e.B, v) }

// varint takes what the Encoder's varint appends, and no longer form of it.
func (d *Decoder) varint() uint64 {
	v, n := binary.Uvarint(d.B)
	if d.Bad || n <= 0 || n > 1 && d.B[n-1] == 0 {
		d.Bad = true
		return 0
	}
	d.take(n)
	return v
}

// zigzag maps integers to those without sign, small ones to small ones.
func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// encodeItems appends the items of a set, whose keys ascend.
func encodeItems(e *Encoder, l *layout.Local) {
	e.U32(uint32(len(l.Items)))
	for i := range l.Items {
		it := &l.Items[i]
		switch {
		case l.Kind == layout.KeyedString:
			e.varint(uint64(len(it.Key.Str)))
			e.B = append(e.B, it.Key.Str...)
		case i == 0:
			e.varint(zigzag(it.Key.Int))
		default:
			e.varint(uint64(it.Key.Int) - uint64(l.Items[i-1].Key.Int))
		}
		e.varint(uint64(it.Bytes / l.Elem))
	}
}

// decodeItems reads what encodeItems appended; the caller makes sure that the items can be.
func decodeItems(d *Decoder, l *layout.Local) error {
	n := d.Count(leastItem)
	if n > 0 {
		l.Items = make([]layout.Item, 0, n)
	}
	for i := range n {
		var it layout.Item
		switch v := d.varint(); {
		case l.Kind == layout.KeyedString:
			it.Key.Str = string(d.take(int(min(v, layout.MaxKeyLen+1))))
		case i == 0:
			it.Key.Int = unzigzag(v)
		default:
			it.Key.Int = int64(uint64(l.Items[i-1].Key.Int) + v)
		}
		elems := d.varint()
		if elems > uint64(layout.MaxElems/l.Elem) {
			return errors.New("an item has more elements than can be")
		}
		it.Bytes = int64(elems) * l.Elem
		l.Items = append(l.Items, it)
		if d.Bad {
			break
		}
	}
	return nil
}
