package opencl

import (
	"encoding/binary"
	"regexp"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// Questions and answers in OpenCL's numbers.
const (
	kernelAttributes = 0x1195
	argAddress       = 0x1196
	argAccess        = 0x1197
	argType          = 0x1198
	kernelGroupSize  = 0x11B0
	kernelFixedGroup = 0x11B1
	kernelMultiple   = 0x11B3

	addressGlobal   = 0x119B
	addressConstant = 0x119D
	addressPrivate  = 0x119E
	accessReadOnly  = 0x11A0
	accessWriteOnly = 0x11A1
)

// function is what a program says of a kernel in it.
type function struct {
	args       []parameter
	attributes string // as the device tells them
	fixed      [3]int // the work-group that it was compiled for; 0: none
}

// parameter is what the source says of an argument.
type parameter struct {
	address uint32 // space, 0 where it is not known
	takes   uint32 // what handles
	bytes   uint32 // of a number or a vector, 0 for all else
}

// imageType is what OpenCL C calls images.
var imageType = regexp.MustCompile(`^image[123]d(_[a-z]+)*_t$`)

// numberType is a number or a vector of OpenCL C.
var numberType = regexp.MustCompile(`^(char|uchar|short|ushort|half|int|uint|float|long|ulong|double)(2|3|4|8|16)?$`)

// numberBytes is the size of a number or a vector, which devices ask of its argument, 0 for other types.
func numberBytes(name string) uint32 {
	m := numberType.FindStringSubmatch(name)
	if m == nil {
		return 0
	}
	of := map[string]uint32{"char": 1, "short": 2, "half": 2, "int": 4, "float": 4, "long": 8, "double": 8}
	items := map[string]uint32{"": 1, "2": 2, "3": 4, "4": 4, "8": 8, "16": 16}
	return of[strings.TrimPrefix(m[1], "u")] * items[m[2]]
}

// parameterOf asks about an argument.
func parameterOf(k *gpustate.Kernel, i int) (p parameter) {
	word := func(question uint32) uint32 {
		b, err := k.CLArgInfo(i, question)
		if err != nil || len(b) != 4 {
			return 0
		}
		return binary.NativeEndian.Uint32(b)
	}
	p.address = word(argAddress)
	b, err := k.CLArgInfo(i, argType)
	words := strings.Fields(strings.TrimRight(string(b), "\x00"))
	if err != nil || len(words) == 0 {
		if p.address == addressPrivate { // it may be a sampler
			p.address = 0
		}
		return p
	}
	switch name := words[len(words)-1]; { // a qualifier may be before it
	case name == "sampler_t":
		p.takes = wire.TakesSampler
	case strings.HasSuffix(name, "*") && (p.address == addressGlobal || p.address == addressConstant):
		p.takes = wire.TakesBuffer
	case imageType.MatchString(name):
		p.takes = wire.TakesImage
		if access := word(argAccess); access == accessReadOnly {
			p.takes = wire.TakesImageRead
		} else if access == accessWriteOnly {
			p.takes = wire.TakesImageWrite
		}
	case len(words) == 1 && p.address == addressPrivate: // not "unsigned int" and the like
		p.bytes = numberBytes(name)
	}
	return p
}
