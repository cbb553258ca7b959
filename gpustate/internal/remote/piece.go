package remote

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// piece is one message's part of a transfer. Bytes counts those of any form.
type piece driver.Transfer

// pack gives a slot the bytes of the host.
func (p *piece) pack(slot []byte) {
	if p.Form == driver.FormBox {
		driver.Rect{Size: p.Size, To: p.Size.Packed(), From: p.There}.CopyRows(slot, p.Host)
		return
	}
	copy(slot, p.Host)
}

// unpack gives the host the bytes of a slot.
func (p *piece) unpack(slot []byte) {
	if p.Form == driver.FormBox {
		driver.Rect{Size: p.Size, To: p.There, From: p.Size.Packed()}.CopyRows(p.Host, slot)
		return
	}
	copy(p.Host, slot)
}

// packed returns the bytes of the host in one piece: the program's own where they are.
func (p *piece) packed() []byte {
	if p.Form != driver.FormBox {
		return p.Host
	}
	b := make([]byte, p.Bytes)
	p.pack(b)
	return b
}

// pieces divides a transfer into parts that fit into slots. Parts of bytes and of pixels are one range of the host's
// bytes each.
func pieces(t driver.Transfer, pixel int) (list []piece) {
	host := t.Host
	add := func(to driver.Place, n int) {
		to.Bytes = int64(n)
		list = append(list, piece{Place: to, Host: host[:n]})
		host = host[n:]
	}
	switch t.Form {
	case driver.FormBox:
		extents := [3]int{int(t.Size[0]), int(t.Size[1]), int(t.Size[2])}
		divide(extents, 1, pieceBytes(int(t.Size.Bytes())), func(o, n [3]int) {
			x, y, z := int64(o[0]), int64(o[1]), int64(o[2])
			to := driver.BoxAt(driver.Box{int64(n[0]), int64(n[1]), int64(n[2])}, t.At.From(x, y, z))
			to.Bytes = to.Size.Bytes()
			list = append(list, piece{Place: to, Host: host, There: t.There.From(x, y, z)})
		})
	case driver.FormPixels:
		divide(t.Region.Size, pixel, pieceBytes(len(host)), func(at, size [3]int) {
			part := driver.Region{Origin: t.Region.Origin, Size: size}
			for i := range at {
				part.Origin[i] += at[i]
			}
			add(driver.Pixels(part), part.Pixels()*pixel)
		})
	default:
		step := pieceBytes(len(host))
		for off := t.Off; len(host) > 0; off += int64(step) {
			add(driver.Place{Off: off}, min(len(host), step))
		}
	}
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
