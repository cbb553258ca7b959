package cuda

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/elf"
)

// cubin reads a linked module: an ELF file. Variables that kernels can write are
// the symbols of the sections .nv.global and .nv.global.init; each kernel has a
// section .nv.info.NAME with its parameters.
func (in *inside) cubin(image []byte) {
	f, err := elf.Read(bytes.NewReader(image))
	if err != nil {
		in.sealed = true
		return
	}
	symbols, err := f.Symbols()
	if err != nil {
		in.sealed = true // stripped: the driver finds no variable by name either
		return
	}
	for _, s := range symbols {
		if s.Section == 0 && (s.Name == "malloc" || s.Name == "cudaMalloc") {
			in.heap = true
		}
		if s.Section >= len(f.Sections) || s.IsSection {
			continue
		}
		if strings.HasPrefix(f.Sections[s.Section].Name, ".nv.global") && ours(s.Name) {
			in.variables = append(in.variables, s.Name)
		}
	}
	for i := range f.Sections {
		if name, ok := strings.CutPrefix(f.Sections[i].Name, ".nv.info."); ok {
			if b, err := f.Data(&f.Sections[i]); err == nil {
				in.params[name] = cubinParams(b)
			}
		}
	}
}

// Items of .nv.info: a format, an attribute, and two bytes that are a value or, for formatLong, the length of the
// following bytes.
const (
	formatLong      = 4
	attributeParam  = 0x17
	paramBytes      = 12
	paramSizeShift  = 18
	maxCubinOrdinal = 4096
)

// cubinParams gives the bytes of each parameter. One item describes one: four
// bytes index, two ordinal, two offset, four with the size in the upper bits.
func cubinParams(b []byte) (sizes []int) {
	for len(b) >= 4 {
		format, attribute, n := b[0], b[1], int(binary.LittleEndian.Uint16(b[2:]))
		b = b[4:]
		if format != formatLong {
			continue
		}
		if n > len(b) {
			break
		}
		if attribute == attributeParam && n >= paramBytes {
			ordinal := int(binary.LittleEndian.Uint16(b[4:]))
			for ordinal >= len(sizes) && ordinal < maxCubinOrdinal {
				sizes = append(sizes, 0)
			}
			if ordinal < len(sizes) {
				sizes[ordinal] = int(binary.LittleEndian.Uint32(b[8:]) >> paramSizeShift)
			}
		}
		b = b[n:]
	}
	return sizes
}
