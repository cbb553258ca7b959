package gpustate

import (
	"cmp"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Channel orders and types of images, by the numbers of OpenCL.
const (
	ChannelR    uint32 = 0x10B0
	ChannelRG   uint32 = 0x10B2
	ChannelRGBA uint32 = 0x10B5
	ChannelBGRA uint32 = 0x10B6

	ChannelUnorm8  uint32 = 0x10D2
	ChannelUnorm16 uint32 = 0x10D3
	ChannelInt8    uint32 = 0x10D7
	ChannelInt16   uint32 = 0x10D8
	ChannelInt32   uint32 = 0x10D9
	ChannelUint8   uint32 = 0x10DA
	ChannelUint16  uint32 = 0x10DB
	ChannelUint32  uint32 = 0x10DC
	ChannelHalf    uint32 = 0x10DD
	ChannelFloat   uint32 = 0x10DE
)

// ImageDesc describes an image. Extents are in pixels; an image has as many dimensions as the last extent above 1 says,
// unless Dims does. Layers above 0 is the number of images in an array, of one or two dimensions each. In regions, the
// number of an image is the coordinate after its own: y or z.
type ImageDesc struct {
	Dims                 int // 1, 2 or 3; 0: as many as the extents need
	Width, Height, Depth int // 0 counts as 1
	Layers               int
	Order, Type          uint32
	Access               Access
}

// Image is a one-, two- or three-dimensional array of pixels with a format that
// the device knows.
type Image struct{ memory }

func newImage(i item) *Image { return &Image{memory{i}} }

// Sampler says how kernels read between and beyond the pixels of an image.
type Sampler struct{ item }

// Image gives the image of this name, or makes it with undefined contents. Errors match ErrConflict if one exists that
// differs, ErrUnsupported for a format or shape that the device lacks (see ImageFormats), ErrLimit for extents above
// Info's, and ErrOutOfMemory.
func (d *Device) Image(name string, i ImageDesc) (*Image, error) {
	m, err := i.mem()
	if err != nil {
		return nil, &ObjectError{Op: "create", Kind: "image", Name: name, Device: d.Info(),
			Err: fmt.Errorf("%w: %w", err, ErrUnsupported)}
	}
	return obtain(d, record.Object{Name: name, Mem: m}, nil, newImage,
		func(have *record.Object) error { return equal(*have.Mem == *m) })
}

// View gives the image of this name whose pixels are the bytes of b from its begin on, or makes it: no copy. It has one
// dimension. Pixels beyond the end of b match ErrRange. Devices of CUDA have no such images: ErrUnsupported. b may be
// released before it.
func (b *Buffer) View(name string, i ImageDesc) (*Image, error) {
	m := record.Mem{Kind: driver.MemView, Access: i.Access, Parent: b.e.Record.ID,
		Image: driver.ImageDesc{Dims: 1, Width: max(i.Width, 1), Height: 1, Depth: 1, Order: i.Order, Type: i.Type}}
	if p, err := record.PixelBytes(m.Image); err == nil {
		m.Bytes = p * int64(m.Image.Width)
	}
	if _, err := record.ViewPixel(&m, b.e.Record.Mem.Kind, b.e.Record.Mem.Bytes); err != nil {
		return nil, b.fail("view", fmt.Errorf("%w: %w", err, ErrRange))
	}
	if b.e.Released.Load() {
		return nil, b.fail("view", ErrReleased)
	}
	return obtain(b.dev, record.Object{Name: name, Mem: &m}, b.e, newImage,
		func(have *record.Object) error { return equal(*have.Mem == m) })
}

func (i ImageDesc) mem() (*record.Mem, error) {
	desc := driver.ImageDesc{Dims: i.Dims, Width: max(i.Width, 1), Height: max(i.Height, 1),
		Depth: max(i.Depth, 1), Order: i.Order, Type: i.Type}
	if desc.Dims == 0 {
		desc.Dims = 1
		if desc.Height > 1 {
			desc.Dims = 2
		}
		if desc.Depth > 1 {
			desc.Dims = 3
		}
	}
	if i.Layers > 0 {
		if desc.Dims > 2 || desc.Extents()[desc.Dims] != 1 {
			return nil, fmt.Errorf("an array of images of %d x %d x %d", desc.Width, desc.Height, desc.Depth)
		}
		if desc.Array = true; desc.Dims == 1 {
			desc.Height = i.Layers
		} else {
			desc.Depth = i.Layers
		}
	}
	bytes, err := record.ImageBytes(desc)
	return &record.Mem{Kind: driver.MemImage, Bytes: bytes, Access: i.Access, Image: desc}, err
}

// Region is a box of an image, in pixels, as x, y and z. A Size of 0 counts as 1.
type Region struct{ Origin, Size [3]int }

// Whole returns the region of all pixels.
func (i *Image) Whole() Region {
	m := i.e.Record.Mem.Image
	return Region{Size: [3]int{m.Width, m.Height, m.Depth}}
}

// PixelBytes returns the size of one pixel in bytes.
func (i *Image) PixelBytes() int {
	n, _ := record.PixelBytes(i.e.Record.Mem.Image)
	return int(n)
}

// Addressing and filter modes of samplers, by the numbers of OpenCL.
const (
	AddressNone   uint32 = 0x1130
	AddressEdge   uint32 = 0x1131
	AddressClamp  uint32 = 0x1132
	AddressRepeat uint32 = 0x1133
	AddressMirror uint32 = 0x1134

	FilterNearest uint32 = 0x1140
	FilterLinear  uint32 = 0x1141
)

// SamplerDesc describes a sampler. Zero modes are AddressNone and FilterNearest.
type SamplerDesc struct {
	Normalized         bool // coordinates run from 0 to 1
	Addressing, Filter uint32
}

// Sampler gives the sampler of this name, or makes it. Errors match ErrConflict if one exists that differs, and
// ErrUnsupported on a device without images.
func (d *Device) Sampler(name string, s SamplerDesc) (*Sampler, error) {
	want := driver.SamplerDesc{Normalized: s.Normalized, Addressing: cmp.Or(s.Addressing, AddressNone),
		Filter: cmp.Or(s.Filter, FilterNearest)}
	return obtain(d, record.Object{Name: name, Sampler: &want}, nil, func(i item) *Sampler { return &Sampler{i} },
		func(have *record.Object) error { return equal(*have.Sampler == want) })
}

// Name returns the sampler's name, empty if it has none.
func (s *Sampler) Name() string { return s.e.Record.Name }

// Release releases the sampler. A second call does nothing.
func (s *Sampler) Release() error { return s.dev.drop(s.e) }

// ImageArray is added to the dimensions when ImageFormats is asked about arrays.
const ImageArray = driver.ArrayDims

// ImageFormats lists channel order and type of the formats that the device has for images of 1, 2 or 3 dimensions, or
// ImageArray plus 1 or 2. Other dimensions match ErrRange. An API without such a list matches ErrUnsupported.
func (d *Device) ImageFormats(a Access, dims int) ([][2]uint32, error) {
	if dims < 1 || dims > ImageArray+2 || dims == ImageArray {
		return nil, ErrRange
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	return d.state.Session.ImageFormats(a, dims)
}
