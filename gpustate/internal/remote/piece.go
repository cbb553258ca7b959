package remote

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// piece is one message's part of a transfer.
type piece struct {
	form   int // of wire.Transfer
	off    int64
	region driver.Region
	host   []byte

	// of a box, whose bytes lie apart in host
	size   driver.Box
	at, in driver.Layout // in the object, and in host
}

// bytes returns how many bytes the piece moves.
func (p *piece) bytes() int64 {
	if p.form == wire.FormRect {
		return p.size.Bytes()
	}
	return int64(len(p.host))
}

// pack gives a slot the bytes of the host.
func (p *piece) pack(slot []byte) {
	if p.form == wire.FormRect {
		driver.Rect{Size: p.size, To: p.size.Packed(), From: p.in}.CopyRows(slot, p.host)
		return
	}
	copy(slot, p.host)
}

// unpack gives the host the bytes of a slot.
func (p *piece) unpack(slot []byte) {
	if p.form == wire.FormRect {
		driver.Rect{Size: p.size, To: p.in, From: p.size.Packed()}.CopyRows(p.host, slot)
		return
	}
	copy(p.host, slot)
}

// packed returns the bytes of the host in one piece: the program's own where they are.
func (p *piece) packed() []byte {
	if p.form != wire.FormRect {
		return p.host
	}
	b := make([]byte, p.bytes())
	p.pack(b)
	return b
}

func linear(off int64, host []byte) (list []piece) {
	step := pieceBytes(len(host))
	for len(host) > 0 {
		n := min(len(host), step)
		list = append(list, piece{off: off, host: host[:n]})
		off, host = off+int64(n), host[n:]
	}
	return list
}

// boxes divides a region into parts that are one range of the packed bytes each.
func boxes(r driver.Region, pixel int, host []byte) (list []piece) {
	divide(r.Size, pixel, pieceBytes(len(host)), func(at, size [3]int) {
		part := driver.Region{Origin: r.Origin, Size: size}
		for i := range at {
			part.Origin[i] += at[i]
		}
		n := part.Pixels() * pixel
		list = append(list, piece{form: wire.FormImage, host: host[:n], region: part})
		host = host[n:]
	})
	return list
}

// rects divides a box of bytes into parts that fit into slots; at is where it lies in
// the object, in where in host.
func rects(size driver.Box, at driver.Layout, host []byte, in driver.Layout) (list []piece) {
	extents := [3]int{int(size[0]), int(size[1]), int(size[2])}
	divide(extents, 1, pieceBytes(int(size.Bytes())), func(o, n [3]int) {
		x, y, z := int64(o[0]), int64(o[1]), int64(o[2])
		list = append(list, piece{form: wire.FormRect, host: host, at: at.From(x, y, z), in: in.From(x, y, z),
			size: driver.Box{int64(n[0]), int64(n[1]), int64(n[2])}})
	})
	return list
}

// divide cuts extents of elements into parts of at most limit bytes, in the order of
// the elements: slices, rows, or pieces of a row.
func divide(extents [3]int, element, limit int, add func(at, size [3]int)) {
	row := element * extents[0]
	slice := row * extents[1]
	for z := 0; z < extents[2]; {
		if slice <= limit {
			d := min(limit/slice, extents[2]-z)
			add([3]int{0, 0, z}, [3]int{extents[0], extents[1], d})
			z += d
			continue
		}
		for y := 0; y < extents[1]; {
			if row <= limit {
				h := min(limit/row, extents[1]-y)
				add([3]int{0, y, z}, [3]int{extents[0], h, 1})
				y += h
				continue
			}
			for x := 0; x < extents[0]; {
				w := min(limit/element, extents[0]-x)
				add([3]int{x, y, z}, [3]int{w, 1, 1})
				x += w
			}
			y++
		}
		z++
	}
}

// pieceBytes returns how large the pieces of a transfer are: small enough that the
// two processes work at the same time, large enough that telling each other costs
// little.
func pieceBytes(n int) int {
	const least = 64 << 10
	return min(max(n/8, least), wire.SlotBytes)
}
