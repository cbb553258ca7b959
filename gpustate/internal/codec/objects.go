package codec

import (
	"math"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Mem is a memory object; what it is made from has a number.
type Mem struct {
	Kind   driver.MemKind
	Access driver.Access
	Bytes  int64
	Parent uint64 // MemSub: the buffer; MemGlobal: the program
	Offset int64  // MemSub
	Image  driver.ImageDesc
}

// HasContents reports whether the object has bytes of its own: those of a sub-buffer
// are its parent's.
func (m *Mem) HasContents() bool { return m != nil && m.Kind != driver.MemSub }

// Mem appends a memory object.
func (w *Writer) Mem(m *Mem) {
	w.Uint(uint64(m.Kind))
	w.Uint(uint64(m.Access))
	w.Int(m.Bytes)
	w.Uint(m.Parent)
	w.Int(m.Offset)
	i := m.Image
	for _, v := range []int{i.Dims, i.Width, i.Height, i.Depth, int(i.Order), int(i.Type)} {
		w.Int(int64(v))
	}
}

// Mem takes a memory object.
func (r *Reader) Mem() Mem {
	return Mem{Kind: driver.MemKind(r.Small(math.MaxUint8)), Access: driver.Access(r.Small(math.MaxUint8)),
		Bytes: r.Size(), Parent: r.Uint(), Offset: r.Size(),
		Image: driver.ImageDesc{Dims: int(r.Size()), Width: int(r.Size()), Height: int(r.Size()), Depth: int(r.Size()),
			Order: uint32(r.Size()), Type: uint32(r.Size())}}
}

// Sampler appends a sampler.
func (w *Writer) Sampler(s *driver.SamplerDesc) {
	w.Bool(s.Normalized)
	w.Uint(uint64(s.Addressing))
	w.Uint(uint64(s.Filter))
}

// Sampler takes a sampler.
func (r *Reader) Sampler() driver.SamplerDesc {
	return driver.SamplerDesc{Normalized: r.Bool(), Addressing: uint32(r.Small(math.MaxUint32)),
		Filter: uint32(r.Small(math.MaxUint32))}
}

// Names appends the texts that describe a device.
func (w *Writer) Names(i *driver.Info) {
	for _, s := range names(i) {
		w.Str(*s)
	}
}

// Names takes the texts that describe a device.
func (r *Reader) Names(i *driver.Info) {
	for _, s := range names(i) {
		*s = r.Str()
	}
}

func names(i *driver.Info) []*string {
	return []*string{&i.Kind, &i.Platform, &i.Vendor, &i.Name, &i.Version, &i.Type, &i.UUID, &i.PCI, &i.Arch}
}
