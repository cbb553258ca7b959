package cuda

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "table.h"
*/
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// handle is a context, module, function, stream, event or array.
type handle = C.hnd

// address is a device address, texture object or surface object.
type address = C.dptr

func openCUDA(file string) error {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	return message(C.hfcu_cu_open(name))
}

func openNVRTC(file string) error {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	return message(C.hfcu_rtc_open(name))
}

func message(s *C.char) error {
	if s == nil {
		return nil
	}
	return errors.New(C.GoString(s))
}

func errorName(rc int32) string {
	var s *C.char
	if C.hfcu_cuGetErrorName(C.int(rc), &s) != 0 || s == nil {
		return "unknown CUDA error"
	}
	return C.GoString(s)
}

func start() error { return check("cuInit", int32(C.hfcu_cuInit(0))) }

func driverVersion() int {
	var v C.int
	C.hfcu_cuDriverGetVersion(&v)
	return int(v)
}

func deviceCount() (int, error) {
	var n C.int
	err := check("cuDeviceGetCount", int32(C.hfcu_cuDeviceGetCount(&n)))
	return int(n), err
}

func deviceAt(i int) (int, error) {
	var d C.int
	err := check("cuDeviceGet", int32(C.hfcu_cuDeviceGet(&d, C.int(i))))
	return int(d), err
}

func deviceName(dev int) string {
	b := make([]byte, 256)
	C.hfcu_cuDeviceGetName((*C.char)(unsafe.Pointer(&b[0])), C.int(len(b)), C.int(dev))
	return text(b)
}

func devicePCI(dev int) string {
	b := make([]byte, 64)
	C.hfcu_cuDeviceGetPCIBusId((*C.char)(unsafe.Pointer(&b[0])), C.int(len(b)), C.int(dev))
	return strings.ToLower(text(b))
}

// text is what stands before the first NUL.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

// deviceUUID is the identity of the card, or of the part of it that is ours.
func deviceUUID(dev int) []byte {
	u := make([]byte, 16)
	p := (*C.uchar)(unsafe.Pointer(&u[0]))
	if C.hfcu_cuDeviceGetUuid_v2(p, C.int(dev)) != 0 && C.hfcu_cuDeviceGetUuid(p, C.int(dev)) != 0 {
		return nil
	}
	return u
}

func totalBytes(dev int) int64 {
	var n C.size_t
	C.hfcu_cuDeviceTotalMem_v2(&n, C.int(dev))
	return int64(n)
}

// attribute is a device property, 0 where the driver does not know it.
func attribute(dev, what int) int {
	var v C.int
	if C.hfcu_cuDeviceGetAttribute(&v, C.int(what), C.int(dev)) != 0 {
		return 0
	}
	return int(v)
}

func retainContext(dev int) (handle, error) {
	var ctx handle
	err := check("cuDevicePrimaryCtxRetain", int32(C.hfcu_cuDevicePrimaryCtxRetain(&ctx, C.int(dev))))
	return ctx, err
}

func releaseContext(dev int) error {
	return check("cuDevicePrimaryCtxRelease", int32(C.hfcu_cuDevicePrimaryCtxRelease_v2(C.int(dev))))
}

// madeBy splits the result of a call that makes something.
func madeBy(call string, m C.made) (uint64, error) {
	if m.rc != 0 {
		return 0, check(call, int32(m.rc))
	}
	return uint64(m.v), nil
}

func freeBytes(ctx handle) (int64, error) {
	n, err := madeBy("cuMemGetInfo", C.hfcu_free_bytes(ctx))
	return int64(n), err
}

func makeCurrent(ctx handle) error { return check("cuCtxSetCurrent", int32(C.hfcu_current(ctx))) }

// currentContext is that of the calling thread, 0 for none.
func currentContext() (handle, error) {
	ctx, err := madeBy("cuCtxGetCurrent", C.hfcu_context_now())
	return handle(ctx), err
}

// contextDevice is the device of a context.
func contextDevice(ctx handle) (int, error) {
	dev, err := madeBy("cuCtxGetDevice", C.hfcu_context_device(ctx))
	return int(dev), err
}

// streamInfo is the context and the priority of a stream; ctx is that of the device.
func streamInfo(ctx, s handle) (of handle, priority int, err error) {
	var p C.int
	c, err := madeBy("cuStreamGetCtx", C.hfcu_stream_context(ctx, s, &p))
	return handle(c), int(p), err
}

func settle(ctx handle) error { return check("cuCtxSynchronize", int32(C.hfcu_settle(ctx))) }

// rangeOf is how many bytes of an allocation are left from p on, and the device that holds it.
func rangeOf(ctx handle, p address) (left int64, device int, err error) {
	dev := C.int(-1)
	n, err := madeBy("cuMemGetAddressRange", C.hfcu_range(ctx, p, &dev))
	return int64(n), int(dev), err
}

func alloc(ctx handle, n int64) (address, error) {
	p, err := madeBy("cuMemAlloc", C.hfcu_alloc(ctx, C.size_t(n)))
	return address(p), err
}

func allocManaged(ctx handle, n int64) (address, error) {
	p, err := madeBy("cuMemAllocManaged", C.hfcu_alloc_managed(ctx, C.size_t(n)))
	return address(p), err
}

func free(ctx handle, p address) error { return check("cuMemFree", int32(C.hfcu_free(ctx, p))) }

func allocHost(ctx handle, n int) (handle, error) {
	p, err := madeBy("cuMemHostAlloc", C.hfcu_host_alloc(ctx, C.size_t(n)))
	return handle(p), err
}

func freeHost(ctx, p handle) error { return check("cuMemFreeHost", int32(C.hfcu_host_free(ctx, p))) }

// registerHost pins memory and gives its device address.
func registerHost(ctx, p handle, n int) (address, error) {
	d, err := madeBy("cuMemHostRegister", C.hfcu_host_register(ctx, p, C.size_t(n)))
	return address(d), err
}

// hostAddress is the device address of memory that is pinned already.
func hostAddress(ctx, p handle) (address, error) {
	d, err := madeBy("cuMemHostGetDevicePointer", C.hfcu_host_address(ctx, p))
	return address(d), err
}

func unregisterHost(ctx, p handle) error {
	return check("cuMemHostUnregister", int32(C.hfcu_host_unregister(ctx, p)))
}

func createArray(ctx handle, i driver.ImageDesc, format, channels int) (handle, error) {
	a, err := madeBy("cuArray3DCreate", C.hfcu_array(ctx, C.hfcu_image_desc{dims: C.int(i.Dims), array: cbool(i.Array),
		w: C.size_t(i.Width), h: C.size_t(i.Height), d: C.size_t(i.Depth),
		format: C.int(format), channels: C.int(channels)}))
	return handle(a), err
}

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func freeArray(ctx, a handle) error { return check("cuArrayDestroy", int32(C.hfcu_array_free(ctx, a))) }

func createSurface(ctx, array handle) (address, error) {
	o, err := madeBy("cuSurfObjectCreate", C.hfcu_surface(ctx, array))
	return address(o), err
}

func freeSurface(ctx handle, o address) error {
	return check("cuSurfObjectDestroy", int32(C.hfcu_surface_free(ctx, o)))
}

func createTexture(ctx, array handle, mode, filter int, flags uint32) (address, error) {
	o, err := madeBy("cuTexObjectCreate",
		C.hfcu_texture(ctx, array, C.int(mode), C.int(filter), C.unsigned(flags)))
	return address(o), err
}

func freeTexture(ctx handle, o address) error {
	return check("cuTexObjectDestroy", int32(C.hfcu_texture_free(ctx, o)))
}

func createStream(ctx handle, priority int) (handle, error) {
	s, err := madeBy("cuStreamCreateWithPriority", C.hfcu_stream(ctx, C.int(priority)))
	return handle(s), err
}

func freeStream(ctx, s handle) error {
	return check("cuStreamDestroy", int32(C.hfcu_stream_free(ctx, s)))
}

func syncStream(ctx, s handle) error {
	return check("cuStreamSynchronize", int32(C.hfcu_stream_sync(ctx, s)))
}

func createEvent(ctx handle, timing bool) (handle, error) {
	flags := C.unsigned(2) // DISABLE_TIMING
	if timing {
		flags = 0
	}
	e, err := madeBy("cuEventCreate", C.hfcu_event(ctx, flags))
	return handle(e), err
}

func freeEvent(ctx, e handle) error { return check("cuEventDestroy", int32(C.hfcu_event_free(ctx, e))) }

func recordEvent(ctx, e, s handle) error {
	return check("cuEventRecord", int32(C.hfcu_event_record(ctx, e, s)))
}

func syncEvent(ctx, e handle) error {
	return check("cuEventSynchronize", int32(C.hfcu_event_sync(ctx, e)))
}

func queryEvent(ctx, e handle) (bool, error) {
	rc := int32(C.hfcu_event_query(ctx, e))
	if rc == notReady {
		return false, nil
	}
	return true, check("cuEventQuery", rc)
}

func elapsed(ctx, a, b handle) (nanoseconds int64, err error) {
	n, err := madeBy("cuEventElapsedTime", C.hfcu_event_elapsed(ctx, a, b))
	return int64(n), err
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

func freeModule(ctx, m handle) error {
	return check("cuModuleUnload", int32(C.hfcu_module_free(ctx, m)))
}

func function(ctx, mod handle, name string) (handle, error) {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	f, err := madeBy("cuModuleGetFunction", C.hfcu_function(ctx, mod, n))
	return handle(f), err
}

// functionParams are the sizes of a function's parameters; ok is false on
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

// moduleGlobal is where a variable of a module lies.
func moduleGlobal(ctx, mod handle, name string) (p address, bytes int64, err error) {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	var size C.size_t
	v, err := madeBy("cuModuleGetGlobal", C.hfcu_module_global(ctx, mod, n, &size))
	return address(v), int64(size), err
}

func setShared(ctx, f handle, n int) error {
	return check("cuFuncSetAttribute", int32(C.hfcu_function_shared(ctx, f, C.int(n))))
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

func (c *command) launch(k *kernel, g *driver.Grid) error {
	return c.run("cuLaunchKernel", func(cmd C.hfcu_cmd) C.int32_t {
		return C.hfcu_launch(cmd, k.f, blocks(k, g), C.unsigned(len(k.offs)), bytesOf(k.params), offsets(k))
	})
}

// launchNow launches on a stream without an event or a wait. Programs launch often: it makes no command and
// allocates nothing.
func (d *device) launchNow(stream handle, k *kernel, g *driver.Grid) error {
	rc := C.hfcu_launch_now(d.ctx, stream, k.f, blocks(k, g), C.unsigned(len(k.offs)), bytesOf(k.params), offsets(k))
	if rc != 0 {
		return check("cuLaunchKernel", int32(rc))
	}
	return nil
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
	if C.hfcu_nvrtcGetProgramLogSize(p, &size) == 0 && size > 1 {
		b := make([]byte, size)
		C.hfcu_nvrtcGetProgramLog(p, (*C.char)(unsafe.Pointer(&b[0])))
		log = text(b)
	}
	if m.rc != 0 {
		return nil, log, &driver.CallError{Call: "nvrtcCompileProgram", Code: int(m.rc), Text: "NVRTC error"}
	}
	var rc C.int32_t
	if cubin {
		rc = C.hfcu_nvrtcGetCUBINSize(p, &size)
	} else {
		rc = C.hfcu_nvrtcGetPTXSize(p, &size)
	}
	if rc != 0 || size == 0 {
		return nil, log, &driver.CallError{Call: "nvrtcGetCUBINSize", Code: int(rc), Text: "no code"}
	}
	binary = make([]byte, size)
	if cubin {
		rc = C.hfcu_nvrtcGetCUBIN(p, (*C.char)(unsafe.Pointer(&binary[0])))
	} else {
		rc = C.hfcu_nvrtcGetPTX(p, (*C.char)(unsafe.Pointer(&binary[0])))
	}
	if rc != 0 {
		return nil, log, &driver.CallError{Call: "nvrtcGetCUBIN", Code: int(rc), Text: "NVRTC error"}
	}
	return binary, log, nil
}

// nvrtcVersion is the version of the run-time compiler.
func nvrtcVersion() string {
	var major, minor C.int
	C.hfcu_nvrtcVersion(&major, &minor)
	return fmt.Sprintf("%d.%d", major, minor)
}

// memory makes C memory visible as bytes.
func memory(p handle, n int64) []byte {
	addr := uintptr(p)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}

// place is the address of memory that is not Go's.
func place(b []byte) handle { return handle(uintptr(unsafe.Pointer(&b[0]))) }

func checkpointLock(pid int) int32 { return int32(C.hfcu_cuCheckpointProcessLock(C.int(pid), nil)) }
func checkpointTake(pid int) int32 {
	return int32(C.hfcu_cuCheckpointProcessCheckpoint(C.int(pid), nil))
}
func checkpointRestore(pid int) int32 {
	return int32(C.hfcu_cuCheckpointProcessRestore(C.int(pid), nil))
}
func checkpointUnlock(pid int) int32 {
	return int32(C.hfcu_cuCheckpointProcessUnlock(C.int(pid), nil))
}

func functionAttribute(f handle, what int) (int, error) {
	var v C.int
	err := check("cuFuncGetAttribute", int32(C.hfcu_cuFuncGetAttribute(&v, C.int(what), f)))
	return int(v), err
}
