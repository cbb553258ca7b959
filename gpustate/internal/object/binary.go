package object

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var ptxTarget = regexp.MustCompile(`(?m)^\s*\.target\s+sm_(\d+)`)

// unloadable says what a binary form of CUDA is made for when a device of the
// architecture does not load it; empty when it does, or when that is not known. PTX
// loads on its target and on later ones, a cubin within its generation.
func unloadable(image []byte, arch string) string {
	device := number(strings.TrimPrefix(arch, "sm_"))
	if device == 0 {
		return ""
	}
	if sm := cubinArch(image); sm != 0 {
		if sm/10 != device/10 || sm > device {
			return fmt.Sprintf("a cubin for sm_%d", sm)
		}
		return ""
	}
	if m := ptxTarget.FindSubmatch(image); m != nil {
		if sm := number(string(m[1])); sm > device {
			return fmt.Sprintf("PTX for sm_%d", sm)
		}
	}
	return ""
}

// cubinArch is the architecture in the header of an ELF file for CUDA, 0 when it is
// something else.
func cubinArch(image []byte) int {
	const machine, flags, header, cuda = 18, 48, 64, 190
	if len(image) < header || string(image[:4]) != "\x7fELF" || binary.LittleEndian.Uint16(image[machine:]) != cuda {
		return 0
	}
	f := binary.LittleEndian.Uint32(image[flags:])
	switch image[7] {
	case 0x33:
		return int(f & 0xff)
	case 0x41: // since CUDA 13
		return int(f >> 8 & 0xff)
	}
	return 0
}

// number is the leading decimal number of a text, 0 if there is none.
func number(s string) int {
	end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(s)
	}
	n, _ := strconv.Atoi(s[:end])
	return n
}
