package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// inside has the facts from the image of a module: the driver lists neither a module's variables nor, before CUDA 12.4,
// the parameters of its kernels.
type inside struct {
	variables []string         // that kernels can write, by the driver's name for them
	params    map[string][]int // bytes of each kernel's parameters
	heap      bool             // kernels allocate memory on the device
	sealed    bool             // the image is of a form that cannot be looked into
}

// look reads an image: PTX or a cubin.
func look(image []byte) inside {
	in := inside{params: map[string][]int{}}
	switch {
	case bytes.HasPrefix(image, []byte("\x7fELF")):
		in.cubin(image)
	case len(image) >= 4 && binary.LittleEndian.Uint32(image) == fatMagic:
		in.sealed = true
	case bytes.Contains(image, []byte(".version")):
		in.ptx(string(image))
	default:
		in.sealed = true
	}
	slices.Sort(in.variables)
	in.variables = slices.Compact(in.variables)
	return in
}

// fatMagic begins a fatbin, which holds several images, usually compressed, of which the driver takes one.
const fatMagic = 0xBA55ED50

// added are the names that compilers give constants of their own, such as the texts of printf.
var added = regexp.MustCompile(`^(\$str\d*|__unnamed_\d+)$`)

// ours reports whether a variable is one of the program.
func ours(name string) bool { return name != "" && !added.MatchString(name) }

// Globals lists the module's variables that kernels can write: __device__ and
// __managed__. Kernels cannot write a __constant__ one, and the program only by Global.
func (d *device) Globals(h driver.Handle) ([]driver.Global, error) {
	p := h.(*program)
	in := look(p.image)
	switch {
	case in.sealed:
		return nil, fmt.Errorf("the __device__ variables in its binary cannot be found: give PTX or a "+
			"cubin: %w", driver.ErrHidden)
	case in.heap:
		return nil, fmt.Errorf("its kernels allocate device memory with malloc or new: %w", driver.ErrHidden)
	}
	var list []driver.Global
	for _, name := range in.variables {
		_, bytes, err := moduleGlobal(d.ctx, p.mod, name)
		if err != nil {
			return nil, fmt.Errorf("variable %q cannot be reached (%v): %w", name, err, driver.ErrHidden)
		}
		if bytes > 0 {
			list = append(list, driver.Global{Name: name, Bytes: bytes})
		}
	}
	return list, nil
}

// Global finds a variable, a __constant__ one too.
func (d *device) Global(h driver.Handle, name string) (driver.Global, bool) {
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		return driver.Global{}, false
	}
	_, bytes, err := moduleGlobal(d.ctx, h.(*program).mod, name)
	return driver.Global{Name: name, Bytes: bytes}, err == nil && bytes > 0
}

// createGlobal finds a variable of a module.
func (d *device) createGlobal(o *mem, m driver.MemDesc) error {
	p, bytes, err := moduleGlobal(d.ctx, m.Parent.(*program).mod, m.Name)
	if err == nil && bytes != m.Bytes {
		err = &driver.CallError{Call: "cuModuleGetGlobal", Code: invalidValue,
			Text: fmt.Sprintf("variable %q has %d bytes, want %d", m.Name, bytes, m.Bytes)}
	}
	o.p = p
	return err
}
