package driver

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Color is the four components of a pixel, red to alpha, as OpenCL gives them to
// clEnqueueFillImage, in the host's byte order: float32 for channels of fractions and
// floats, int32 for signed integers, uint32 for unsigned ones.
type Color [16]byte

// channelOrders are, for each channel order, the components that a pixel stores.
var channelOrders = map[uint32][]int{
	0x10B0: {0}, 0x10B1: {3}, 0x10B2: {0, 1}, 0x10B3: {0, 3}, // R, A, RG, RA
	0x10B5: {0, 1, 2, 3}, 0x10B6: {2, 1, 0, 3}, 0x10B7: {3, 0, 1, 2}, // RGBA, BGRA, ARGB
	0x10B8: {0}, 0x10B9: {0}, // INTENSITY, LUMINANCE
}

// Pixel returns the color as one pixel of an image of that format, by OpenCL's rules: fractions round to the nearest,
// numbers out of range to the nearest one in range.
func (c Color) Pixel(order, channel uint32) ([]byte, error) {
	of, ok := channelOrders[order]
	var b []byte
	for _, k := range of {
		if b, ok = appendChannel(b, channel, binary.NativeEndian.Uint32(c[4*k:])); !ok {
			break
		}
	}
	if !ok {
		return nil, fmt.Errorf("a color in image format order=%#x type=%#x: %w", order, channel, ErrUnsupported)
	}
	return b, nil
}

// appendChannel appends one component with the bits v.
func appendChannel(b []byte, channel, v uint32) (_ []byte, ok bool) {
	f, i, e := float64(math.Float32frombits(v)), int64(int32(v)), binary.NativeEndian
	within := func(n, low, high int64) uint16 { return uint16(min(max(n, low), high)) }
	switch channel {
	case 0x10D0: // SNORM_INT8
		return append(b, byte(fraction(f, -128, 127))), true
	case 0x10D1: // SNORM_INT16
		return e.AppendUint16(b, uint16(fraction(f, -32768, 32767))), true
	case 0x10D2: // UNORM_INT8
		return append(b, byte(fraction(f, 0, 255))), true
	case 0x10D3: // UNORM_INT16
		return e.AppendUint16(b, uint16(fraction(f, 0, 65535))), true
	case 0x10D7: // SIGNED_INT8
		return append(b, byte(within(i, -128, 127))), true
	case 0x10D8: // SIGNED_INT16
		return e.AppendUint16(b, within(i, -32768, 32767)), true
	case 0x10DA: // UNSIGNED_INT8
		return append(b, byte(min(v, 255))), true
	case 0x10DB: // UNSIGNED_INT16
		return e.AppendUint16(b, uint16(min(v, 65535))), true
	case 0x10DD: // HALF_FLOAT
		return e.AppendUint16(b, half(f)), true
	case 0x10D9, 0x10DC, 0x10DE: // SIGNED_INT32, UNSIGNED_INT32, FLOAT
		return e.AppendUint32(b, v), true
	}
	return b, false
}

// fraction is f times the largest number, within low and high; NaN is 0.
func fraction(f float64, low, high int64) int64 {
	if math.IsNaN(f) {
		return 0
	}
	return int64(math.RoundToEven(min(max(f*float64(high), float64(low)), float64(high))))
}

// half returns the IEEE half-precision number nearest to f, ties to even.
func half(f float64) uint16 {
	sign := uint16(0)
	if math.Signbit(f) {
		sign, f = 0x8000, -f
	}
	switch {
	case math.IsNaN(f):
		return sign | 0x7e00
	case f >= 65520: // rounds beyond the largest
		return sign | 0x7c00
	case f < 0x1p-14: // subnormal: a multiple of 2^-24; a carry makes it the smallest normal one
		return sign | uint16(math.RoundToEven(f*0x1p24))
	}
	m, e := math.Frexp(f)                    // f = m 2^e, m in [0.5, 1)
	n := uint16(math.RoundToEven(m * 0x800)) // 11 bits, or 0x800 after a carry
	return sign | (uint16(e+13)<<10 + n)
}
