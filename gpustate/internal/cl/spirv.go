package cl

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Numbers of SPIR-V's specification.
const (
	spirvMagic      = 0x07230203
	spirvHeader     = 5 // words
	opName          = 5
	opVariable      = 59
	opDecorate      = 71
	decoConstant    = 22
	crossWorkgroup  = 5 // the storage class of global memory
	variableStorage = 3 // which word of opVariable says so
)

// spirvVariables returns the names of the variables in global memory that kernels of a
// module can write. whole is false when it is no module that can be read.
func spirvVariables(il []byte) (names []string, whole bool) {
	var order binary.ByteOrder = binary.LittleEndian
	if len(il) < 4*spirvHeader || len(il)%4 != 0 {
		return nil, false
	}
	if order.Uint32(il) != spirvMagic {
		if order = binary.BigEndian; order.Uint32(il) != spirvMagic {
			return nil, false
		}
	}
	named, constant := map[uint32]string{}, map[uint32]bool{}
	var found []uint32
	for b := il[4*spirvHeader:]; len(b) > 0; {
		head := order.Uint32(b)
		n := int(head>>16) * 4
		if n == 0 || n > len(b) {
			return nil, false
		}
		word := func(i int) uint32 {
			if 4*i+4 > n {
				return 0
			}
			return order.Uint32(b[4*i:])
		}
		switch head & 0xffff {
		case opName:
			if n > 8 {
				text, _, _ := bytes.Cut(b[8:n], []byte{0})
				named[word(1)] = string(text)
			}
		case opDecorate:
			if word(2) == decoConstant {
				constant[word(1)] = true
			}
		case opVariable:
			if word(variableStorage) == crossWorkgroup {
				found = append(found, word(2))
			}
		}
		b = b[n:]
	}
	for _, id := range found {
		if constant[id] {
			continue
		}
		name := named[id]
		if name == "" {
			name = fmt.Sprintf("%%%d", id)
		}
		names = append(names, name)
	}
	return names, true
}
