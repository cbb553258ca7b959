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

// Form is how a place is addressed. The numbers are part of the protocol of servers.
type Form int

// The forms of places.
const (
	FormBytes  Form = iota // bytes without a gap
	FormPixels             // a region of an image
	FormBox                // bytes of linear memory whose rows and slices lie apart
)

// Place is the part of a memory object that a command reads or writes.
type Place struct {
	Form       Form
	Off, Bytes int64  // of FormBytes
	Size       Box    // of FormBox
	At         Layout // the same
	Region     Region // of FormPixels
}

// Bytes is the place of n bytes.
func Bytes(off, n int64) Place { return Place{Off: off, Bytes: n} }

// Pixels is the place of a region.
func Pixels(r Region) Place { return Place{Form: FormPixels, Region: r} }

// BoxAt is the place of a box.
func BoxAt(b Box, l Layout) Place { return Place{Form: FormBox, Size: b, At: l} }

// Content returns how many bytes the place has; pixel is the size of a pixel of the object.
func (p *Place) Content(pixel int64) int64 {
	switch p.Form {
	case FormBox:
		return p.Size.Bytes()
	case FormPixels:
		return int64(p.Region.Pixels()) * pixel
	}
	return p.Bytes
}

// Divide cuts a place into parts of at most limit bytes, in the order of its content: slices, rows, or pieces of a row.
// Bytes counts those of a part of any form; at is where the part begins in the place.
func (p Place) Divide(pixel, limit int64, add func(part Place, at [3]int64)) {
	extents, element := [3]int64{p.Bytes, 1, 1}, int64(1)
	switch p.Form {
	case FormBox:
		extents = p.Size
	case FormPixels:
		element = pixel
		for i, n := range p.Region.Size {
			extents[i] = int64(n)
		}
	}
	var step [3]int64
	bytes := element
	for i, n := range extents {
		step[i] = min(max(limit/max(bytes, 1), 1), n)
		bytes *= n
	}
	for z := int64(0); z < extents[2]; z += step[2] {
		for y := int64(0); y < extents[1]; y += step[1] {
			for x := int64(0); x < extents[0]; x += step[0] {
				at := [3]int64{x, y, z}
				size := Box{min(step[0], extents[0]-x), min(step[1], extents[1]-y), min(step[2], extents[2]-z)}
				part := p
				switch p.Form {
				case FormBox:
					part.Size, part.At = size, p.At.From(x, y, z)
				case FormPixels:
					for i, n := range size {
						part.Region.Origin[i], part.Region.Size[i] = p.Region.Origin[i]+int(at[i]), int(n)
					}
				default:
					part.Off += x
				}
				part.Bytes = element * size.Bytes()
				add(part, at)
			}
		}
	}
}

// Transfer is a command that moves bytes between a place of an object and host memory.
type Transfer struct {
	Mem Handle
	Place
	Host        []byte // as many bytes as the place has, packed, but for a box
	There       Layout // of a box: where it is in Host
	Read, Block bool
}

// Rect returns the box of a transfer, from where it is to where it goes.
func (t Transfer) Rect() Rect {
	if t.Read {
		return Rect{Size: t.Size, To: t.There, From: t.At}
	}
	return Rect{Size: t.Size, To: t.At, From: t.There}
}

// Do carries out a transfer of bytes or of a box with an object whose bytes the host has.
func (t Transfer) Do(object []byte) {
	switch {
	case t.Form == FormBox && t.Read:
		t.Rect().CopyRows(t.Host, object)
	case t.Form == FormBox:
		t.Rect().CopyRows(object, t.Host)
	case t.Read:
		copy(t.Host, object[t.Off:t.Off+int64(len(t.Host))])
	default:
		copy(object[t.Off:t.Off+int64(len(t.Host))], t.Host)
	}
}

// Repeat fills b with a pattern, over and over.
func Repeat(b, pattern []byte) {
	for n := copy(b, pattern); n > 0 && n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
