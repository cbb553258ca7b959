package cl

import "strings"

// bits names the bits of v that are set, lowest first; none is the text of no bit.
func bits(v int, none string, names ...string) string {
	var set []string
	for i, name := range names {
		if v&(1<<i) != 0 {
			set = append(set, name)
		}
	}
	if set == nil {
		return none
	}
	return strings.Join(set, "|")
}

// pick returns the name of number v, or other.
func pick(v int, other string, names ...string) string {
	if v < 0 || v >= len(names) {
		return other
	}
	return names[v]
}

// ImageFormat is the format of a pixel.
type ImageFormat struct {
	ChannelOrder    ChannelOrder
	ChannelDataType ChannelDataType
}

// ImageDescription describes an image. Images of arrays, of buffers and with mip levels are ErrUnsupported.
type ImageDescription struct {
	Type                            MemObjectType
	Width, Height, Depth            int
	ArraySize, RowPitch, SlicePitch int
	NumMipLevels, NumSamples        int
	Buffer                          *MemObject
}
