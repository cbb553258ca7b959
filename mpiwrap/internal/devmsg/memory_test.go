package devmsg

import (
	"testing"
	"unsafe"
)

// device is one of Memory that reports whether it is closed.
type device struct{ closed bool }

func (d *device) Closed() bool { return d.closed }

// onDevice is Memory of a device of which nothing but that is asked.
type onDevice struct {
	Memory
	d *device
}

func (m onDevice) Device() any                      { return m.d }
func (m onDevice) Pin([]byte) (func() error, error) { return nil, nil }

// TestBlocksOfClosedDevices: what a device has left when it was closed is for others, and of a program that opens
// one after the other the pool knows the last alone.
func TestBlocksOfClosedDevices(t *testing.T) {
	var p Pool
	seen := map[*byte]bool{}
	for range 100 {
		m := onDevice{d: &device{}}
		var blocks []*Block
		for _, n := range []int{0, 1, SmallBytes, 3 * SmallBytes} {
			b, err := p.Take(m, n)
			if err != nil {
				t.Fatal(err)
			}
			b.Pin(m)
			blocks = append(blocks, b)
			seen[unsafe.SliceData(b.area.bytes)] = true
		}
		for _, b := range blocks[1:] {
			b.Free()
		}
		m.d.closed = true
		blocks[0].Free() // the message was still on its way
	}
	if len(seen) > 4+1 {
		t.Errorf("%d blocks were made for 4 at a time", len(seen))
	}
	for _, list := range p.free {
		for _, a := range list {
			if len(a.pinned) > 1 {
				t.Errorf("an area of %d bytes is page-locked for %d devices", len(a.bytes), len(a.pinned))
			}
		}
	}
	a, b := onDevice{d: &device{}}, onDevice{d: &device{}}
	x, err1 := p.Take(a, 1)
	y, err2 := p.Take(b, 1)
	if err1 != nil || err2 != nil || unsafe.SliceData(x.area.bytes) == unsafe.SliceData(y.area.bytes) {
		t.Errorf("two devices have one block (%v, %v)", err1, err2)
	}
}
