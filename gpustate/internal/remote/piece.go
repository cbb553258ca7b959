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
	t.Bytes = int64(len(host))
	t.Divide(int64(pixel), pieceBytes(t.Content(int64(pixel))), func(part driver.Place, at [3]int64) {
		if t.Form == driver.FormBox {
			list = append(list, piece{Place: part, Host: host, There: t.There.From(at[0], at[1], at[2])})
			return
		}
		list = append(list, piece{Place: part, Host: host[:part.Bytes]})
		host = host[part.Bytes:]
	})
	return list
}

// pieceBytes returns how large the pieces of a transfer are: small enough that the
// two processes work at the same time, large enough that telling each other costs
// little.
func pieceBytes(n int64) int64 {
	const least = 64 << 10
	return min(max(n/8, least), wire.SlotBytes)
}
