#include "table.h"

#include <dlfcn.h>
#include <string.h>

hf_table hf_cl;

const char *hf_open(const char *file)
{
	void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dlerror();
#define X(name, params, args) *(void **)&hf_cl.name = dlsym(lib, #name);
	HF_CALLS(X)
	HF_MAKERS(X)
#undef X
	*(void **)&hf_cl.clEnqueueMapBuffer = dlsym(lib, "clEnqueueMapBuffer");
	*(void **)&hf_cl.clSVMAlloc = dlsym(lib, "clSVMAlloc");
	*(void **)&hf_cl.clSVMFree = dlsym(lib, "clSVMFree");
	if (!hf_cl.clGetPlatformIDs || !hf_cl.clCreateImage)
		return "the library is older than OpenCL 1.2";
	return NULL;
}

#define CONTEXT_PLATFORM 0x1084
#define QUEUE_PROPERTIES 0x1093
#define QUEUE_PRIORITY_KHR 0x1096
#define BUFFER_CREATE_TYPE_REGION 0x1220
#define PROGRAM_BINARIES 0x1166
#define EVENT_STATUS 0x11D3
#define MAP_READ_WRITE 3

made hf_context(hnd platform, hnd device)
{
	intptr_t props[] = {CONTEXT_PLATFORM, (intptr_t)platform, 0};
	made m;
	m.h = hf_clCreateContext(props, 1, &device, NULL, NULL, &m.rc);
	return m;
}

made hf_queue(hnd ctx, hnd dev, int modern, uint64_t props, uint32_t priority)
{
	made m;
	if (!modern) {
		m.h = hf_clCreateCommandQueue(ctx, dev, props, &m.rc);
		return m;
	}
	uint64_t list[] = {QUEUE_PROPERTIES, props, priority ? QUEUE_PRIORITY_KHR : 0, priority, 0};
	m.h = 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(ctx, dev, list, &m.rc);
	return m;
}

made hf_buffer(hnd ctx, uint64_t flags, size_t n, void *host)
{
	made m;
	m.h = hf_clCreateBuffer(ctx, flags, n, host, &m.rc);
	return m;
}

made hf_sub(hnd buf, uint64_t flags, size_t off, size_t n)
{
	size_t region[2] = {off, n};
	made m;
	m.h = hf_clCreateSubBuffer(buf, flags, BUFFER_CREATE_TYPE_REGION, region, &m.rc);
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

made hf_image(hnd ctx, uint64_t flags, uint32_t order, uint32_t type, uint32_t kind,
              size_t w, size_t h, size_t d)
{
	struct format f = {order, type};
	struct desc   s;
	made          m;
	memset(&s, 0, sizeof s);
	s.type = kind;
	s.width = w;
	s.height = h;
	s.depth = d;
	m.h = hf_clCreateImage(ctx, flags, &f, &s, NULL, &m.rc);
	return m;
}

made hf_sampler(hnd ctx, uint32_t norm, uint32_t addr, uint32_t filter)
{
	made m;
	m.h = hf_clCreateSampler(ctx, norm, addr, filter, &m.rc);
	return m;
}

made hf_source(hnd ctx, const char *text, size_t n)
{
	made m;
	m.h = hf_clCreateProgramWithSource(ctx, 1, &text, &n, &m.rc);
	return m;
}

made hf_binary(hnd ctx, hnd dev, const void *bin, size_t n)
{
	const unsigned char *b = bin;
	int32_t              status = 0;
	made                 m;
	m.h = hf_clCreateProgramWithBinary(ctx, 1, &dev, &n, &b, &status, &m.rc);
	return m;
}

made hf_il(hnd ctx, const void *il, size_t n)
{
	made m;
	m.h = hf_clCreateProgramWithIL(ctx, il, n, &m.rc);
	return m;
}

made hf_kernel(hnd prog, const char *name)
{
	made m;
	m.h = hf_clCreateKernel(prog, name, &m.rc);
	return m;
}

int32_t hf_build(hnd prog, hnd dev, const char *options)
{
	return hf_clBuildProgram(prog, 1, &dev, options, NULL, NULL);
}

int32_t hf_get_binary(hnd prog, void *bin)
{
	return hf_clGetProgramInfo(prog, PROGRAM_BINARIES, sizeof bin, &bin, NULL);
}

int32_t hf_arg_handle(hnd k, uint32_t i, hnd value)
{
	return hf_clSetKernelArg(k, i, sizeof value, &value);
}

int32_t hf_arg_svm(hnd k, uint32_t i, hnd p)
{
	return hf_clSetKernelArgSVMPointer(k, i, (void *)p);
}

made hf_launch(hnd q, hnd k, hf_grid g, uint32_t n, const hnd *wait)
{
	int  shifted = g.off[0] || g.off[1] || g.off[2];
	made m = {0, 0};
	m.rc = hf_clEnqueueNDRangeKernel(q, k, g.dims, shifted ? g.off : NULL, g.global,
	                                 g.local[0] ? g.local : NULL, n, wait, &m.h);
	return m;
}

made hf_read(hnd q, hnd b, int block, size_t off, size_t len, void *p, uint32_t n,
             const hnd *wait)
{
	made m = {0, 0};
	m.rc = hf_clEnqueueReadBuffer(q, b, block, off, len, p, n, wait, block ? NULL : &m.h);
	return m;
}

made hf_write(hnd q, hnd b, int block, size_t off, size_t len, const void *p, uint32_t n,
              const hnd *wait)
{
	made m = {0, 0};
	m.rc = hf_clEnqueueWriteBuffer(q, b, block, off, len, p, n, wait, block ? NULL : &m.h);
	return m;
}

made hf_copy(hnd q, hnd dst, size_t dstoff, hnd src, size_t srcoff, size_t len, uint32_t n,
             const hnd *wait)
{
	made m = {0, 0};
	m.rc = hf_clEnqueueCopyBuffer(q, src, dst, srcoff, dstoff, len, n, wait, &m.h);
	return m;
}

made hf_read_image(hnd q, hnd i, int block, hf_box b, void *p, uint32_t n, const hnd *wait)
{
	made m = {0, 0};
	m.rc = hf_clEnqueueReadImage(q, i, block, b.o, b.r, 0, 0, p, n, wait, block ? NULL : &m.h);
	return m;
}

made hf_write_image(hnd q, hnd i, int block, hf_box b, const void *p, uint32_t n,
                    const hnd *wait)
{
	made m = {0, 0};
	m.rc = hf_clEnqueueWriteImage(q, i, block, b.o, b.r, 0, 0, p, n, wait, block ? NULL : &m.h);
	return m;
}

made hf_image_to_buffer(hnd q, hnd img, hnd buf, hf_box b, size_t off, uint32_t n,
                        const hnd *wait)
{
	made m = {0, 0};
	m.rc = hf_clEnqueueCopyImageToBuffer(q, img, buf, b.o, b.r, off, n, wait, &m.h);
	return m;
}

made hf_buffer_to_image(hnd q, hnd buf, size_t off, hnd img, hf_box b, uint32_t n,
                        const hnd *wait)
{
	made m = {0, 0};
	m.rc = hf_clEnqueueCopyBufferToImage(q, buf, img, off, b.o, b.r, n, wait, &m.h);
	return m;
}

made hf_marker(hnd q, uint32_t n, const hnd *wait)
{
	made m = {0, 0};
	m.rc = hf_clEnqueueMarkerWithWaitList(q, n, wait, &m.h);
	return m;
}

int32_t hf_wait(hnd ev)
{
	return hf_clWaitForEvents(1, &ev);
}

// hf_event_status puts the execution status into h: 0 is complete, above 0 is
// on its way, below 0 is the command's error.
made hf_event_status(hnd ev)
{
	int32_t status = 0;
	made    m;
	m.rc = hf_clGetEventInfo(ev, EVENT_STATUS, sizeof status, &status, NULL);
	m.h = (hnd)(intptr_t)status;
	return m;
}

made hf_map(hnd q, hnd b, uint64_t flags, size_t n)
{
	made m = {0, HF_UNAVAILABLE};
	if (hf_cl.clEnqueueMapBuffer)
		m.h = (hnd)hf_cl.clEnqueueMapBuffer(q, b, 1, flags, 0, n, 0, NULL, NULL, &m.rc);
	return m;
}

int32_t hf_unmap(hnd q, hnd m, hnd p)
{
	return hf_clEnqueueUnmapMemObject(q, m, (void *)p, 0, NULL, NULL);
}

hnd hf_svm_alloc(hnd ctx, size_t n)
{
	return hf_cl.clSVMAlloc ? (hnd)hf_cl.clSVMAlloc(ctx, 1, n, 0) : 0;
}

void hf_svm_free(hnd ctx, hnd p)
{
	if (hf_cl.clSVMFree)
		hf_cl.clSVMFree(ctx, (void *)p);
}

int32_t hf_svm_map(hnd q, hnd p, size_t n)
{
	return hf_clEnqueueSVMMap(q, 1, MAP_READ_WRITE, (void *)p, n, 0, NULL, NULL);
}

int32_t hf_svm_unmap(hnd q, hnd p)
{
	return hf_clEnqueueSVMUnmap(q, (void *)p, 0, NULL, NULL);
}
