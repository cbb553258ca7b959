package gputest

import (
	"encoding/binary"
	"math"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

func uintColor(components ...uint32) (c gpustate.Color) {
	for i, v := range components {
		binary.NativeEndian.PutUint32(c[4*i:], v)
	}
	return c
}

func floatColor(r, g, b, a float32) gpustate.Color {
	return uintColor(math.Float32bits(r), math.Float32bits(g), math.Float32bits(b), math.Float32bits(a))
}
