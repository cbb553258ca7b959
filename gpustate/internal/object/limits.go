package object

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Check reports whether a device can have an object, as far as it tells before it makes it.
func Check(drv driver.Device, o *record.Object) error {
	i := drv.Info()
	if err := CheckObject(o, i); err != nil {
		return err
	}
	if o.Mem == nil || o.Mem.Kind != driver.MemImage {
		return nil
	}
	image := &o.Mem.Image
	list, _ := drv.ImageFormats(o.Mem.Access, image.Shape()) // with an error the device itself says no
	if list != nil && !slices.Contains(list, [2]uint32{image.Order, image.Type}) {
		return fmt.Errorf("the device does not support %d-dimensional images with channel order %#x and type %#x: %w",
			image.Dims, image.Order, image.Type, driver.ErrUnsupported)
	}
	return nil
}

// CheckGroup reports whether a device can run a kernel with the work-group that it was launched with last.
func CheckGroup(drv driver.Device, k *Kernel) error {
	if limit := drv.Info().MaxGroup; limit > 0 && k.group > limit {
		return fmt.Errorf("it was launched with work-groups of %d, the device allows %d: %w", k.group, limit, ErrLimit)
	}
	return nil
}

// CheckBuilt is CheckGroup with the device's limits of the kernel itself.
func CheckBuilt(drv driver.Device, k *Kernel, h driver.Handle) error {
	if k.group == 0 {
		return nil
	}
	if size, _, err := drv.WorkGroup(h); err == nil && size > 0 && k.group > size {
		return fmt.Errorf("it was launched with work-groups of %d, the device allows %d for this kernel: %w", k.group,
			size, ErrLimit)
	}
	return nil
}

// CheckObject checks an object against the description of a device.
func CheckObject(o *record.Object, i driver.Info) error {
	switch {
	case o.Mem != nil:
		return checkMem(o.Mem, i)
	case o.Kernel != nil:
		return CheckLocal(o.Kernel, i)
	case o.Program != nil:
		return checkProgram(o.Program, i)
	case o.Sampler != nil && !i.Images:
		return fmt.Errorf("the device does not support images: %w", driver.ErrUnsupported)
	}
	return nil
}

func checkMem(m *record.Mem, i driver.Info) error {
	if m.Bytes <= 0 {
		return fmt.Errorf("%d bytes: %w", m.Bytes, ErrRange)
	}
	switch m.Kind {
	case driver.MemImage:
		return checkImage(m, i)
	case driver.MemView:
		if !i.Images || i.Kind == "cuda" {
			return fmt.Errorf("the device does not support images on buffers: %w", driver.ErrUnsupported)
		}
		return nil
	case driver.MemSub:
		if i.SubAlign > 0 && m.Offset%int64(i.SubAlign) != 0 {
			return fmt.Errorf("offset %d is not a multiple of %d: %w", m.Offset, i.SubAlign, ErrLimit)
		}
	case driver.MemHost:
		return nil
	case driver.MemGlobal:
		if !driver.Can(i).TakesCUDA {
			return fmt.Errorf("a variable of the program's CUDA form has no counterpart in OpenCL: move it to a "+
				"Buffer: %w", driver.ErrHidden)
		}
		return nil
	}
	if i.MaxAllocBytes > 0 && m.Bytes > i.MaxAllocBytes {
		return fmt.Errorf("%d bytes wanted, the device allocates at most %d at once: %w", m.Bytes, i.MaxAllocBytes,
			ErrLimit)
	}
	return nil
}

func checkImage(m *record.Mem, i driver.Info) error {
	if !i.Images {
		return fmt.Errorf("the device does not support images: %w", driver.ErrUnsupported)
	}
	max := [3]int{1, 1, 1}
	switch m.Image.Dims {
	case 1:
		max[0] = i.MaxImage1D
	case 2:
		max[0], max[1] = i.MaxImage2D[0], i.MaxImage2D[1]
	case 3:
		max = i.MaxImage3D
	}
	if m.Image.Array {
		max[m.Image.Dims] = i.MaxLayers
	}
	if m.Image.Width > max[0] || m.Image.Height > max[1] || m.Image.Depth > max[2] {
		return fmt.Errorf("image of %d x %d x %d, the device allows %d x %d x %d: %w", m.Image.Width,
			m.Image.Height, m.Image.Depth, max[0], max[1], max[2], ErrLimit)
	}
	return nil
}

// CheckLocal looks at the local memory of a kernel's arguments.
func CheckLocal(k *record.Kernel, i driver.Info) error {
	var sum int64
	for _, a := range k.Args {
		sum += a.Local
	}
	if i.LocalBytes > 0 && sum > i.LocalBytes && !driver.Can(i).MoreLocal {
		return fmt.Errorf("its arguments need %d bytes of local memory, the device has %d: %w", sum, i.LocalBytes,
			ErrLimit)
	}
	return nil
}

func checkProgram(p *record.Program, i driver.Info) error {
	switch can := driver.Can(i); {
	case !can.TakesCUDA && p.OpenCL == "" && len(p.IL) == 0:
		return fmt.Errorf("it has CUDA forms only: give Sources.OpenCL: %w", driver.ErrNoSource)
	case !can.TakesCUDA && p.OpenCL == "" && i.IL == "":
		return fmt.Errorf("it has SPIR-V only, which the device does not load: give Sources.OpenCL too: %w",
			driver.ErrNoSource)
	case !can.TakesOpenCL && p.CUDA == "" && len(p.PTX) == 0:
		return fmt.Errorf("it has OpenCL forms only: give Sources.CUDA or Sources.PTX: %w", driver.ErrNoSource)
	case !can.TakesOpenCL && p.CUDA == "" && unloadable(p.PTX, i.Arch) != "":
		return fmt.Errorf("it is %s, the device is %s: give Sources.CUDA too: %w", unloadable(p.PTX, i.Arch), i.Arch,
			driver.ErrNoSource)
	case !i.FP64 && p.OpenCL != "" && needsFP64(p.OpenCL):
		return ErrFP64
	}
	return nil
}

var (
	// comments, strings and characters: none begins inside another
	silent    = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])*'`)
	macros    = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*(define|undef)(\\\r?\n|[^\n])*`)
	doubles   = regexp.MustCompile(`\bdouble(2|3|4|8|16)?\b`)
	condition = regexp.MustCompile(`^[ \t]*#[ \t]*(if|endif)`)
	guards    = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*(if|elif)[^\n]*(cl_khr_fp64|__opencl_c_fp64)`)
)

// needsFP64 reports whether OpenCL C uses double precision without asking first whether the device has it. Only the
// compiler knows whether text that depends on the preprocessor's conditions and macros counts.
func needsFP64(source string) bool {
	source = macros.ReplaceAllString(silent.ReplaceAllString(source, " "), "")
	return doubles.MatchString(unconditional(source)) && !guards.MatchString(source)
}

// unconditional returns the source without the parts between #if and #endif.
func unconditional(source string) string {
	var b strings.Builder
	depth := 0
	for line := range strings.Lines(source) {
		switch m := condition.FindStringSubmatch(line); {
		case m != nil && m[1] == "if":
			depth++
		case m != nil:
			depth = max(depth-1, 0)
		case depth == 0:
			b.WriteString(line)
		}
	}
	return b.String()
}

// CheckTotal reports whether a device can hold all of them together.
func CheckTotal(objects []*record.Object, i driver.Info) error {
	var sum int64
	for _, o := range objects {
		if o.Mem.HasContents() && o.Mem.Kind != driver.MemHost {
			sum += o.Mem.Bytes
		}
	}
	if i.GlobalBytes > 0 && sum > i.GlobalBytes {
		return fmt.Errorf("%d bytes in %d memory objects, the device has %d: %w", sum, len(objects), i.GlobalBytes,
			ErrLimit)
	}
	return nil
}

var ptxTarget = regexp.MustCompile(`(?m)^\s*\.target\s+sm_(\d+)`)

// unloadable names the architecture of a binary form of CUDA that a device of another one does not load; empty when it
// does, or when that is not known. PTX loads on its target and on later ones, a cubin within its generation.
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

// cubinArch returns the architecture in the header of an ELF file for CUDA, 0 when it is
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

// number returns the leading decimal number of a text, 0 if there is none.
func number(s string) int {
	end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(s)
	}
	n, _ := strconv.Atoi(s[:end])
	return n
}
