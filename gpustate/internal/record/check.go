package record

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// check finds records that decode but describe impossible objects.
func (r *Record) check(version uint32) error {
	if version >= 2 {
		// Each object can be told from all others.
		type place struct {
			kind            string
			parent, ordinal uint64
		}
		taken := map[place]bool{}
		for i := range r.Objects {
			o := &r.Objects[i]
			at := place{o.Kind(), o.Parent(), o.Ordinal}
			if (o.Ordinal == 0) != (o.Name != "") || o.Name == "" && taken[at] {
				return fmt.Errorf("%w: %s %d is number %d without a name", ErrCorrupt, o.Kind(), o.ID, o.Ordinal)
			}
			taken[at] = true
		}
	}
	seen, all := map[uint64]*Object{}, map[uint64]*Object{}
	for i := range r.Objects {
		all[r.Objects[i].ID] = &r.Objects[i]
	}
	last := uint64(0)
	for i := range r.Objects {
		o := &r.Objects[i]
		if o.ID <= last {
			return fmt.Errorf("%w: object %d follows object %d", ErrCorrupt, o.ID, last)
		}
		last = o.ID
		if err := o.check(seen, all); err != nil {
			return fmt.Errorf("%w: %s %q: %w", ErrCorrupt, o.Kind(), o.Name, err)
		}
		seen[o.ID] = o
	}
	return nil
}

// check looks at one object. Its parent comes before it; arguments may be of any age.
func (o *Object) check(seen, all map[uint64]*Object) error {
	switch {
	case o.Mem != nil && o.Mem.Kind == driver.MemGlobal:
		if p := seen[o.Mem.Parent]; p == nil || p.Program == nil || o.Name == "" || o.Mem.Bytes <= 0 {
			return fmt.Errorf("%d bytes of program %d", o.Mem.Bytes, o.Mem.Parent)
		}
	case o.Mem != nil:
		return checkMem(o.Mem, seen)
	case o.Kernel != nil:
		return o.Kernel.check(seen, all)
	case o.Queue != nil && o.Queue.Window < 0:
		return fmt.Errorf("window %d", o.Queue.Window)
	}
	return nil
}

func checkMem(m *Mem, seen map[uint64]*Object) error {
	if m.Bytes <= 0 {
		return fmt.Errorf("%d bytes", m.Bytes)
	}
	switch m.Kind {
	case driver.MemBuffer, driver.MemShared, driver.MemHost:
		return nil
	case driver.MemSub:
		p := seen[m.Parent]
		if p == nil || p.Mem == nil || p.Mem.Kind != driver.MemBuffer {
			return fmt.Errorf("parent %d is not a buffer", m.Parent)
		}
		if m.Offset < 0 || m.Offset > p.Mem.Bytes || m.Bytes > p.Mem.Bytes-m.Offset {
			return fmt.Errorf("range %d+%d outside of its buffer", m.Offset, m.Bytes)
		}
		return nil
	case driver.MemView:
		p := seen[m.Parent]
		if p == nil || p.Mem == nil {
			return fmt.Errorf("parent %d is not a buffer", m.Parent)
		}
		_, err := ViewPixel(m, p.Mem.Kind, p.Mem.Bytes)
		return err
	case driver.MemImage:
		n, err := ImageBytes(m.Image)
		if err == nil && n != m.Bytes {
			err = fmt.Errorf("%d bytes for an image of %d", m.Bytes, n)
		}
		return err
	}
	return fmt.Errorf("unknown memory kind %d", m.Kind)
}

func (k *Kernel) check(seen, all map[uint64]*Object) error {
	if p := seen[k.Program]; p == nil || p.Program == nil {
		return fmt.Errorf("object %d is not a program", k.Program)
	}
	for i, a := range k.Args {
		ok := true
		switch a.Kind {
		case driver.ArgNone, driver.ArgValue, driver.ArgNull:
		case driver.ArgLocal:
			ok = a.Local > 0
		case driver.ArgMem:
			// 0 stands for an object that was released while it was an argument; a
			// program cannot give a kernel a variable
			m := all[a.Object]
			ok = a.Object == 0 || m != nil && m.Mem != nil && m.Mem.Kind != driver.MemGlobal
		case driver.ArgSampler:
			ok = a.Object == 0 || all[a.Object] != nil && all[a.Object].Sampler != nil
		default:
			ok = false
		}
		if !ok {
			return fmt.Errorf("argument %d", i)
		}
	}
	return nil
}

// channels is the number of channels of an image format's channel order.
var channels = map[uint32]int64{
	0x10B0: 1, 0x10B1: 1, 0x10B2: 2, 0x10B3: 2, // R, A, RG, RA
	0x10B5: 4, 0x10B6: 4, 0x10B7: 4, // RGBA, BGRA, ARGB
	0x10B8: 1, 0x10B9: 1, // INTENSITY, LUMINANCE
}

// channelBytes is the size of one channel of an image format's channel type.
var channelBytes = map[uint32]int64{
	0x10D0: 1, 0x10D1: 2, 0x10D2: 1, 0x10D3: 2, // SNORM_INT8/16, UNORM_INT8/16
	0x10D7: 1, 0x10D8: 2, 0x10D9: 4, // SIGNED_INT8/16/32
	0x10DA: 1, 0x10DB: 2, 0x10DC: 4, // UNSIGNED_INT8/16/32
	0x10DD: 2, 0x10DE: 4, // HALF_FLOAT, FLOAT
}

// PixelBytes returns the size of one pixel.
func PixelBytes(i driver.ImageDesc) (int64, error) {
	c, b := channels[i.Order], channelBytes[i.Type]
	if c == 0 || b == 0 {
		return 0, fmt.Errorf("image format order=%#x type=%#x is not known", i.Order, i.Type)
	}
	return c * b, nil
}

// ViewPixel returns the size of a pixel of an image on a buffer, which has a kind and so many
// bytes. The image begins where the buffer does.
func ViewPixel(m *Mem, kind driver.MemKind, bytes int64) (int64, error) {
	i := m.Image
	p, err := PixelBytes(i)
	if err != nil {
		return 0, err
	}
	if kind != driver.MemBuffer && kind != driver.MemSub || i.Dims != 1 || i.Array || i.Height != 1 || i.Depth != 1 ||
		m.Offset != 0 || i.Width < 1 || int64(i.Width) > bytes/p || m.Bytes != p*int64(i.Width) {
		return 0, fmt.Errorf("image of %d pixels on a %s of %d bytes", i.Width, MemKindName(kind), bytes)
	}
	return p, nil
}

// maxExtent keeps the product of three extents and a pixel within an int64.
const maxExtent = 1 << 18

// ImageBytes returns the size of an image's packed contents.
func ImageBytes(i driver.ImageDesc) (int64, error) {
	used := i.Dims
	if i.Array {
		used++
	}
	if i.Dims < 1 || used > 3 {
		return 0, fmt.Errorf("image of %d dimensions, array: %v", i.Dims, i.Array)
	}
	for d, n := range i.Extents() {
		if n < 1 || n > maxExtent || d >= used && n != 1 {
			return 0, fmt.Errorf("image of %d x %d x %d in %d dimensions", i.Width, i.Height, i.Depth, i.Dims)
		}
	}
	p, err := PixelBytes(i)
	return p * int64(i.Width) * int64(i.Height) * int64(i.Depth), err
}
