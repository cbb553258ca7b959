// Prototypes of the CUDA driver API and NVRTC calls that this package uses,
// written from NVIDIA's documentation of the driver API. Symbols carry the
// version suffixes that libcuda exports. Handles are uintptr_t, so that none is
// taken for a Go pointer.
#ifndef HOLDFAST_CUDA_TABLE_H
#define HOLDFAST_CUDA_TABLE_H

#include <stddef.h>
#include <stdint.h>

typedef uintptr_t hnd;  // context, module, function, stream, event, array
typedef uint64_t  dptr; // device address, texture object, surface object

// result of a call that makes something
typedef struct {
	uint64_t v;
	int32_t  rc;
} made;

#define HF_MISSING (-1) // the library lacks the call

// every call returns a CUresult
#define CU_CALLS(X)                                                            \
	X(cuInit, (unsigned flags), (flags))                                       \
	X(cuDriverGetVersion, (int *v), (v))                                       \
	X(cuGetErrorName, (int rc, const char **s), (rc, s))                       \
	X(cuDeviceGetCount, (int *n), (n))                                         \
	X(cuDeviceGet, (int *dev, int i), (dev, i))                                \
	X(cuDeviceGetName, (char *s, int n, int dev), (s, n, dev))                 \
	X(cuDeviceTotalMem_v2, (size_t *n, int dev), (n, dev))                     \
	X(cuDeviceGetAttribute, (int *v, int what, int dev), (v, what, dev))       \
	X(cuDeviceGetUuid_v2, (unsigned char *u, int dev), (u, dev))               \
	X(cuDeviceGetUuid, (unsigned char *u, int dev), (u, dev))                  \
	X(cuDeviceGetPCIBusId, (char *s, int n, int dev), (s, n, dev))             \
	X(cuDevicePrimaryCtxRetain, (hnd *ctx, int dev), (ctx, dev))               \
	X(cuDevicePrimaryCtxRelease_v2, (int dev), (dev))                          \
	X(cuCtxSetCurrent, (hnd ctx), (ctx))                                       \
	X(cuCtxGetCurrent, (hnd *ctx), (ctx))                                      \
	X(cuCtxGetDevice, (int *dev), (dev))                                       \
	X(cuCtxSynchronize, (void), ())                                            \
	X(cuCtxEnablePeerAccess, (hnd peer, unsigned flags), (peer, flags))        \
	X(cuMemGetAddressRange_v2, (dptr *base, size_t *n, dptr p), (base, n, p))  \
	X(cuPointerGetAttribute, (void *v, int what, dptr p), (v, what, p))        \
	X(cuCtxGetStreamPriorityRange, (int *least, int *greatest), (least, greatest)) \
	X(cuMemGetInfo_v2, (size_t *left, size_t *total), (left, total))           \
	X(cuMemAlloc_v2, (dptr *p, size_t n), (p, n))                              \
	X(cuMemFree_v2, (dptr p), (p))                                             \
	X(cuMemAllocManaged, (dptr *p, size_t n, unsigned flags), (p, n, flags))   \
	X(cuMemHostAlloc, (void **p, size_t n, unsigned flags), (p, n, flags))     \
	X(cuMemFreeHost, (void *p), (p))                                           \
	X(cuMemHostRegister_v2, (void *p, size_t n, unsigned flags), (p, n, flags)) \
	X(cuMemHostUnregister, (void *p), (p))                                     \
	X(cuMemHostGetDevicePointer_v2, (dptr *d, void *p, unsigned flags), (d, p, flags)) \
	X(cuMemcpyHtoDAsync_v2, (dptr d, const void *p, size_t n, hnd s), (d, p, n, s)) \
	X(cuMemcpyDtoHAsync_v2, (void *p, dptr d, size_t n, hnd s), (p, d, n, s))  \
	X(cuMemcpyDtoDAsync_v2, (dptr d, dptr f, size_t n, hnd s), (d, f, n, s))   \
	X(cuMemcpyPeerAsync, (dptr d, hnd dc, dptr f, hnd fc, size_t n, hnd s),    \
	  (d, dc, f, fc, n, s))                                                    \
	X(cuMemcpy3DAsync_v2, (const void *copy, hnd s), (copy, s))                \
	X(cuMemsetD8Async, (dptr d, unsigned char v, size_t n, hnd s), (d, v, n, s)) \
	X(cuMemsetD16Async, (dptr d, unsigned short v, size_t n, hnd s), (d, v, n, s)) \
	X(cuMemsetD32Async, (dptr d, unsigned v, size_t n, hnd s), (d, v, n, s))   \
	X(cuMemsetD2D32Async,                                                      \
	  (dptr d, size_t pitch, unsigned v, size_t width, size_t height, hnd s),  \
	  (d, pitch, v, width, height, s))                                         \
	X(cuArray3DCreate_v2, (hnd *a, const void *desc), (a, desc))               \
	X(cuArrayDestroy, (hnd a), (a))                                            \
	X(cuSurfObjectCreate, (dptr *o, const void *res), (o, res))                \
	X(cuSurfObjectDestroy, (dptr o), (o))                                      \
	X(cuTexObjectCreate, (dptr *o, const void *res, const void *tex, const void *view), \
	  (o, res, tex, view))                                                     \
	X(cuTexObjectDestroy, (dptr o), (o))                                       \
	X(cuStreamCreateWithPriority, (hnd *s, unsigned flags, int prio), (s, flags, prio)) \
	X(cuStreamGetCtx, (hnd s, hnd *ctx), (s, ctx))                             \
	X(cuStreamGetPriority, (hnd s, int *prio), (s, prio))                      \
	X(cuStreamDestroy_v2, (hnd s), (s))                                        \
	X(cuStreamSynchronize, (hnd s), (s))                                       \
	X(cuStreamWaitEvent, (hnd s, hnd e, unsigned flags), (s, e, flags))        \
	X(cuEventCreate, (hnd *e, unsigned flags), (e, flags))                     \
	X(cuEventDestroy_v2, (hnd e), (e))                                         \
	X(cuEventRecord, (hnd e, hnd s), (e, s))                                   \
	X(cuEventSynchronize, (hnd e), (e))                                        \
	X(cuEventQuery, (hnd e), (e))                                              \
	X(cuEventElapsedTime, (float *ms, hnd a, hnd b), (ms, a, b))               \
	X(cuModuleLoadDataEx,                                                      \
	  (hnd *m, const void *image, unsigned n, int *opts, void **vals),         \
	  (m, image, n, opts, vals))                                               \
	X(cuModuleUnload, (hnd m), (m))                                            \
	X(cuModuleGetFunction, (hnd *f, hnd m, const char *name), (f, m, name))    \
	X(cuModuleGetGlobal_v2, (dptr *p, size_t *n, hnd m, const char *name), (p, n, m, name)) \
	X(cuFuncGetParamInfo, (hnd f, size_t i, size_t *off, size_t *n), (f, i, off, n)) \
	X(cuFuncGetAttribute, (int *v, int what, hnd f), (v, what, f))             \
	X(cuFuncSetAttribute, (hnd f, int what, int v), (f, what, v))              \
	X(cuLaunchKernel,                                                          \
	  (hnd f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
	   unsigned bz, unsigned shared, hnd s, void **params, void **extra),      \
	  (f, gx, gy, gz, bx, by, bz, shared, s, params, extra))

// every call returns an nvrtcResult
#define RTC_CALLS(X)                                                           \
	X(nvrtcVersion, (int *major, int *minor), (major, minor))                  \
	X(nvrtcCreateProgram,                                                      \
	  (hnd *p, const char *src, const char *name, int n, const char *const *h, \
	   const char *const *inc),                                                \
	  (p, src, name, n, h, inc))                                               \
	X(nvrtcDestroyProgram, (hnd *p), (p))                                      \
	X(nvrtcCompileProgram, (hnd p, int n, const char *const *opts), (p, n, opts)) \
	X(nvrtcGetPTXSize, (hnd p, size_t *n), (p, n))                             \
	X(nvrtcGetPTX, (hnd p, char *b), (p, b))                                   \
	X(nvrtcGetCUBINSize, (hnd p, size_t *n), (p, n))                           \
	X(nvrtcGetCUBIN, (hnd p, char *b), (p, b))                                 \
	X(nvrtcGetProgramLogSize, (hnd p, size_t *n), (p, n))                      \
	X(nvrtcGetProgramLog, (hnd p, char *b), (p, b))

typedef struct {
#define X(name, params, args) int32_t(*name) params;
	CU_CALLS(X)
#undef X
} hfcu_cu_table;

typedef struct {
#define X(name, params, args) int32_t(*name) params;
	RTC_CALLS(X)
#undef X
} hfcu_rtc_table;

extern hfcu_cu_table  hfcu_cu;
extern hfcu_rtc_table hfcu_rtc;

// The open functions fill the tables. NULL is success, otherwise the loader's
// message.
const char *hfcu_cu_open(const char *file);
const char *hfcu_rtc_open(const char *file);

#define X(name, params, args)                                                  \
	static inline int32_t hfcu_##name params                                     \
	{                                                                          \
		return hfcu_cu.name ? hfcu_cu.name args : HF_MISSING;                      \
	}
CU_CALLS(X)
#undef X

#define X(name, params, args)                                                  \
	static inline int32_t hfcu_##name params                                     \
	{                                                                          \
		return hfcu_rtc.name ? hfcu_rtc.name args : HF_MISSING;                    \
	}
RTC_CALLS(X)
#undef X

// The calls below make ctx current first.

made hfcu_free_bytes(hnd ctx);
int32_t hfcu_current(hnd ctx);
int32_t hfcu_synchronize(hnd ctx);

// hfcu_context_now gives the context of the thread, hfcu_context_device the device of one, and leave
// the thread's as it is. hfcu_stream_context gives that of a stream.
made hfcu_context_now(void);
made hfcu_context_device(hnd ctx);
made hfcu_stream_context(hnd ctx, hnd s, int *priority);

// hfcu_range gives in v how many bytes of an allocation are left from p on; device is that which
// holds it.
made hfcu_range(hnd ctx, dptr p, int *device);
made hfcu_alloc(hnd ctx, size_t n);
made hfcu_alloc_managed(hnd ctx, size_t n);
int32_t hfcu_free(hnd ctx, dptr p);
made hfcu_host_alloc(hnd ctx, size_t n);
int32_t hfcu_host_free(hnd ctx, hnd p);
made hfcu_host_register(hnd ctx, hnd p, size_t n);
made hfcu_host_address(hnd ctx, hnd p);
int32_t hfcu_host_unregister(hnd ctx, hnd p);

typedef struct {
	int dims, array; // of an array, h (of 1D) or d (of 2D) is the number of images
	size_t w, h, d;
	int format, channels;
} hfcu_image_desc;

made hfcu_array(hnd ctx, hfcu_image_desc i);
int32_t hfcu_array_free(hnd ctx, hnd a);
made hfcu_surface(hnd ctx, hnd array);
made hfcu_texture(hnd ctx, hnd array, int address, int filter, unsigned flags);
int32_t hfcu_surface_free(hnd ctx, dptr o);
int32_t hfcu_texture_free(hnd ctx, dptr o);

made hfcu_stream(hnd ctx, int priority);
int32_t hfcu_stream_free(hnd ctx, hnd s);
int32_t hfcu_stream_sync(hnd ctx, hnd s);

made hfcu_event(hnd ctx, unsigned flags);
int32_t hfcu_event_free(hnd ctx, hnd e);
int32_t hfcu_event_record(hnd ctx, hnd e, hnd s);
int32_t hfcu_event_sync(hnd ctx, hnd e);
int32_t hfcu_event_query(hnd ctx, hnd e);
made hfcu_event_elapsed(hnd ctx, hnd a, hnd b); // v in nanoseconds

// The commands wait for n events, do their work and record ev behind it when it
// is not 0; with block they return when the work is done.
typedef struct {
	hnd        ctx, stream, ev;
	int        block;
	unsigned   n;
	const hnd *wait;
} hfcu_cmd;

int32_t hfcu_read(hfcu_cmd c, uint8_t *p, dptr d, size_t n);
int32_t hfcu_write(hfcu_cmd c, dptr d, const uint8_t *p, size_t n);
int32_t hfcu_copy(hfcu_cmd c, dptr d, dptr from, size_t n);
int32_t hfcu_copy_peer(hfcu_cmd c, dptr d, dptr from, hnd fromctx, size_t n);
int32_t hfcu_marker(hfcu_cmd c);

// hfcu_fill writes a pattern of size bytes, a power of two up to 128, over n bytes, a
// multiple of them.
int32_t hfcu_fill(hfcu_cmd c, dptr d, size_t n, const uint8_t *pattern, size_t size);

// a box in linear memory: bytes between rows, rows between slices; its size
typedef struct {
	size_t topitch, toheight, frompitch, fromheight;
	size_t w, h, d; // w in bytes
} hfcu_rect;
int32_t hfcu_read_rect(hfcu_cmd c, uint8_t *p, dptr d, hfcu_rect r);
int32_t hfcu_write_rect(hfcu_cmd c, dptr d, const uint8_t *p, hfcu_rect r);
int32_t hfcu_copy_rect(hfcu_cmd c, dptr d, dptr from, hfcu_rect r);

// one side of an image copy: host memory, device memory or an array
typedef struct {
	size_t x, y, z; // in the array; x in bytes
	size_t w, h, d; // extent; w in bytes
} hfcu_box;
int32_t hfcu_image_read(hfcu_cmd c, uint8_t *p, hnd array, hfcu_box b);
int32_t hfcu_image_write(hfcu_cmd c, hnd array, const uint8_t *p, hfcu_box b);
int32_t hfcu_image_to_buffer(hfcu_cmd c, dptr d, hnd array, hfcu_box b);
int32_t hfcu_buffer_to_image(hfcu_cmd c, hnd array, dptr d, hfcu_box b);
// from has the extent; to is where it goes
int32_t hfcu_copy_image(hfcu_cmd c, hnd dst, hfcu_box to, hnd src, hfcu_box from);

made hfcu_module(hnd ctx, const void *image, char *log, unsigned logbytes);
int32_t hfcu_module_free(hnd ctx, hnd m);
made hfcu_function(hnd ctx, hnd m, const char *name);
made hfcu_module_global(hnd ctx, hnd m, const char *name, size_t *bytes);
made hfcu_function_param(hnd ctx, hnd f, size_t i); // v in bytes
int32_t hfcu_function_shared(hnd ctx, hnd f, int bytes);

typedef struct {
	unsigned g[3], b[3], shared;
} hfcu_grid;

// hfcu_launch passes params[i] = buf + off[i].
int32_t hfcu_launch(hfcu_cmd c, hnd f, hfcu_grid g, unsigned n, uint8_t *buf, const uint32_t *off);

// hfcu_launch_now is hfcu_launch without anything to wait for and without an event.
int32_t hfcu_launch_now(hnd ctx, hnd stream, hnd f, hfcu_grid g, unsigned n, uint8_t *buf, const uint32_t *off);

// hfcu_compile compiles and leaves the program for hfcu_rtc_*.
made hfcu_compile(const char *src, const char *name, int n, char *opts);

#endif
