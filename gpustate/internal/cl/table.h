// Prototypes of the OpenCL calls that this package uses, written from the
// OpenCL 3.0 specification. Every handle is a uintptr_t, so that none is taken
// for a Go pointer. A call that the library lacks answers
// CL_INVALID_OPERATION.
#ifndef HOLDFAST_CL_TABLE_H
#define HOLDFAST_CL_TABLE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef uintptr_t hnd;

// result of a call that makes an object or an event
typedef struct {
	hnd     h;
	int32_t rc;
} made;

#define HF_UNAVAILABLE (-59)

// calls that return a cl_int
#define HF_CALLS(X)                                                            \
	X(clGetPlatformIDs, (uint32_t n, hnd *ids, uint32_t *num), (n, ids, num))  \
	X(clGetPlatformInfo,                                                       \
	  (hnd p, uint32_t what, size_t n, void *v, size_t *got),                  \
	  (p, what, n, v, got))                                                    \
	X(clGetDeviceIDs,                                                          \
	  (hnd p, uint64_t type, uint32_t n, hnd *ids, uint32_t *num),             \
	  (p, type, n, ids, num))                                                  \
	X(clGetDeviceInfo,                                                         \
	  (hnd d, uint32_t what, size_t n, void *v, size_t *got),                  \
	  (d, what, n, v, got))                                                    \
	X(clReleaseContext, (hnd c), (c))                                          \
	X(clRetainContext, (hnd c), (c))                                           \
	X(clGetContextInfo,                                                        \
	  (hnd c, uint32_t what, size_t n, void *v, size_t *got),                  \
	  (c, what, n, v, got))                                                    \
	X(clReleaseCommandQueue, (hnd q), (q))                                     \
	X(clRetainCommandQueue, (hnd q), (q))                                      \
	X(clGetCommandQueueInfo,                                                   \
	  (hnd q, uint32_t what, size_t n, void *v, size_t *got),                  \
	  (q, what, n, v, got))                                                    \
	X(clReleaseMemObject, (hnd m), (m))                                        \
	X(clRetainMemObject, (hnd m), (m))                                         \
	X(clGetMemObjectInfo,                                                      \
	  (hnd m, uint32_t what, size_t n, void *v, size_t *got),                  \
	  (m, what, n, v, got))                                                    \
	X(clReleaseSampler, (hnd s), (s))                                          \
	X(clReleaseProgram, (hnd p), (p))                                          \
	X(clReleaseKernel, (hnd k), (k))                                           \
	X(clRetainProgram, (hnd p), (p))                                           \
	X(clReleaseEvent, (hnd e), (e))                                            \
	X(clBuildProgram,                                                          \
	  (hnd p, uint32_t n, const hnd *devs, const char *opt, void *cb, void *u), \
	  (p, n, devs, opt, cb, u))                                                \
	X(clCompileProgram,                                                        \
	  (hnd p, uint32_t n, const hnd *devs, const char *opt, uint32_t headers,  \
	   const hnd *list, const char *const *names, void *cb, void *u),          \
	  (p, n, devs, opt, headers, list, names, cb, u))                          \
	X(clGetProgramInfo,                                                        \
	  (hnd p, uint32_t what, size_t n, void *v, size_t *got),                  \
	  (p, what, n, v, got))                                                    \
	X(clGetProgramBuildInfo,                                                   \
	  (hnd p, hnd d, uint32_t what, size_t n, void *v, size_t *got),           \
	  (p, d, what, n, v, got))                                                 \
	X(clGetKernelInfo,                                                         \
	  (hnd k, uint32_t what, size_t n, void *v, size_t *got),                  \
	  (k, what, n, v, got))                                                    \
	X(clGetKernelWorkGroupInfo,                                                \
	  (hnd k, hnd d, uint32_t what, size_t n, void *v, size_t *got),           \
	  (k, d, what, n, v, got))                                                 \
	X(clGetKernelArgInfo,                                                      \
	  (hnd k, uint32_t i, uint32_t what, size_t n, void *v, size_t *got),      \
	  (k, i, what, n, v, got))                                                 \
	X(clGetSupportedImageFormats,                                              \
	  (hnd c, uint64_t flags, uint32_t type, uint32_t n, void *f, uint32_t *got), \
	  (c, flags, type, n, f, got))                                             \
	X(clSetKernelArg, (hnd k, uint32_t i, size_t n, const void *v),            \
	  (k, i, n, v))                                                            \
	X(clSetKernelArgSVMPointer, (hnd k, uint32_t i, const void *v), (k, i, v)) \
	X(clEnqueueNDRangeKernel,                                                  \
	  (hnd q, hnd k, uint32_t dims, const size_t *off, const size_t *global,   \
	   const size_t *local, uint32_t n, const hnd *wait, hnd *ev),             \
	  (q, k, dims, off, global, local, n, wait, ev))                           \
	X(clEnqueueReadBuffer,                                                     \
	  (hnd q, hnd m, uint32_t block, size_t off, size_t len, void *p,          \
	   uint32_t n, const hnd *wait, hnd *ev),                                  \
	  (q, m, block, off, len, p, n, wait, ev))                                 \
	X(clEnqueueWriteBuffer,                                                    \
	  (hnd q, hnd m, uint32_t block, size_t off, size_t len, const void *p,    \
	   uint32_t n, const hnd *wait, hnd *ev),                                  \
	  (q, m, block, off, len, p, n, wait, ev))                                 \
	X(clEnqueueCopyBuffer,                                                     \
	  (hnd q, hnd src, hnd dst, size_t so, size_t d, size_t len, uint32_t n,   \
	   const hnd *wait, hnd *ev),                                              \
	  (q, src, dst, so, d, len, n, wait, ev))                                  \
	X(clEnqueueFillBuffer,                                                     \
	  (hnd q, hnd m, const void *pattern, size_t size, size_t off, size_t len, \
	   uint32_t n, const hnd *wait, hnd *ev),                                  \
	  (q, m, pattern, size, off, len, n, wait, ev))                            \
	X(clEnqueueReadBufferRect,                                                 \
	  (hnd q, hnd m, uint32_t block, const size_t *bo, const size_t *ho,       \
	   const size_t *reg, size_t brow, size_t bslice, size_t hrow,             \
	   size_t hslice, void *p, uint32_t n, const hnd *wait, hnd *ev),          \
	  (q, m, block, bo, ho, reg, brow, bslice, hrow, hslice, p, n, wait, ev))  \
	X(clEnqueueWriteBufferRect,                                                \
	  (hnd q, hnd m, uint32_t block, const size_t *bo, const size_t *ho,       \
	   const size_t *reg, size_t brow, size_t bslice, size_t hrow,             \
	   size_t hslice, const void *p, uint32_t n, const hnd *wait, hnd *ev),    \
	  (q, m, block, bo, ho, reg, brow, bslice, hrow, hslice, p, n, wait, ev))  \
	X(clEnqueueCopyBufferRect,                                                 \
	  (hnd q, hnd src, hnd dst, const size_t *so, const size_t *d,             \
	   const size_t *reg, size_t srow, size_t sslice, size_t drow,             \
	   size_t dslice, uint32_t n, const hnd *wait, hnd *ev),                   \
	  (q, src, dst, so, d, reg, srow, sslice, drow, dslice, n, wait, ev))      \
	X(clEnqueueFillImage,                                                      \
	  (hnd q, hnd m, const void *color, const size_t *org, const size_t *reg,  \
	   uint32_t n, const hnd *wait, hnd *ev),                                  \
	  (q, m, color, org, reg, n, wait, ev))                                    \
	X(clEnqueueCopyImage,                                                      \
	  (hnd q, hnd src, hnd dst, const size_t *so, const size_t *d,             \
	   const size_t *reg, uint32_t n, const hnd *wait, hnd *ev),               \
	  (q, src, dst, so, d, reg, n, wait, ev))                                  \
	X(clEnqueueReadImage,                                                      \
	  (hnd q, hnd m, uint32_t block, const size_t *org, const size_t *reg,     \
	   size_t row, size_t slice, void *p, uint32_t n, const hnd *wait, hnd *ev), \
	  (q, m, block, org, reg, row, slice, p, n, wait, ev))                     \
	X(clEnqueueWriteImage,                                                     \
	  (hnd q, hnd m, uint32_t block, const size_t *org, const size_t *reg,     \
	   size_t row, size_t slice, const void *p, uint32_t n, const hnd *wait,   \
	   hnd *ev),                                                               \
	  (q, m, block, org, reg, row, slice, p, n, wait, ev))                     \
	X(clEnqueueCopyImageToBuffer,                                              \
	  (hnd q, hnd img, hnd buf, const size_t *org, const size_t *reg,          \
	   size_t off, uint32_t n, const hnd *wait, hnd *ev),                      \
	  (q, img, buf, org, reg, off, n, wait, ev))                               \
	X(clEnqueueCopyBufferToImage,                                              \
	  (hnd q, hnd buf, hnd img, size_t off, const size_t *org,                 \
	   const size_t *reg, uint32_t n, const hnd *wait, hnd *ev),               \
	  (q, buf, img, off, org, reg, n, wait, ev))                               \
	X(clEnqueueUnmapMemObject,                                                 \
	  (hnd q, hnd m, void *p, uint32_t n, const hnd *wait, hnd *ev),           \
	  (q, m, p, n, wait, ev))                                                  \
	X(clEnqueueSVMMap,                                                         \
	  (hnd q, uint32_t block, uint64_t flags, void *p, size_t len, uint32_t n, \
	   const hnd *wait, hnd *ev),                                              \
	  (q, block, flags, p, len, n, wait, ev))                                  \
	X(clEnqueueSVMUnmap,                                                       \
	  (hnd q, void *p, uint32_t n, const hnd *wait, hnd *ev),                  \
	  (q, p, n, wait, ev))                                                     \
	X(clEnqueueMarkerWithWaitList,                                             \
	  (hnd q, uint32_t n, const hnd *wait, hnd *ev), (q, n, wait, ev))         \
	X(clEnqueueBarrierWithWaitList,                                            \
	  (hnd q, uint32_t n, const hnd *wait, hnd *ev), (q, n, wait, ev))         \
	X(clFlush, (hnd q), (q))                                                   \
	X(clFinish, (hnd q), (q))                                                  \
	X(clWaitForEvents, (uint32_t n, const hnd *e), (n, e))                     \
	X(clGetEventInfo,                                                          \
	  (hnd e, uint32_t what, size_t n, void *v, size_t *got),                  \
	  (e, what, n, v, got))                                                    \
	X(clGetEventProfilingInfo,                                                 \
	  (hnd e, uint32_t what, size_t n, void *v, size_t *got),                  \
	  (e, what, n, v, got))

// calls that return an object and put the cl_int behind their last argument
#define HF_MAKERS(X)                                                           \
	X(clCreateContext,                                                         \
	  (const intptr_t *props, uint32_t n, const hnd *devs, void *cb, void *u,  \
	   int32_t *rc),                                                           \
	  (props, n, devs, cb, u, rc))                                             \
	X(clCreateCommandQueue, (hnd c, hnd d, uint64_t props, int32_t *rc),       \
	  (c, d, props, rc))                                                       \
	X(clCreateCommandQueueWithProperties,                                      \
	  (hnd c, hnd d, const uint64_t *props, int32_t *rc), (c, d, props, rc))   \
	X(clCreateBuffer,                                                          \
	  (hnd c, uint64_t flags, size_t n, void *host, int32_t *rc),              \
	  (c, flags, n, host, rc))                                                 \
	X(clCreateSubBuffer,                                                       \
	  (hnd b, uint64_t flags, uint32_t type, const size_t *region,             \
	   int32_t *rc),                                                           \
	  (b, flags, type, region, rc))                                            \
	X(clCreateImage,                                                           \
	  (hnd c, uint64_t flags, const void *format, const void *desc,            \
	   void *host, int32_t *rc),                                               \
	  (c, flags, format, desc, host, rc))                                      \
	X(clCreateSampler,                                                         \
	  (hnd c, uint32_t norm, uint32_t addr, uint32_t filter, int32_t *rc),     \
	  (c, norm, addr, filter, rc))                                             \
	X(clCreateProgramWithSource,                                               \
	  (hnd c, uint32_t n, const char *const *s, const size_t *len,             \
	   int32_t *rc),                                                           \
	  (c, n, s, len, rc))                                                      \
	X(clCreateProgramWithIL,                                                   \
	  (hnd c, const void *il, size_t len, int32_t *rc), (c, il, len, rc))      \
	X(clLinkProgram,                                                           \
	  (hnd c, uint32_t n, const hnd *devs, const char *opt, uint32_t inputs,   \
	   const hnd *list, void *cb, void *u, int32_t *rc),                       \
	  (c, n, devs, opt, inputs, list, cb, u, rc))                              \
	X(clCreateKernel, (hnd p, const char *name, int32_t *rc), (p, name, rc))

typedef struct {
#define X(name, params, args) int32_t(*name) params;
	HF_CALLS(X)
#undef X
#define X(name, params, args) hnd(*name) params;
	HF_MAKERS(X)
#undef X
	void *(*clEnqueueMapBuffer)(hnd q, hnd m, uint32_t block, uint64_t flags,
	                            size_t off, size_t len, uint32_t n,
	                            const hnd *wait, hnd *ev, int32_t *rc);
	void *(*clSVMAlloc)(hnd c, uint64_t flags, size_t n, uint32_t align);
	void (*clSVMFree)(hnd c, void *p);
} hfcl_table;

extern hfcl_table hfcl_cl;

// hfcl_open opens the library and fills the table. NULL is success, otherwise
// the loader's message.
const char *hfcl_open(const char *file);

// Oclgrind is not thread-safe, and keeps the commands of every context in the same maps. Once hfcl_serial is
// set, one thread at a time is in a call of the library, also of those that wait for commands.
extern int             hfcl_serial;
extern pthread_mutex_t hfcl_turn;

static inline int hfcl_begin(void)
{
	int serial = __atomic_load_n(&hfcl_serial, __ATOMIC_RELAXED);
	if (__builtin_expect(serial, 0))
		pthread_mutex_lock(&hfcl_turn);
	return serial;
}

static inline void hfcl_end(int serial)
{
	if (__builtin_expect(serial, 0))
		pthread_mutex_unlock(&hfcl_turn);
}

void hfcl_take_turns(void);

#define X(name, params, args)                                                  \
	static inline int32_t hfcl_##name params                                     \
	{                                                                          \
		if (!hfcl_cl.name)                                                     \
			return HF_UNAVAILABLE;                                             \
		int     serial = hfcl_begin();                                         \
		int32_t rc_ = hfcl_cl.name args;                                       \
		hfcl_end(serial);                                                      \
		return rc_;                                                            \
	}
HF_CALLS(X)
#undef X

#define X(name, params, args)                                                  \
	static inline hnd hfcl_##name params                                         \
	{                                                                          \
		if (!hfcl_cl.name) {                                                     \
			*rc = HF_UNAVAILABLE;                                              \
			return 0;                                                          \
		}                                                                      \
		int serial = hfcl_begin();                                             \
		hnd made_ = hfcl_cl.name args;                                         \
		hfcl_end(serial);                                                      \
		return made_;                                                          \
	}
HF_MAKERS(X)
#undef X

// The calls below take the program's memory as bytes: of a void pointer cgo would
// check everything that was allocated together with it. They gather arguments
// so that Go passes no pointer to memory that holds pointers and needs no
// out-parameters.

// boxes are image origins and regions, three each
typedef struct {
	size_t o[3], r[3];
} hfcl_box;

// a box that is copied: where it begins on each side, in bytes of the row, rows and
// slices, its size, and how many bytes rows and slices are apart
typedef struct {
	size_t to[3], from[3], size[3], torow, toslice, fromrow, fromslice;
} hfcl_rect;

// index space of a launch; local[0] == 0 leaves the work-group to OpenCL
typedef struct {
	uint32_t dims;
	size_t   off[3], global[3], local[3];
} hfcl_grid;

// a launch without an event, or, with q 0, an argument: n of the bytes of values from at on
typedef struct {
	hnd       q, k;
	hfcl_grid g;
	uint32_t  index;
	size_t    at, n;
} hfcl_step;

made hfcl_context(hnd platform, hnd device);
made hfcl_queue(hnd ctx, hnd dev, int modern, uint64_t props, uint32_t priority);
made hfcl_buffer(hnd ctx, uint64_t flags, size_t n, void *host);
made hfcl_sub(hnd buf, uint64_t flags, size_t off, size_t n);
// hfcl_image: of an array, h (of 1D) or d (of 2D) is the number of images; buffer is 0, or whose bytes it has
made hfcl_image(hnd ctx, uint64_t flags, uint32_t order, uint32_t type, uint32_t kind,
              size_t w, size_t h, size_t d, hnd buffer);
made hfcl_sampler(hnd ctx, uint32_t norm, uint32_t addr, uint32_t filter);
made hfcl_source(hnd ctx, const char *text, size_t n);
made hfcl_il(hnd ctx, const void *il, size_t n);
made hfcl_kernel(hnd prog, const char *name);
int32_t hfcl_build(hnd prog, hnd dev, const char *options);
int32_t hfcl_compile(hnd prog, hnd dev, const char *options);
// hfcl_link may give a program that holds the linker's log alone, with an error
made hfcl_link(hnd ctx, hnd dev, const char *options, uint32_t n, const hnd *objects);
int32_t hfcl_arg_handle(hnd k, uint32_t i, hnd value);
int32_t hfcl_arg_svm(hnd k, uint32_t i, hnd p);
int32_t hfcl_arg_value(hnd k, uint32_t i, size_t n, const uint8_t *v);
made hfcl_launch(hnd q, hnd k, hfcl_grid g, int event, uint32_t n, const hnd *wait);
// hfcl_steps does steps up to the first that fails; h is how many it did
made hfcl_steps(const hfcl_step *s, size_t n, const uint8_t *values);
made hfcl_read(hnd q, hnd m, int block, size_t off, size_t len, uint8_t *p, uint32_t n,
             const hnd *wait);
made hfcl_write(hnd q, hnd m, int block, size_t off, size_t len, const uint8_t *p, uint32_t n,
              const hnd *wait);
made hfcl_copy(hnd q, hnd dst, size_t dstoff, hnd src, size_t srcoff, size_t len, uint32_t n,
             const hnd *wait);
made hfcl_read_image(hnd q, hnd m, int block, hfcl_box b, uint8_t *p, uint32_t n, const hnd *wait);
made hfcl_write_image(hnd q, hnd m, int block, hfcl_box b, const uint8_t *p, uint32_t n,
                    const hnd *wait);
made hfcl_image_to_buffer(hnd q, hnd img, hnd buf, hfcl_box b, size_t off, uint32_t n,
                        const hnd *wait);
made hfcl_buffer_to_image(hnd q, hnd buf, size_t off, hnd img, hfcl_box b, uint32_t n,
                        const hnd *wait);
made hfcl_fill(hnd q, hnd m, const uint8_t *pattern, size_t size, size_t off, size_t len, uint32_t n,
             const hnd *wait);
made hfcl_read_rect(hnd q, hnd m, int block, hfcl_rect r, uint8_t *p, uint32_t n, const hnd *wait);
made hfcl_write_rect(hnd q, hnd m, int block, hfcl_rect r, const uint8_t *p, uint32_t n,
                   const hnd *wait);
made hfcl_copy_rect(hnd q, hnd dst, hnd src, hfcl_rect r, uint32_t n, const hnd *wait);
made hfcl_fill_image(hnd q, hnd img, const uint8_t *color, hfcl_box b, uint32_t n, const hnd *wait);
// b.o is where the region begins in src, to where in dst
made hfcl_copy_image(hnd q, hnd dst, hfcl_box to, hnd src, hfcl_box b, uint32_t n, const hnd *wait);
made hfcl_barrier(hnd q, uint32_t n, const hnd *wait);
made hfcl_marker(hnd q, uint32_t n, const hnd *wait);
int32_t hfcl_wait(hnd ev);
made hfcl_event_status(hnd ev);
made hfcl_map(hnd q, hnd m, uint64_t flags, size_t n);
int32_t hfcl_unmap(hnd q, hnd m, hnd p);
hnd hfcl_svm_alloc(hnd ctx, size_t n);
void hfcl_svm_free(hnd ctx, hnd p);
int32_t hfcl_svm_map(hnd q, hnd p, size_t n);
int32_t hfcl_svm_unmap(hnd q, hnd p);

#endif
