package driver

import (
	"math"

	"github.com/holdfast-hpc/holdfast/internal/codec"
)

// Mem is a memory object; what it is made from has a number.
type Mem struct {
	Kind   MemKind
	Access Access
	Bytes  int64
	Parent uint64 // MemSub, MemView: the buffer; MemGlobal: the program
	Offset int64  // MemSub
	Image  ImageDesc
}

// HasContents reports whether the object has bytes of its own: those of a sub-buffer
// and of an image on a buffer are its parent's.
func (m *Mem) HasContents() bool { return m != nil && !m.Kind.OfBuffer() }

// PassMem passes a memory object.
func PassMem(f *codec.Fields, m *Mem) {
	codec.Small(f, &m.Kind, math.MaxUint8)
	codec.Small(f, &m.Access, math.MaxUint8)
	codec.Size(f, &m.Bytes)
	f.Uint(&m.Parent)
	codec.Size(f, &m.Offset)
	i := &m.Image
	shape := i.Shape()
	codec.Size(f, &shape, &i.Width, &i.Height, &i.Depth)
	i.SetShape(shape)
	codec.Size(f, &i.Order, &i.Type)
}

// PassSampler passes a sampler.
func PassSampler(f *codec.Fields, s *SamplerDesc) {
	f.Bool(&s.Normalized)
	codec.Small(f, &s.Addressing, math.MaxUint32)
	codec.Small(f, &s.Filter, math.MaxUint32)
}

// PassNames passes the texts that describe a device.
func PassNames(f *codec.Fields, i *Info) {
	f.Str(&i.Kind, &i.Platform, &i.Vendor, &i.Name, &i.Version, &i.Type, &i.UUID, &i.PCI, &i.Arch)
}
