package cuda

/*
#include "table.h"
*/
import "C"

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// formats are CUarray_format and bytes of OpenCL's channel types.
var formats = map[uint32]struct{ format, bytes int }{
	0x10D2: {0x01, 1}, 0x10D3: {0x02, 2}, // UNORM_INT8/16 read as fractions
	0x10D7: {0x08, 1}, 0x10D8: {0x09, 2}, 0x10D9: {0x0a, 4}, // SIGNED_INT8/16/32
	0x10DA: {0x01, 1}, 0x10DB: {0x02, 2}, 0x10DC: {0x03, 4}, // UNSIGNED_INT8/16/32
	0x10DD: {0x10, 2}, 0x10DE: {0x20, 4}, // HALF_FLOAT, FLOAT
}

// channelCounts are the numbers of channels of OpenCL's channel orders that
// CUDA stores in the same order.
var channelCounts = map[uint32]int{0x10B0: 1, 0x10B2: 2, 0x10B5: 4} // R, RG, RGBA

// fractional channel types are read as numbers from 0 to 1.
func fractional(channelType uint32) bool { return channelType == 0x10D2 || channelType == 0x10D3 }

// ImageFormats lists the formats of createImage; it is the same for all shapes.
func (d *device) ImageFormats(driver.Access, int) (list [][2]uint32, err error) {
	for order := range channelCounts {
		for channel := range formats {
			list = append(list, [2]uint32{order, channel})
		}
	}
	return list, nil
}

func (d *device) createImage(o *mem) error {
	f, channels := formats[o.image.Type], channelCounts[o.image.Order]
	if f.bytes == 0 || channels == 0 {
		return fmt.Errorf("image format order=%#x type=%#x in CUDA: %w",
			o.image.Order, o.image.Type, driver.ErrUnsupported)
	}
	o.pixel = f.bytes * channels
	i := &o.image
	array, err := madeBy("cuArray3DCreate", C.hfcu_array(d.ctx, C.hfcu_image_desc{dims: C.int(i.Dims),
		array: cbool(i.Array), w: C.size_t(i.Width), h: C.size_t(i.Height), d: C.size_t(i.Depth),
		format: C.int(f.format), channels: C.int(channels)}))
	if err != nil {
		return err
	}
	o.array = handle(array)
	surface, err := madeBy("cuSurfObjectCreate", C.hfcu_surface(d.ctx, o.array))
	if err != nil {
		return errors.Join(err, freeArray(d.ctx, o.array))
	}
	o.surface = address(surface)
	o.textures = map[driver.SamplerDesc]address{}
	return nil
}

func (d *device) releaseImage(m *mem) error {
	errs := []error{check("cuSurfObjectDestroy", C.hfcu_surface_free(d.ctx, m.surface))}
	for _, t := range m.textures {
		errs = append(errs, check("cuTexObjectDestroy", C.hfcu_texture_free(d.ctx, t)))
	}
	return errors.Join(append(errs, freeArray(d.ctx, m.array))...)
}

// addressModes are CUaddress_mode of OpenCL's addressing modes.
var addressModes = map[uint32]int{
	0x1130: 1, 0x1131: 1, // NONE and CLAMP_TO_EDGE: clamp
	0x1132: 3, // CLAMP: border
	0x1133: 0, // REPEAT: wrap
	0x1134: 2, // MIRRORED_REPEAT: mirror
}

// Flags of CUDA_TEXTURE_DESC.
const (
	textureReadAsInteger = 1
	textureNormalized    = 2
)

// texture returns the object by which a kernel reads the image, through a sampler.
func (d *device) texture(m *mem, s driver.SamplerDesc) (address, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := m.textures[s]; ok {
		return t, nil
	}
	var flags C.unsigned
	if s.Normalized {
		flags |= textureNormalized
	}
	// float formats ignore the flag; integers keep their values unless fractional
	if !fractional(m.image.Type) {
		flags |= textureReadAsInteger
	}
	filter := C.int(0)
	if s.Filter == 0x1141 { // LINEAR
		filter = 1
	}
	t, err := madeBy("cuTexObjectCreate",
		C.hfcu_texture(d.ctx, m.array, C.int(addressModes[s.Addressing]), filter, flags))
	if err == nil {
		m.textures[s] = address(t)
	}
	return address(t), err
}
