#include "table.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

hfcl_table hfcl_cl;

int             hfcl_serial;
pthread_mutex_t hfcl_turn = PTHREAD_MUTEX_INITIALIZER;

void hfcl_take_turns(void) { __atomic_store_n(&hfcl_serial, 1, __ATOMIC_RELAXED); }

const char *hfcl_open(const char *file)
{
	void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dlerror();
#define X(name, params, args) *(void **)&hfcl_cl.name = dlsym(lib, #name);
	HF_CALLS(X)
	HF_MAKERS(X)
#undef X
	*(void **)&hfcl_cl.clEnqueueMapBuffer = dlsym(lib, "clEnqueueMapBuffer");
	*(void **)&hfcl_cl.clSVMAlloc = dlsym(lib, "clSVMAlloc");
	*(void **)&hfcl_cl.clSVMFree = dlsym(lib, "clSVMFree");
	if (!hfcl_cl.clGetPlatformIDs || !hfcl_cl.clCreateImage)
		return "the library is older than OpenCL 1.2";
	/* output of kernels goes through C's files, which a Go process does not empty at its end */
	setvbuf(stdout, NULL, _IOLBF, 0);
	return NULL;
}

#define CONTEXT_PLATFORM 0x1084
#define QUEUE_PROPERTIES 0x1093
#define QUEUE_PRIORITY_KHR 0x1096
#define BUFFER_CREATE_TYPE_REGION 0x1220
#define EVENT_STATUS 0x11D3
#define MAP_READ_WRITE 3
#define IMAGE2D_ARRAY 0x10F3
#define IMAGE1D_ARRAY 0x10F5

made hfcl_context(hnd platform, hnd device)
{
	intptr_t props[] = {CONTEXT_PLATFORM, (intptr_t)platform, 0};
	made m;
	m.h = hfcl_clCreateContext(props, 1, &device, NULL, NULL, &m.rc);
	return m;
}

made hfcl_queue(hnd ctx, hnd dev, int modern, uint64_t props, uint32_t priority)
{
	made m;
	if (!modern) {
		m.h = hfcl_clCreateCommandQueue(ctx, dev, props, &m.rc);
		return m;
	}
	uint64_t list[] = {QUEUE_PROPERTIES, props, priority ? QUEUE_PRIORITY_KHR : 0, priority, 0};
	m.h = hfcl_clCreateCommandQueueWithProperties(ctx, dev, list, &m.rc);
	return m;
}

made hfcl_buffer(hnd ctx, uint64_t flags, size_t n, void *host)
{
	made m;
	m.h = hfcl_clCreateBuffer(ctx, flags, n, host, &m.rc);
	return m;
}

made hfcl_sub(hnd buf, uint64_t flags, size_t off, size_t n)
{
	size_t region[2] = {off, n};
	made m;
	m.h = hfcl_clCreateSubBuffer(buf, flags, BUFFER_CREATE_TYPE_REGION, region, &m.rc);
	return m;
}

// image_format and image_desc of the specification
struct format {
	uint32_t order, type;
};

struct desc {
	uint32_t type;
	size_t   width, height, depth, array, row, slice;
	uint32_t mips, samples;
	hnd      mem;
};

made hfcl_image(hnd ctx, uint64_t flags, uint32_t order, uint32_t type, uint32_t kind,
              size_t w, size_t h, size_t d, hnd buffer)
{
	struct format f = {order, type};
	struct desc   s;
	made          m;
	memset(&s, 0, sizeof s);
	s.type = kind;
	s.width = w;
	s.height = h;
	s.depth = d;
	s.mem = buffer;
	if (kind == IMAGE1D_ARRAY)
		s.array = h;
	if (kind == IMAGE2D_ARRAY)
		s.array = d;
	m.h = hfcl_clCreateImage(ctx, flags, &f, &s, NULL, &m.rc);
	return m;
}

made hfcl_sampler(hnd ctx, uint32_t norm, uint32_t addr, uint32_t filter)
{
	made m;
	m.h = hfcl_clCreateSampler(ctx, norm, addr, filter, &m.rc);
	return m;
}

made hfcl_source(hnd ctx, const char *text, size_t n)
{
	made m;
	m.h = hfcl_clCreateProgramWithSource(ctx, 1, &text, &n, &m.rc);
	return m;
}

made hfcl_il(hnd ctx, const void *il, size_t n)
{
	made m;
	m.h = hfcl_clCreateProgramWithIL(ctx, il, n, &m.rc);
	return m;
}

made hfcl_kernel(hnd prog, const char *name)
{
	made m;
	m.h = hfcl_clCreateKernel(prog, name, &m.rc);
	return m;
}

int32_t hfcl_build(hnd prog, hnd dev, const char *options)
{
	return hfcl_clBuildProgram(prog, 1, &dev, options, NULL, NULL);
}

int32_t hfcl_compile(hnd prog, hnd dev, const char *options)
{
	return hfcl_clCompileProgram(prog, 1, &dev, options, 0, NULL, NULL, NULL, NULL);
}

made hfcl_link(hnd ctx, hnd dev, const char *options, uint32_t n, const hnd *objects)
{
	made m;
	m.h = hfcl_clLinkProgram(ctx, 1, &dev, options, n, objects, NULL, NULL, &m.rc);
	return m;
}

int32_t hfcl_arg_handle(hnd k, uint32_t i, hnd value)
{
	return hfcl_clSetKernelArg(k, i, sizeof value, &value);
}

int32_t hfcl_arg_value(hnd k, uint32_t i, size_t n, const uint8_t *v)
{
	return hfcl_clSetKernelArg(k, i, n, v);
}

int32_t hfcl_arg_svm(hnd k, uint32_t i, hnd p)
{
	return hfcl_clSetKernelArgSVMPointer(k, i, (void *)p);
}

made hfcl_launch(hnd q, hnd k, hfcl_grid g, int event, uint32_t n, const hnd *wait)
{
	int  shifted = g.off[0] || g.off[1] || g.off[2];
	made m = {0, 0};
	m.rc = hfcl_clEnqueueNDRangeKernel(q, k, g.dims, shifted ? g.off : NULL, g.global,
	                                 g.local[0] ? g.local : NULL, n, wait,
	                                 event ? &m.h : NULL);
	return m;
}

made hfcl_steps(const hfcl_step *s, size_t n, const uint8_t *values)
{
	made m = {0, 0};
	for (; m.h < n && m.rc == 0; m.h += m.rc == 0) {
		const hfcl_step *now = s + m.h;
		if (now->q)
			m.rc = hfcl_launch(now->q, now->k, now->g, 0, 0, NULL).rc;
		else
			m.rc = hfcl_arg_value(now->k, now->index, now->n, values + now->at);
	}
	return m;
}

made hfcl_read(hnd q, hnd b, int block, size_t off, size_t len, uint8_t *p, uint32_t n,
             const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueReadBuffer(q, b, block, off, len, p, n, wait, block ? NULL : &m.h);
	return m;
}

made hfcl_write(hnd q, hnd b, int block, size_t off, size_t len, const uint8_t *p, uint32_t n,
              const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueWriteBuffer(q, b, block, off, len, p, n, wait, block ? NULL : &m.h);
	return m;
}

made hfcl_copy(hnd q, hnd dst, size_t dstoff, hnd src, size_t srcoff, size_t len, uint32_t n,
             const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueCopyBuffer(q, src, dst, srcoff, dstoff, len, n, wait, &m.h);
	return m;
}

made hfcl_read_image(hnd q, hnd i, int block, hfcl_box b, uint8_t *p, uint32_t n, const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueReadImage(q, i, block, b.o, b.r, 0, 0, p, n, wait, block ? NULL : &m.h);
	return m;
}

made hfcl_write_image(hnd q, hnd i, int block, hfcl_box b, const uint8_t *p, uint32_t n,
                    const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueWriteImage(q, i, block, b.o, b.r, 0, 0, p, n, wait, block ? NULL : &m.h);
	return m;
}

made hfcl_image_to_buffer(hnd q, hnd img, hnd buf, hfcl_box b, size_t off, uint32_t n,
                        const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueCopyImageToBuffer(q, img, buf, b.o, b.r, off, n, wait, &m.h);
	return m;
}

made hfcl_buffer_to_image(hnd q, hnd buf, size_t off, hnd img, hfcl_box b, uint32_t n,
                        const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueCopyBufferToImage(q, buf, img, off, b.o, b.r, n, wait, &m.h);
	return m;
}

made hfcl_fill(hnd q, hnd b, const uint8_t *pattern, size_t size, size_t off, size_t len, uint32_t n,
             const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueFillBuffer(q, b, pattern, size, off, len, n, wait, &m.h);
	return m;
}

made hfcl_read_rect(hnd q, hnd b, int block, hfcl_rect r, uint8_t *p, uint32_t n, const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueReadBufferRect(q, b, block, r.from, r.to, r.size, r.fromrow, r.fromslice,
	                                  r.torow, r.toslice, p, n, wait, block ? NULL : &m.h);
	return m;
}

made hfcl_write_rect(hnd q, hnd b, int block, hfcl_rect r, const uint8_t *p, uint32_t n,
                   const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueWriteBufferRect(q, b, block, r.to, r.from, r.size, r.torow, r.toslice,
	                                   r.fromrow, r.fromslice, p, n, wait, block ? NULL : &m.h);
	return m;
}

made hfcl_copy_rect(hnd q, hnd dst, hnd src, hfcl_rect r, uint32_t n, const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueCopyBufferRect(q, src, dst, r.from, r.to, r.size, r.fromrow, r.fromslice,
	                                  r.torow, r.toslice, n, wait, &m.h);
	return m;
}

made hfcl_fill_image(hnd q, hnd img, const uint8_t *color, hfcl_box b, uint32_t n, const hnd *wait)
{
	uint32_t c[4]; // aligned as the platform may expect
	made     m = {0, 0};
	memcpy(c, color, sizeof c);
	m.rc = hfcl_clEnqueueFillImage(q, img, c, b.o, b.r, n, wait, &m.h);
	return m;
}

made hfcl_copy_image(hnd q, hnd dst, hfcl_box to, hnd src, hfcl_box b, uint32_t n, const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueCopyImage(q, src, dst, b.o, to.o, b.r, n, wait, &m.h);
	return m;
}

made hfcl_barrier(hnd q, uint32_t n, const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueBarrierWithWaitList(q, n, wait, &m.h);
	return m;
}

made hfcl_marker(hnd q, uint32_t n, const hnd *wait)
{
	made m = {0, 0};
	m.rc = hfcl_clEnqueueMarkerWithWaitList(q, n, wait, &m.h);
	return m;
}

int32_t hfcl_wait(hnd ev)
{
	return hfcl_clWaitForEvents(1, &ev);
}

// hfcl_event_status puts the execution status into h: 0 is complete, above 0 is
// on its way, below 0 is the command's error.
made hfcl_event_status(hnd ev)
{
	int32_t status = 0;
	made    m;
	m.rc = hfcl_clGetEventInfo(ev, EVENT_STATUS, sizeof status, &status, NULL);
	m.h = (hnd)(intptr_t)status;
	return m;
}

made hfcl_map(hnd q, hnd b, uint64_t flags, size_t n)
{
	made m = {0, HF_UNAVAILABLE};
	if (hfcl_cl.clEnqueueMapBuffer) {
		int serial = hfcl_begin();
		m.h = (hnd)hfcl_cl.clEnqueueMapBuffer(q, b, 1, flags, 0, n, 0, NULL, NULL, &m.rc);
		hfcl_end(serial);
	}
	return m;
}

int32_t hfcl_unmap(hnd q, hnd m, hnd p)
{
	return hfcl_clEnqueueUnmapMemObject(q, m, (void *)p, 0, NULL, NULL);
}

hnd hfcl_svm_alloc(hnd ctx, size_t n)
{
	if (!hfcl_cl.clSVMAlloc)
		return 0;
	int serial = hfcl_begin();
	hnd p = (hnd)hfcl_cl.clSVMAlloc(ctx, 1, n, 0);
	hfcl_end(serial);
	return p;
}

void hfcl_svm_free(hnd ctx, hnd p)
{
	if (hfcl_cl.clSVMFree) {
		int serial = hfcl_begin();
		hfcl_cl.clSVMFree(ctx, (void *)p);
		hfcl_end(serial);
	}
}

int32_t hfcl_svm_map(hnd q, hnd p, size_t n)
{
	return hfcl_clEnqueueSVMMap(q, 1, MAP_READ_WRITE, (void *)p, n, 0, NULL, NULL);
}

int32_t hfcl_svm_unmap(hnd q, hnd p)
{
	return hfcl_clEnqueueSVMUnmap(q, (void *)p, 0, NULL, NULL);
}
