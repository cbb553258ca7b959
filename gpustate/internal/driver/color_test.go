package driver

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
)

func colorOf(f ...float32) (c Color) {
	for i, v := range f {
		binary.NativeEndian.PutUint32(c[4*i:], math.Float32bits(v))
	}
	return c
}

// TestPixel: colors become pixels as chapter 8.3 of the OpenCL specification says.
func TestPixel(t *testing.T) {
	u16 := func(list ...uint16) (b []byte) {
		for _, v := range list {
			b = binary.NativeEndian.AppendUint16(b, v)
		}
		return b
	}
	var ints Color
	for i, v := range []int32{-200, 200, -3, 70000} {
		binary.NativeEndian.PutUint32(ints[4*i:], uint32(v))
	}
	for _, c := range []struct {
		name           string
		color          Color
		order, channel uint32
		want           []byte
	}{
		{"unorm8 BGRA", colorOf(0, 0.5, 1, 2), 0x10B6, 0x10D2, []byte{255, 128, 0, 255}},
		{"snorm8 ARGB", colorOf(-1, -0.5, 1, -2), 0x10B7, 0x10D0, []byte{0x80, 0x81, 0xC0, 0x7F}},
		{"signed8", ints, 0x10B5, 0x10D7, []byte{0x80, 0x7F, 0xFD, 0x7F}},
		{"signed16 RA", ints, 0x10B3, 0x10D8, u16(0xFF38, 0x7FFF)},
		{"unsigned16", ints, 0x10B5, 0x10DB, u16(65535, 200, 65535, 65535)},
		{"half", colorOf(1, -2, 65504, 0x1p-24), 0x10B5, 0x10DD, u16(0x3C00, 0xC000, 0x7BFF, 1)},
		{"half rounds", colorOf(1+0x1p-11, 1+0x3p-11, 0x1p-14, 1e9), 0x10B5, 0x10DD,
			u16(0x3C00, 0x3C02, 0x0400, 0x7C00)},
		{"half carries", colorOf(2-0x1p-12, 0x1p-14-0x1p-26, 0, 0), 0x10B2, 0x10DD, u16(0x4000, 0x0400)},
		{"float R", colorOf(3.5), 0x10B0, 0x10DE, binary.NativeEndian.AppendUint32(nil, math.Float32bits(3.5))},
	} {
		if got, err := c.color.Pixel(c.order, c.channel); err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: got % x, %v, want % x", c.name, got, err, c.want)
		}
	}
	if _, err := (Color{}).Pixel(1, 2); err == nil {
		t.Error("an unknown format has a pixel")
	}
}

// TestLayout: what Fits accepts lies within the bytes, and Origin is Off.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		l     Layout
		b     Box
		bytes int64
		want  bool
	}{
		{Layout{0, 10, 100}, Box{10, 10, 10}, 1000, true},
		{Layout{1, 10, 100}, Box{10, 10, 10}, 1000, false},
		{Layout{1, 10, 100}, Box{9, 10, 10}, 1000, true},
		{Layout{Row: 9, Slice: 100}, Box{10, 1, 1}, 1000, false},
		{Layout{Row: 10, Slice: 90}, Box{10, 10, 2}, 1000, false},
		{Layout{Row: 10, Slice: 105}, Box{10, 10, 2}, 1000, false},
		{Layout{Row: 10, Slice: 100}, Box{0, 1, 1}, 1000, false},
		{Layout{Off: -1, Row: 10, Slice: 100}, Box{1, 1, 1}, 1000, false},
		{Layout{Row: 1 << 40, Slice: 1 << 62}, Box{1, 1 << 40, 1}, math.MaxInt64, false},
		{Layout{Row: 1, Slice: 1 << 62}, Box{1, 1, 4}, math.MaxInt64, false},
		{Layout{Off: 5, Row: 7, Slice: 14}, Box{2, 2, 3}, 42, true},
		{Layout{Off: 6, Row: 7, Slice: 14}, Box{2, 2, 3}, 42, false},
	} {
		if got := c.l.Fits(c.b, c.bytes); got != c.want {
			t.Errorf("%+v of %v in %d bytes: got %v, want %v", c.l, c.b, c.bytes, got, c.want)
		}
		if c.want {
			o := c.l.Origin()
			if o[0]+o[1]*c.l.Row+o[2]*c.l.Slice != c.l.Off {
				t.Errorf("%+v begins at %v", c.l, o)
			}
		}
	}
}
