package driver

import "math"

// Layout says where a box of bytes lies in linear memory: where its first byte is,
// and how many bytes its rows and its slices are apart.
type Layout struct{ Off, Row, Slice int64 }

// Box is the size of a box of bytes: bytes of a row, rows of a slice, slices.
type Box [3]int64

// Rect is a box that is copied from one layout to another.
type Rect struct {
	Size     Box
	To, From Layout
}

// Bytes returns how many bytes the box has; -1 when an int64 does not hold it, or an
// extent is below 1.
func (b Box) Bytes() int64 {
	n := int64(1)
	for _, extent := range b {
		if extent < 1 || n > math.MaxInt64/extent {
			return -1
		}
		n *= extent
	}
	return n
}

// Packed returns the layout of a box without gaps.
func (b Box) Packed() Layout { return Layout{Row: b[0], Slice: b[0] * b[1]} }

// IsPacked reports whether a box in this layout is one range of bytes.
func (l Layout) IsPacked(b Box) bool {
	return (b[1] == 1 || l.Row == b[0]) && (b[2] == 1 || l.Slice == b[0]*b[1])
}

// Fits reports whether a box lies in this layout within so many bytes: rows and slices do
// not overlap, slices are whole rows apart, and nothing is outside.
func (l Layout) Fits(b Box, bytes int64) bool {
	if b.Bytes() < 0 || l.Off < 0 || l.Row < b[0] || b[1] > math.MaxInt64/l.Row || l.Slice < b[1]*l.Row ||
		l.Slice%l.Row != 0 {
		return false
	}
	left := bytes - l.Off - b[0]
	if left < 0 || (b[2]-1) > left/l.Slice {
		return false
	}
	left -= (b[2] - 1) * l.Slice
	return b[1]-1 <= left/l.Row
}

// Origin returns the layout's first byte as OpenCL counts it: bytes in the row, rows in the
// slice, slices.
func (l Layout) Origin() [3]int64 {
	in := l.Off % l.Slice
	return [3]int64{in % l.Row, in / l.Row, l.Off / l.Slice}
}

// From returns the layout of the part of the box that begins at x, y and z.
func (l Layout) From(x, y, z int64) Layout {
	l.Off += z*l.Slice + y*l.Row + x
	return l
}

// CopyRows copies the box in host memory, row by row.
func (r Rect) CopyRows(to, from []byte) {
	for z := range r.Size[2] {
		for y := range r.Size[1] {
			t, f := r.To.From(0, y, z).Off, r.From.From(0, y, z).Off
			copy(to[t:t+r.Size[0]], from[f:f+r.Size[0]])
		}
	}
}

// Repeat fills b with a pattern, over and over.
func Repeat(b, pattern []byte) {
	for n := copy(b, pattern); n > 0 && n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
