#include "table.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

hfcu_cu_table  hfcu_cu;
hfcu_rtc_table hfcu_rtc;

const char *hfcu_cu_open(const char *file)
{
	void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dlerror();
#define X(name, params, args) *(void **)&hfcu_cu.name = dlsym(lib, #name);
	CU_CALLS(X)
#undef X
	if (!hfcu_cu.cuInit || !hfcu_cu.cuDevicePrimaryCtxRelease_v2 || !hfcu_cu.cuLaunchKernel)
		return "the library lacks calls of CUDA 11";
	return NULL;
}

const char *hfcu_rtc_open(const char *file)
{
	void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dlerror();
#define X(name, params, args) *(void **)&hfcu_rtc.name = dlsym(lib, #name);
	RTC_CALLS(X)
#undef X
	if (!hfcu_rtc.nvrtcCreateProgram || !hfcu_rtc.nvrtcCompileProgram)
		return "the library lacks calls of NVRTC";
	return NULL;
}

#define ENTER(ctx)                                                             \
	do {                                                                       \
		int32_t rc_ = hfcu_cuCtxSetCurrent(ctx);                                 \
		if (rc_)                                                               \
			return rc_;                                                        \
	} while (0)

#define ENTER_MADE(ctx, m)                                                     \
	made m = {0, hfcu_cuCtxSetCurrent(ctx)};                                     \
	if (m.rc)                                                                  \
		return m;

made hfcu_free_bytes(hnd ctx)
{
	size_t total = 0, left = 0;
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuMemGetInfo_v2(&left, &total);
	m.v = left;
	return m;
}

int32_t hfcu_current(hnd ctx) { return hfcu_cuCtxSetCurrent(ctx); }

made hfcu_context_now(void)
{
	hnd  ctx = 0;
	made m = {0, hfcu_cuCtxGetCurrent(&ctx)};
	m.v = ctx;
	return m;
}

made hfcu_context_device(hnd ctx)
{
	made was = hfcu_context_now();
	int  dev = 0;
	if (was.rc)
		return was;
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuCtxGetDevice(&dev);
	m.v = (uint64_t)dev;
	hfcu_cuCtxSetCurrent((hnd)was.v);
	return m;
}

made hfcu_stream_context(hnd ctx, hnd s, int *priority)
{
	hnd of = 0;
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuStreamGetCtx(s, &of);
	m.v = of;
	if (!m.rc)
		m.rc = hfcu_cuStreamGetPriority(s, priority);
	return m;
}

int32_t hfcu_synchronize(hnd ctx)
{
	ENTER(ctx);
	return hfcu_cuCtxSynchronize();
}

made hfcu_range(hnd ctx, dptr p, int *device)
{
	dptr   base = 0;
	size_t n = 0;
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuMemGetAddressRange_v2(&base, &n, p);
	if (m.rc)
		return m;
	m.rc = hfcu_cuPointerGetAttribute(device, 9 /* DEVICE_ORDINAL */, p);
	m.v = base + n - p;
	return m;
}

made hfcu_alloc(hnd ctx, size_t n)
{
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuMemAlloc_v2(&m.v, n);
	return m;
}

made hfcu_alloc_managed(hnd ctx, size_t n)
{
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuMemAllocManaged(&m.v, n, 1 /* CU_MEM_ATTACH_GLOBAL */);
	return m;
}

int32_t hfcu_free(hnd ctx, dptr p)
{
	ENTER(ctx);
	return hfcu_cuMemFree_v2(p);
}

made hfcu_host_alloc(hnd ctx, size_t n)
{
	void *p = NULL;
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuMemHostAlloc(&p, n, 1 /* PORTABLE */);
	m.v = (uint64_t)p;
	return m;
}

int32_t hfcu_host_free(hnd ctx, hnd p)
{
	ENTER(ctx);
	return hfcu_cuMemFreeHost((void *)p);
}

made hfcu_host_register(hnd ctx, hnd p, size_t n)
{
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuMemHostRegister_v2((void *)p, n, 1 | 2 /* PORTABLE, DEVICEMAP */);
	if (m.rc)
		return m;
	m.rc = hfcu_cuMemHostGetDevicePointer_v2(&m.v, (void *)p, 0);
	if (m.rc)
		hfcu_cuMemHostUnregister((void *)p);
	return m;
}

made hfcu_host_address(hnd ctx, hnd p)
{
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuMemHostGetDevicePointer_v2(&m.v, (void *)p, 0);
	return m;
}

int32_t hfcu_host_unregister(hnd ctx, hnd p)
{
	ENTER(ctx);
	return hfcu_cuMemHostUnregister((void *)p);
}

// CUDA_ARRAY3D_DESCRIPTOR
struct array_desc {
	size_t   width, height, depth;
	int      format;
	unsigned channels, flags;
};

made hfcu_array(hnd ctx, hfcu_image_desc i)
{
	struct array_desc d = {i.w, i.dims > 1 ? i.h : 0, i.dims > 2 ? i.d : 0,
	                       i.format, i.channels, 2 /* SURFACE_LDST */};
	hnd a = 0;
	if (i.array) {
		d.depth = i.dims == 1 ? i.h : i.d;
		d.flags |= 1; // LAYERED
	}
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuArray3DCreate_v2(&a, &d);
	m.v = a;
	return m;
}

int32_t hfcu_array_free(hnd ctx, hnd a)
{
	ENTER(ctx);
	return hfcu_cuArrayDestroy(a);
}

// CUDA_RESOURCE_DESC for an array
struct resource {
	int type; // 0: array
	union {
		hnd array;
		int reserved[32];
	} res;
	unsigned flags;
};

// CUDA_TEXTURE_DESC
struct texture {
	int      address[3], filter;
	unsigned flags, anisotropy;
	int      mipfilter;
	float    bias, lo, hi, border[4];
	int      reserved[12];
};

made hfcu_surface(hnd ctx, hnd array)
{
	struct resource r;
	memset(&r, 0, sizeof r);
	r.res.array = array;
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuSurfObjectCreate(&m.v, &r);
	return m;
}

made hfcu_texture(hnd ctx, hnd array, int address, int filter, unsigned flags)
{
	struct resource r;
	struct texture  t;
	memset(&r, 0, sizeof r);
	memset(&t, 0, sizeof t);
	r.res.array = array;
	t.address[0] = t.address[1] = t.address[2] = address;
	t.filter = filter;
	t.flags = flags;
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuTexObjectCreate(&m.v, &r, &t, NULL);
	return m;
}

int32_t hfcu_surface_free(hnd ctx, dptr o)
{
	ENTER(ctx);
	return hfcu_cuSurfObjectDestroy(o);
}

int32_t hfcu_texture_free(hnd ctx, dptr o)
{
	ENTER(ctx);
	return hfcu_cuTexObjectDestroy(o);
}

made hfcu_stream(hnd ctx, int priority)
{
	int least = 0, greatest = 0;
	hnd s = 0;
	ENTER_MADE(ctx, m)
	// numerically lower is more urgent; without priorities both are 0
	hfcu_cuCtxGetStreamPriorityRange(&least, &greatest);
	if (priority > least)
		priority = least;
	if (priority < greatest)
		priority = greatest;
	m.rc = hfcu_cuStreamCreateWithPriority(&s, 1 /* NON_BLOCKING */, priority);
	m.v = s;
	return m;
}

int32_t hfcu_stream_free(hnd ctx, hnd s)
{
	ENTER(ctx);
	return hfcu_cuStreamDestroy_v2(s);
}

int32_t hfcu_stream_sync(hnd ctx, hnd s)
{
	ENTER(ctx);
	return hfcu_cuStreamSynchronize(s);
}

made hfcu_event(hnd ctx, unsigned flags)
{
	hnd e = 0;
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuEventCreate(&e, flags);
	m.v = e;
	return m;
}

int32_t hfcu_event_free(hnd ctx, hnd e)
{
	ENTER(ctx);
	return hfcu_cuEventDestroy_v2(e);
}

int32_t hfcu_event_record(hnd ctx, hnd e, hnd s)
{
	ENTER(ctx);
	return hfcu_cuEventRecord(e, s);
}

int32_t hfcu_event_sync(hnd ctx, hnd e)
{
	ENTER(ctx);
	return hfcu_cuEventSynchronize(e);
}

int32_t hfcu_event_query(hnd ctx, hnd e)
{
	ENTER(ctx);
	return hfcu_cuEventQuery(e);
}

made hfcu_event_elapsed(hnd ctx, hnd a, hnd b)
{
	float ms = 0;
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuEventElapsedTime(&ms, a, b);
	m.v = (uint64_t)((double)ms * 1e6);
	return m;
}

// begin makes the context current and lets the stream wait.
static int32_t begin(const hfcu_cmd *c)
{
	ENTER(c->ctx);
	for (unsigned i = 0; i < c->n; i++) {
		int32_t rc = hfcu_cuStreamWaitEvent(c->stream, c->wait[i], 0);
		if (rc)
			return rc;
	}
	return 0;
}

// end records the event or waits, after work that gave rc.
static int32_t end(const hfcu_cmd *c, int32_t rc)
{
	if (!rc && c->ev)
		rc = hfcu_cuEventRecord(c->ev, c->stream);
	if (!rc && c->block)
		rc = hfcu_cuStreamSynchronize(c->stream);
	return rc;
}

#define COMMAND(c, work)                                                       \
	int32_t rc = begin(&c);                                                    \
	return rc ? rc : end(&c, work)

int32_t hfcu_read(hfcu_cmd c, uint8_t *p, dptr d, size_t n)
{
	COMMAND(c, hfcu_cuMemcpyDtoHAsync_v2(p, d, n, c.stream));
}

int32_t hfcu_write(hfcu_cmd c, dptr d, const uint8_t *p, size_t n)
{
	COMMAND(c, hfcu_cuMemcpyHtoDAsync_v2(d, p, n, c.stream));
}

int32_t hfcu_copy(hfcu_cmd c, dptr d, dptr from, size_t n)
{
	COMMAND(c, hfcu_cuMemcpyDtoDAsync_v2(d, from, n, c.stream));
}

// hfcu_copy_peer copies over NVLink or PCIe where the devices reach each other.
// The driver goes through the host until the access is enabled, and where that
// is refused.
int32_t hfcu_copy_peer(hfcu_cmd c, dptr d, dptr from, hnd fromctx, size_t n)
{
	int32_t rc = begin(&c);
	if (rc)
		return rc;
	(void)hfcu_cuCtxEnablePeerAccess(fromctx, 0); // fails if it is enabled already
	return end(&c, hfcu_cuMemcpyPeerAsync(d, c.ctx, from, fromctx, n, c.stream));
}

int32_t hfcu_marker(hfcu_cmd c)
{
	COMMAND(c, 0);
}

// shortest gives the length of the shortest pattern that makes the same bytes.
static size_t shortest(const uint8_t *pattern, size_t size)
{
	while (size > 1 && !memcmp(pattern, pattern + size / 2, size / 2))
		size /= 2;
	return size;
}

// fill enqueues the work of hfcu_fill. Patterns that no memset has are written word by
// word into the first bytes, which are then copied on, twice as many each time.
static int32_t fill(const hfcu_cmd *c, dptr d, size_t n, const uint8_t *pattern, size_t size)
{
	uint16_t half;
	uint32_t word;
	size_t   done, k;
	int32_t  rc = 0;
	size = shortest(pattern, size);
	if (size == 1)
		return hfcu_cuMemsetD8Async(d, *pattern, n, c->stream);
	if (size == 2) {
		memcpy(&half, pattern, sizeof half);
		return hfcu_cuMemsetD16Async(d, half, n / 2, c->stream);
	}
	if (size == 4) {
		memcpy(&word, pattern, sizeof word);
		return hfcu_cuMemsetD32Async(d, word, n / 4, c->stream);
	}
	done = n < (64 << 10) ? n : (64 << 10); // a multiple of size
	for (k = 0; k < size && !rc; k += sizeof word) {
		memcpy(&word, pattern + k, sizeof word);
		rc = hfcu_cuMemsetD2D32Async(d + k, size, word, 1, done / size, c->stream);
	}
	for (; done < n && !rc; done += k) {
		k = done < n - done ? done : n - done;
		rc = hfcu_cuMemcpyDtoDAsync_v2(d + done, d, k, c->stream);
	}
	return rc;
}

int32_t hfcu_fill(hfcu_cmd c, dptr d, size_t n, const uint8_t *pattern, size_t size)
{
	COMMAND(c, fill(&c, d, n, pattern, size));
}

// CUDA_MEMCPY3D
struct side {
	size_t x, y, z, lod;
	int    type; // 1 host, 2 device, 3 array
	void  *host;
	dptr   device;
	hnd    array;
	void  *reserved;
	size_t pitch, height;
};

struct copy3d {
	struct side src, dst;
	size_t      width, height, depth;
};

enum { HOST = 1, DEVICE = 2, ARRAY = 3 };

static struct side linear(int type, void *p, dptr d, hfcu_box b)
{
	struct side s;
	memset(&s, 0, sizeof s);
	s.type = type;
	s.host = p;
	s.device = d;
	s.pitch = b.w;
	s.height = b.h;
	return s;
}

static struct side array(hnd a, hfcu_box b)
{
	struct side s;
	memset(&s, 0, sizeof s);
	s.type = ARRAY;
	s.array = a;
	s.x = b.x;
	s.y = b.y;
	s.z = b.z;
	return s;
}

static int32_t image_copy(hfcu_cmd c, struct side dst, struct side src, hfcu_box b)
{
	struct copy3d k = {src, dst, b.w, b.h, b.d};
	COMMAND(c, hfcu_cuMemcpy3DAsync_v2(&k, c.stream));
}

int32_t hfcu_image_read(hfcu_cmd c, uint8_t *p, hnd a, hfcu_box b)
{
	return image_copy(c, linear(HOST, p, 0, b), array(a, b), b);
}

int32_t hfcu_image_write(hfcu_cmd c, hnd a, const uint8_t *p, hfcu_box b)
{
	return image_copy(c, array(a, b), linear(HOST, (void *)p, 0, b), b);
}

int32_t hfcu_image_to_buffer(hfcu_cmd c, dptr d, hnd a, hfcu_box b)
{
	return image_copy(c, linear(DEVICE, NULL, d, b), array(a, b), b);
}

int32_t hfcu_buffer_to_image(hfcu_cmd c, hnd a, dptr d, hfcu_box b)
{
	return image_copy(c, array(a, b), linear(DEVICE, NULL, d, b), b);
}

int32_t hfcu_copy_image(hfcu_cmd c, hnd dst, hfcu_box to, hnd src, hfcu_box from)
{
	return image_copy(c, array(dst, to), array(src, from), from);
}

static struct side pitched(int type, void *p, dptr d, size_t pitch, size_t height)
{
	hfcu_box b = {0, 0, 0, pitch, height, 1};
	return linear(type, p, d, b);
}

static int32_t rect_copy(hfcu_cmd c, struct side dst, struct side src, hfcu_rect r)
{
	hfcu_box b = {0, 0, 0, r.w, r.h, r.d};
	return image_copy(c, dst, src, b);
}

int32_t hfcu_read_rect(hfcu_cmd c, uint8_t *p, dptr d, hfcu_rect r)
{
	return rect_copy(c, pitched(HOST, p, 0, r.topitch, r.toheight),
	                 pitched(DEVICE, NULL, d, r.frompitch, r.fromheight), r);
}

int32_t hfcu_write_rect(hfcu_cmd c, dptr d, const uint8_t *p, hfcu_rect r)
{
	return rect_copy(c, pitched(DEVICE, NULL, d, r.topitch, r.toheight),
	                 pitched(HOST, (void *)p, 0, r.frompitch, r.fromheight), r);
}

int32_t hfcu_copy_rect(hfcu_cmd c, dptr d, dptr from, hfcu_rect r)
{
	return rect_copy(c, pitched(DEVICE, NULL, d, r.topitch, r.toheight),
	                 pitched(DEVICE, NULL, from, r.frompitch, r.fromheight), r);
}

made hfcu_module(hnd ctx, const void *image, char *log, unsigned logbytes)
{
	int   opts[] = {5 /* ERROR_LOG_BUFFER */, 6 /* its size */};
	void *vals[] = {log, (void *)(uintptr_t)logbytes};
	hnd   mod = 0;
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuModuleLoadDataEx(&mod, image, 2, opts, vals);
	m.v = mod;
	return m;
}

int32_t hfcu_module_free(hnd ctx, hnd m)
{
	ENTER(ctx);
	return hfcu_cuModuleUnload(m);
}

made hfcu_function(hnd ctx, hnd mod, const char *name)
{
	hnd f = 0;
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuModuleGetFunction(&f, mod, name);
	m.v = f;
	return m;
}

made hfcu_module_global(hnd ctx, hnd mod, const char *name, size_t *bytes)
{
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuModuleGetGlobal_v2(&m.v, bytes, mod, name);
	return m;
}

made hfcu_function_param(hnd ctx, hnd f, size_t i)
{
	size_t off = 0, n = 0;
	ENTER_MADE(ctx, m)
	m.rc = hfcu_cuFuncGetParamInfo(f, i, &off, &n);
	m.v = n;
	return m;
}

int32_t hfcu_function_shared(hnd ctx, hnd f, int bytes)
{
	ENTER(ctx);
	return hfcu_cuFuncSetAttribute(f, 8 /* MAX_DYNAMIC_SHARED_SIZE_BYTES */, bytes);
}

int32_t hfcu_launch(hfcu_cmd c, hnd f, hfcu_grid g, unsigned n, uint8_t *buf, const uint32_t *off)
{
	void *params[1024];
	if (n > sizeof params / sizeof *params)
		return 1; // CUDA_ERROR_INVALID_VALUE
	for (unsigned i = 0; i < n; i++)
		params[i] = buf + off[i];
	COMMAND(c, hfcu_cuLaunchKernel(f, g.g[0], g.g[1], g.g[2], g.b[0], g.b[1], g.b[2],
	                             g.shared, c.stream, params, NULL));
}

int32_t hfcu_launch_now(hnd ctx, hnd stream, hnd f, hfcu_grid g, unsigned n, uint8_t *buf, const uint32_t *off)
{
	void *params[32]; // few touch little of the stack
	if (n > sizeof params / sizeof *params) {
		hfcu_cmd c = {.ctx = ctx, .stream = stream};
		return hfcu_launch(c, f, g, n, buf, off);
	}
	for (unsigned i = 0; i < n; i++)
		params[i] = buf + off[i];
	ENTER(ctx);
	return hfcu_cuLaunchKernel(f, g.g[0], g.g[1], g.g[2], g.b[0], g.b[1], g.b[2], g.shared, stream, params, NULL);
}

// hfcu_compile: opts are n texts, one behind the other, each with its NUL.
made hfcu_compile(const char *src, const char *name, int n, char *opts)
{
	made         m = {0, 0};
	hnd          p = 0;
	const char **list = calloc(n + 1, sizeof *list);
	for (int i = 0; i < n; i++, opts += strlen(opts) + 1)
		list[i] = opts;
	m.rc = hfcu_nvrtcCreateProgram(&p, src, name, 0, NULL, NULL);
	if (!m.rc)
		m.rc = hfcu_nvrtcCompileProgram(p, n, list);
	m.v = p;
	free(list);
	return m;
}
