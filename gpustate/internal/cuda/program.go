package cuda

/*
#include <stdlib.h>
#include "table.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/internal/sigguard"
)

// program is a module and the image that it was loaded from.
type program struct {
	mod      handle
	image    []byte
	fallback string // why its binary form was not loaded
}

// FallbackReason returns the driver's message about the binary form.
func (d *device) FallbackReason(p driver.Handle) string { return p.(*program).fallback }

// Build loads the binary form, and compiles the source if there is none or
// this device or driver does not take it.
func (d *device) Build(p driver.ProgramDesc) (h driver.Handle, err error) {
	err = sigguard.Around(func() error { h, err = d.build(p); return err })
	return h, err
}

func (d *device) build(p driver.ProgramDesc) (driver.Handle, error) {
	var refused error
	var log string
	if len(p.PTX) > 0 {
		mod, jit, err := loadModule(d.ctx, p.PTX)
		if err == nil {
			return &program{mod: mod, image: p.PTX}, nil
		}
		if log, refused = jit, err; p.CUDA == "" || !anotherForm(err) {
			return nil, &driver.BuildError{Program: p.Name, Device: d.info, Options: p.Options, Log: log, Err: err}
		}
	}
	passed := ""
	if refused != nil {
		passed = driver.WithLog(refused, log)
	}
	image, words, err := d.compile(p)
	log += words
	if err == nil {
		var mod handle
		var jit string
		if mod, jit, err = loadModule(d.ctx, image); err == nil {
			return &program{mod, image, passed}, nil
		}
		log += jit
	}
	if errors.Is(err, driver.ErrNoSource) {
		return nil, err
	}
	if refused != nil {
		err = fmt.Errorf("binary: %w; source: %w", refused, err)
	}
	return nil, &driver.BuildError{Program: p.Name, Device: d.info, Options: p.Options, Log: log, Err: err}
}

// anotherForm reports whether another form of a program may load where this one did
// not: not when the device has no memory or is lost.
func anotherForm(err error) bool {
	return !errors.Is(err, driver.ErrOutOfMemory) && !errors.Is(err, driver.ErrDeviceLost)
}

func (d *device) compile(p driver.ProgramDesc) (image []byte, log string, err error) {
	if p.CUDA == "" {
		return nil, "", fmt.Errorf("program %q for CUDA: %w", p.Name, driver.ErrNoSource)
	}
	if err := nvrtc(); err != nil {
		return nil, "", fmt.Errorf("CUDA C++ needs NVRTC; without it give PTX or a cubin: %w", err)
	}
	cached := cache{}
	if cacheable(p.CUDA) && !strings.Contains(p.Options, "include") {
		cached = openCache()
	}
	var major, minor C.int
	C.hfcu_nvrtcVersion(&major, &minor)
	key := fmt.Sprintf("%d.%d\x00%s\x00%s\x00%s", major, minor, d.info.Arch, p.Options, p.CUDA)
	if image = cached.load(key); image != nil {
		return image, "", nil
	}
	name := p.Name
	name = cmp.Or(name, "program")
	opts := options(p.Options)
	image, log, err = compile(p.CUDA, name+".cu", append(opts, "--gpu-architecture="+d.info.Arch), true)
	if err != nil && strings.Contains(log, "gpu-architecture") {
		// a compiler older than the device: PTX, which the driver compiles
		image, log, err = compile(p.CUDA, name+".cu", opts, false)
	}
	if err == nil {
		cached.store(key, image)
	}
	return image, log, err
}

// Cubin compiles CUDA C++ for one architecture, such as "sm_90".
func Cubin(source, arch string) ([]byte, error) {
	if err := nvrtc(); err != nil {
		return nil, err
	}
	var image []byte
	var log string
	err := sigguard.Around(func() (err error) {
		image, log, err = compile(source, "program.cu", []string{"--gpu-architecture=" + arch}, true)
		return err
	})
	if err != nil {
		return nil, &driver.BuildError{Program: "program.cu", Log: log, Err: err}
	}
	return image, nil
}

// loadModule takes PTX, cubin or fatbin; log is the driver's compiler's.
func loadModule(ctx handle, image []byte) (mod handle, log string, err error) {
	const logBytes = 16 << 10
	buf := C.calloc(1, logBytes)
	defer C.free(buf)
	img := C.CBytes(append(image[:len(image):len(image)], 0)) // PTX is text and ends with NUL
	defer C.free(img)
	m, err := madeBy("cuModuleLoadDataEx", C.hfcu_module(ctx, img, (*C.char)(buf), logBytes))
	return handle(m), text(C.GoBytes(buf, logBytes)), err
}

// compile runs NVRTC. The binary is a cubin or PTX, as the options ask.
func compile(source, name string, options []string, cubin bool) (binary []byte, log string, err error) {
	src, n := C.CString(source), C.CString(name)
	defer C.free(unsafe.Pointer(src))
	defer C.free(unsafe.Pointer(n))
	opts := C.CBytes(append([]byte(strings.Join(options, "\x00")), 0))
	defer C.free(opts)
	m := C.hfcu_compile(src, n, C.int(len(options)), (*C.char)(opts))
	p := handle(m.v)
	defer C.hfcu_nvrtcDestroyProgram(&p)
	var size C.size_t
	get := func(call string, rc status, read func(to *C.char) status) ([]byte, error) {
		if rc == 0 && size > 0 {
			b := make([]byte, size)
			if rc = read((*C.char)(unsafe.Pointer(&b[0]))); rc == 0 {
				return b, nil
			}
		}
		return nil, &driver.CallError{Call: call, Code: int(rc), Text: "NVRTC error"}
	}
	if b, err := get("nvrtcGetProgramLog", C.hfcu_nvrtcGetProgramLogSize(p, &size),
		func(to *C.char) status { return C.hfcu_nvrtcGetProgramLog(p, to) }); err == nil {
		log = text(b)
	}
	if m.rc != 0 {
		return nil, log, &driver.CallError{Call: "nvrtcCompileProgram", Code: int(m.rc), Text: "NVRTC error"}
	}
	if cubin {
		binary, err = get("nvrtcGetCUBIN", C.hfcu_nvrtcGetCUBINSize(p, &size),
			func(to *C.char) status { return C.hfcu_nvrtcGetCUBIN(p, to) })
	} else {
		binary, err = get("nvrtcGetPTX", C.hfcu_nvrtcGetPTXSize(p, &size),
			func(to *C.char) status { return C.hfcu_nvrtcGetPTX(p, to) })
	}
	return binary, log, err
}

// options turns build options that OpenCL understands into those of NVRTC:
// "-D X" becomes "-DX", "-cl-fast-relaxed-math" its counterpart, and other
// options of OpenCL alone are left out.
func options(text string) []string {
	var list []string
	words := strings.Fields(text)
	for i := 0; i < len(words); i++ {
		switch w := words[i]; {
		case (w == "-D" || w == "-I") && i+1 < len(words):
			i++
			list = append(list, w+words[i])
		case w == "-cl-fast-relaxed-math":
			list = append(list, "--use_fast_math")
		case w == "-cl-mad-enable":
			list = append(list, "--fmad=true")
		case strings.HasPrefix(w, "-cl-"):
		default:
			list = append(list, w)
		}
	}
	return list
}

func (d *device) ReleaseProgram(p driver.Handle) error {
	return check("cuModuleUnload", C.hfcu_module_free(d.ctx, p.(*program).mod))
}

// functionParams returns the sizes of a function's parameters; ok is false on
// drivers before CUDA 12.4, which do not tell.
func functionParams(ctx, f handle) (sizes []int, ok bool) {
	for {
		m := C.hfcu_function_param(ctx, f, C.size_t(len(sizes)))
		switch m.rc {
		case 0:
			sizes = append(sizes, int(m.v))
		case invalidValue: // no more parameters
			return sizes, true
		default:
			return nil, false
		}
	}
}

// kernel is a function with the arguments that the next launch passes.
type kernel struct {
	name   string
	f      handle
	sizes  []int // of the function's parameters in bytes, when known
	known  bool
	args   []driver.Arg
	stale  bool // params do not show args
	params []byte
	offs   []uint32
	lens   []int // bytes given for each parameter
	shared int
	limit  int // dynamic shared memory that the function may use
}

func (d *device) CreateKernel(p driver.Handle, name string) (driver.Handle, error) {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	made, err := madeBy("cuModuleGetFunction", C.hfcu_function(d.ctx, p.(*program).mod, n))
	if err != nil {
		return nil, err
	}
	f := handle(made)
	const anyDevice = 48 << 10 // shared memory that needs no permission
	k := &kernel{name: name, f: f, stale: true, limit: anyDevice}
	if k.sizes, k.known = functionParams(d.ctx, f); !k.known {
		k.sizes, k.known = look(p.(*program).image).params[name]
	}
	return k, nil
}

func (d *device) ReleaseKernel(driver.Handle) error { return nil }

// Args counts the parameters, if the driver reports them: local sizes and
// samplers are arguments but not parameters.
func (d *device) Args(h driver.Handle) (int, bool) { return len(h.(*kernel).sizes), false }

func (d *device) SetArg(h driver.Handle, i int, a driver.Arg) error {
	k := h.(*kernel)
	for i >= len(k.args) {
		k.args = append(k.args, driver.Arg{})
	}
	a.Value = append(k.args[i].Value[:0], a.Value...)
	k.args[i], k.stale = a, true
	return nil
}

// gather lays the arguments out as the function's parameters.
func (d *device) gather(k *kernel) error {
	k.params, k.offs, k.lens, k.shared = k.params[:0], k.offs[:0], k.lens[:0], 0
	for i, a := range k.args {
		switch a.Kind {
		case driver.ArgNone:
			return fmt.Errorf("argument %d: %w", i, driver.ErrArgNotSet)
		case driver.ArgLocal:
			k.shared += (a.Local + 15) &^ 15
		case driver.ArgValue:
			k.add(a.Value)
		case driver.ArgMem:
			p, err := d.address(k, i, a.Handle.(*mem))
			if err != nil {
				return err
			}
			var b [8]byte
			for n := range b {
				b[n] = byte(p >> (8 * n))
			}
			k.add(b[:])
		case driver.ArgNull:
			k.add(make([]byte, 8))
		}
	}
	if err := k.fits(); err != nil {
		return err
	}
	if k.shared > k.limit {
		err := check("cuFuncSetAttribute", C.hfcu_function_shared(d.ctx, k.f, C.int(k.shared)))
		if err != nil {
			return err
		}
		k.limit = k.shared
	}
	k.stale = false
	return nil
}

func (k *kernel) add(b []byte) {
	for len(k.params)%16 != 0 {
		k.params = append(k.params, 0)
	}
	k.offs, k.lens = append(k.offs, uint32(len(k.params))), append(k.lens, len(b))
	k.params = append(k.params, b...)
}

// fits compares the arguments with the function's parameters, if the driver or
// the module's image has them. A value that is too short would be read beyond
// its end, one that is too long is of another type.
func (k *kernel) fits() error {
	if !k.known {
		return nil
	}
	if len(k.offs) < len(k.sizes) {
		return fmt.Errorf("got %d of %d parameters: %w", len(k.offs), len(k.sizes), driver.ErrArgNotSet)
	}
	if len(k.offs) > len(k.sizes) {
		return &driver.CallError{Call: "cuLaunchKernel", Code: invalidValue,
			Text: fmt.Sprintf("got %d parameters, the kernel has %d", len(k.offs), len(k.sizes))}
	}
	for i, n := range k.lens {
		if n != k.sizes[i] {
			return &driver.CallError{Call: "cuLaunchKernel", Code: invalidValue,
				Text: fmt.Sprintf("parameter %d of kernel %q has %d bytes, got %d", i, k.name, k.sizes[i], n)}
		}
	}
	return nil
}

// address returns the value of a memory object among the parameters.
func (d *device) address(k *kernel, i int, m *mem) (address, error) {
	if m.kind != driver.MemImage {
		return m.p, nil
	}
	if m.access != driver.ReadOnly {
		return m.surface, nil
	}
	s := driver.SamplerDesc{Addressing: 0x1131, Filter: 0x1140} // edge, nearest
	for _, a := range k.args[i+1:] {
		if a.Kind == driver.ArgSampler {
			s = a.Handle.(driver.SamplerDesc)
			break
		}
	}
	return d.texture(m, s)
}

func (d *device) Launch(q, h driver.Handle, g driver.Grid, wait []driver.Event) (driver.Event, error) {
	k := h.(*kernel)
	if g.Offset != [3]int{} {
		return 0, fmt.Errorf("CUDA has no offset of the index space, got %v: %w", g.Offset, driver.ErrUnsupported)
	}
	if k.stale {
		if err := d.gather(k); err != nil {
			return 0, err
		}
	}
	if g.Local[0] == 0 {
		g.Local = choose(g.Global)
	}
	if s := q.(*stream); s.lazy && len(wait) == 0 {
		rc := C.hfcu_launch_now(d.ctx, s.s, k.f, blocks(k, &g), C.unsigned(len(k.offs)), bytesOf(k.params), offsets(k))
		if rc != 0 {
			return 0, check("cuLaunchKernel", rc)
		}
		return 0, nil // without a command: programs launch often
	}
	return d.launchEvent(q, k, &g, wait)
}

// launchEvent launches a kernel that waits for events, or has one.
func (d *device) launchEvent(q driver.Handle, k *kernel, g *driver.Grid, wait []driver.Event) (driver.Event, error) {
	return d.issue(q, false, wait, "cuLaunchKernel", func(c C.hfcu_cmd) status {
		return C.hfcu_launch(c, k.f, blocks(k, g), C.unsigned(len(k.offs)), bytesOf(k.params), offsets(k))
	})
}

// blocks gives C the index space of a kernel.
func blocks(k *kernel, g *driver.Grid) C.hfcu_grid {
	c := C.hfcu_grid{shared: C.unsigned(k.shared)}
	for i := range 3 {
		c.g[i], c.b[i] = C.unsigned(g.Global[i]/g.Local[i]), C.unsigned(g.Local[i])
	}
	return c
}

// offsets says where in its memory a kernel's parameters begin.
func offsets(k *kernel) *C.uint32_t { return (*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(k.offs))) }

// choose picks a block that divides the index space, as OpenCL does when no
// work-group is given: as many threads along the first extent as fit.
func choose(global [3]int) [3]int {
	const threads = 256
	for n := threads; n > 1; n-- {
		if global[0]%n == 0 {
			return [3]int{n, 1, 1}
		}
	}
	return [3]int{1, 1, 1}
}

// WorkGroup returns the largest block of the function, and a warp.
func (d *device) WorkGroup(h driver.Handle) (size, multiple int, err error) {
	const maxThreads = 0 // CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
	var n C.int
	err = check("cuFuncGetAttribute", C.hfcu_cuFuncGetAttribute(&n, maxThreads, h.(*kernel).f))
	return int(n), 32, err
}
