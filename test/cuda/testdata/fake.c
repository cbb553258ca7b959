/* fake.c - a libcuda.so.1 whose device is this machine's memory, for tests
 * without a GPU. It knows three kernels and computes them when a stream is
 * waited for, one piece of work after the other. It says of itself that it is
 * fake.
 *
 * FAKE_DROPS=n: the n-th copy to the device is not made, and nobody is told.
 * FAKE_DEVICES=n: how many devices there are, 1 by default.
 * FAKE_APART=1: no device reaches another one's memory.
 * FAKE_MEMORY=n: bytes of each device.
 * FAKE_USAGE=file: gets the bytes in use of each GPU, 8 bytes each.
 * FAKE_FAILS=call[:n]: the n-th lock, checkpoint, restore, or create or unmap
 * by the library fails, the first by default; peer: a copy between devices is
 * not made, and nobody is told; byte: one of its bytes is another one;
 * unload: a module is not unloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"

enum { ILLEGAL_STATE = 401, STREAM_CAPTURE_UNSUPPORTED = 900, STREAM_CAPTURE_INVALIDATED = 901 };
enum { PAGE = 4096, MOST = 8, CHUNK = 256 << 10 };

struct work {
	void (*run)(const struct work *);
	bool (*ready)(const struct work *); /* NULL: always */
	uint64_t a[6];
	struct work *next;
};

struct CUgraph_st {
	struct work *first, **last;
};

struct CUstream_st {
	CUcontext context;
	struct CUgraph_st todo, *capture;
	bool invalid; /* the capture */
	struct CUstream_st *next;
};

struct CUevent_st {
	struct CUstream_st *stream;
	bool done;
};

struct CUctx_st {
	int device;
	bool ended;
	int attached;      /* further users */
	CUcontext primary; /* of a green context */
};

struct CUgreenCtx_st {
	struct CUctx_st context;
};

struct CUfunc_st {
	const char *name;
	unsigned params, bytes[6];
	void (*run)(const struct work *);
	bool (*ready)(const struct work *);
};

struct CUarray_st {
	CUDA_ARRAY3D_DESCRIPTOR d;
	size_t element;
	char *bytes;
};

struct block {
	char *at;
	size_t bytes;
	CUcontext context;
	bool host, managed;
	int device;
	struct physical *behind; /* of a mapping */
	bool reachable;          /* of a mapping */
	bool asleep;             /* of a graph that has not made it yet */
	char *saved;             /* while the process is stopped */
	struct block *next;
};

/* Memory without an address: a memfd. It is gone with its handle and its
 * mappings. */
struct physical {
	int fd, device, uses;
	bool imported; /* from another process, which has its bytes in its usage */
	size_t bytes;
	struct physical *next;
};

static pthread_mutex_t lock;
static struct block *blocks;
static struct physical *physicals; /* of this process */
static struct CUstream_st *streams;
static struct CUctx_st primary[MOST];
static int retained[MOST];
static int gpu_of[MOST]; /* the GPU behind each device: a restore may change it */
static _Atomic uint64_t own_usage[MOST + 1], *usage = own_usage; /* of each GPU, and the number of launches */
static _Atomic int locked, stopped;
static double *factor; /* the variable of the one module */
static __thread CUcontext stack[16];
static __thread int depth;

__attribute__((constructor)) static void start(void) {
	pthread_mutexattr_t recursive;

	pthread_mutexattr_init(&recursive);
	pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&lock, &recursive);
	for (int i = 0; i < MOST; i++) {
		gpu_of[i] = i;
		primary[i].device = i;
	}
	if (getenv("FAKE_USAGE") != NULL) {
		int fd = open(getenv("FAKE_USAGE"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		void *shared = ftruncate(fd, sizeof own_usage) != 0
			? MAP_FAILED
			: mmap(NULL, sizeof own_usage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		if (shared == MAP_FAILED) {
			abort();
		}
		usage = shared;
	}
}

static uint64_t number(const char *name, uint64_t otherwise) {
	const char *text = getenv(name);

	return text == NULL ? otherwise : strtoull(text, NULL, 0);
}

/* Whether this call of a kind is the one that is to fail. */
static bool fails(const char *call) {
	static _Atomic unsigned calls;
	const char *text = getenv("FAKE_FAILS");
	size_t n = strlen(call);

	return text != NULL && strncmp(text, call, n) == 0 && (text[n] == 0 || text[n] == ':') &&
		++calls == (text[n] == 0 ? 1 : (unsigned)atoi(text + n + 1));
}

/* All calls wait while the driver is locked. */
static void enter(void) {
	while (atomic_load(&locked)) {
		usleep(100);
	}
}

/* These calls read memory that the checkpoint takes away, and do not wait. */
static void looks(void) {
	if (stopped) {
		fputs("the fake driver: a thread looks at what is gone\n", stderr);
		abort();
	}
}

/* Calls about a device do not wait either. They fail. */
static CUresult there(void) { return stopped ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS; }

/* What a holder has for itself goes with its process, whose end nobody sees
 * here. */
static bool charge(int device, size_t bytes) {
	if (getenv("HOLDFAST_CUDA_DRIVER") != NULL) {
		return true;
	}
	uint64_t now = atomic_fetch_add(&usage[gpu_of[device]], bytes) + bytes;

	if (now > number("FAKE_MEMORY", UINT64_MAX)) {
		atomic_fetch_sub(&usage[gpu_of[device]], bytes);
		return false;
	}
	return true;
}

static void discharge(int device, size_t bytes) { atomic_fetch_sub(&usage[gpu_of[device]], bytes); }

static CUcontext current(void) { return depth > 0 ? stack[depth - 1] : NULL; }

/* Work */

static void append(struct CUgraph_st *g, const struct work *w) {
	struct work *own = malloc(sizeof *own);

	*own = *w;
	own->next = NULL;
	if (g->first == NULL) {
		g->last = &g->first;
	}
	*g->last = own;
	g->last = &own->next;
}

/* Does what can be done; whether that is all. */
static bool advance(struct CUstream_st *s) {
	struct work *w;

	while ((w = s->todo.first) != NULL && (w->ready == NULL || w->ready(w))) {
		w->run(w);
		s->todo.first = w->next;
		free(w);
	}
	return s->todo.first == NULL;
}

static bool advance_all(void) {
	struct CUstream_st *s;
	bool all = true;

	for (s = streams; s != NULL; s = s->next) {
		all = advance(s) && all;
	}
	return all;
}

/* Whether a stream's work is that of a context. That of green contexts is the
 * primary context's, too. */
static bool belongs(const struct CUstream_st *s, CUcontext context) {
	return s->context == context || s->context->primary == context;
}

static CUresult drained_of(CUcontext context) {
	struct CUstream_st *s;
	bool all;

	do {
		enter();
		all = true;
		pthread_mutex_lock(&lock);
		for (s = streams; s != NULL; s = s->next) {
			all = (!belongs(s, context) || advance(s)) && all;
		}
		pthread_mutex_unlock(&lock);
	} while (!all && usleep(100) == 0);
	return CUDA_SUCCESS;
}

static CUresult drained(struct CUstream_st *s) {
	bool all;

	for (;;) {
		enter();
		pthread_mutex_lock(&lock);
		all = s == NULL ? advance_all() : advance(s);
		pthread_mutex_unlock(&lock);
		if (all) {
			return CUDA_SUCCESS;
		}
		usleep(100);
	}
}

/* Whoever waits for the device while a stream is captured spoils the capture.
 */
static CUresult spoils(struct CUstream_st *only) {
	struct CUstream_st *s;
	CUresult e = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	for (s = streams; s != NULL; s = s->next) {
		if (s->capture != NULL && (only == NULL || s == only)) {
			s->invalid = true;
			e = STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	pthread_mutex_unlock(&lock);
	return e;
}

static struct CUstream_st *stream_of(CUstream s) { return (uintptr_t)s <= CU_STREAM_PER_THREAD ? NULL : s; }

/* The default stream waits for all others. */
static CUresult submit(CUstream stream, struct work w) {
	struct CUstream_st *s = stream_of(stream);
	CUresult e;

	enter();
	if (current() == NULL) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (s == NULL) {
		if ((e = spoils(NULL)) != CUDA_SUCCESS) {
			return e;
		}
		drained(NULL);
	}
	pthread_mutex_lock(&lock);
	if (s == NULL) {
		w.run(&w);
	} else {
		append(s->capture != NULL ? s->capture : &s->todo, &w);
	}
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

static void *address(uint64_t at) { return (void *)(uintptr_t)at; }

static void run_copy(const struct work *w) { memmove(address(w->a[0]), address(w->a[1]), w->a[2]); }

static void run_set(const struct work *w) {
	uint64_t i;

	for (i = 0; i < w->a[2]; i++) {
		memcpy((char *)address(w->a[0]) + i * w->a[3], &w->a[1], w->a[3]);
	}
}

static void run_record(const struct work *w) { ((CUevent)address(w->a[0]))->done = true; }

static void run_nothing(const struct work *w) { (void)w; }

static bool event_done(const struct work *w) {
	CUevent e = address(w->a[0]);

	if (!e->done && e->stream != NULL) {
		advance(e->stream);
	}
	return e->done;
}

/* Kernels */

static void run_axpy(const struct work *w) {
	double *y = address(w->a[0]);
	const double *x = address(w->a[1]);
	uint64_t i;

	for (i = 0; i < (unsigned)w->a[2]; i++) {
		y[i] += *factor * x[i];
	}
}

static void run_mix(const struct work *w) {
	unsigned char *p = address(w->a[0]);
	uint64_t i, z = 1;

	for (i = 0; i < (unsigned)w->a[1]; i++) {
		z = (z ^ p[i]) * 0x100000001b3u;
		p[i] = (unsigned char)(z >> 32);
	}
}

static void run_fill(const struct work *w) { memset(address(w->a[0]), 9, (unsigned)w->a[1]); }

/* Not the hash of the real kernel, but its results' places. */
static void run_hash(const struct work *w) {
	const unsigned char *p = address(w->a[0] + w->a[1]);
	uint64_t *results = address(w->a[4]), z, n, i;

	for (n = 0; n * CHUNK < w->a[2]; n++) {
		z = *(const unsigned *)address(w->a[3]);
		for (i = n * CHUNK; i < (n + 1) * CHUNK && i < w->a[2]; i++) {
			z = (z ^ p[i]) * 0x100000001b3u;
		}
		for (i = 0; i < 4; i++) {
			results[4 * (w->a[5] + n) + i] = z >> i;
		}
	}
}

static void run_flip(const struct work *w) { *(unsigned char *)address(w->a[0]) ^= 1; }

static bool flag_set(const struct work *w) { return *(volatile int *)address(w->a[0]) != 0; }

static struct CUfunc_st kernels[] = {
	{ "axpy", 3, { 8, 8, 4 }, run_axpy, NULL },
	{ "mix", 2, { 8, 4 }, run_mix, NULL },
	{ "fill", 2, { 8, 4 }, run_fill, NULL },
	{ "spin", 1, { 8 }, run_nothing, flag_set },
	{ "holdfast_chunk_hash", 6, { 8, 8, 8, 8, 8, 8 }, run_hash, NULL },
};

CUresult cuFuncGetParamInfo(CUfunction f, size_t index, size_t *offset, size_t *bytes) {
	if (index >= f->params) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*offset = 8 * index;
	*bytes = f->bytes[index];
	return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, CUstream stream, void **params, void **extra) {
	atomic_fetch_add(&usage[MOST], 1);
	struct work w = { .run = f->run, .ready = f->ready };
	unsigned i;

	/* The last argument tells whether those on the stack arrive. */
	if (gx * gy * gz * bx * by * bz == 0 || shared != 0 || extra != NULL) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (i = 0; i < f->params; i++) {
		memcpy(&w.a[i], params[i], f->bytes[i]);
	}
	return submit(stream, w);
}

/* The machine */

CUresult cuInit(unsigned flags) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

CUresult cuDriverGetVersion(int *version) {
	*version = 13000;
	return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
	*name = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "FAKE_ERROR";
	return CUDA_SUCCESS;
}

/* Handed to those who know its identifier, as it is. */
CUresult cuGetExportTable(const void **table, const void *id) {
	static const void *const hidden[2] = { (const void *)sizeof hidden, "hidden" };

	*table = hidden;
	return memcmp(id, "0123456789abcdef", 16) == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* The newest version that the caller knows of; of what came with 3.2, the
 * second. */
CUresult cuGetProcAddress_v2(const char *name, void **at, int version, uint64_t flags, int *status) {
	static const char *const endings[] = { "_v2", "" };
	char full[128];
	Dl_info self;
	void *handle;
	size_t i;

	(void)flags;
	dladdr((void *)(uintptr_t)primary, &self);
	handle = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	*at = NULL;
	for (i = version >= 3020 ? 0 : 1; i < 2 && *at == NULL; i++) {
		snprintf(full, sizeof full, "%s%s", name, endings[i]);
		*at = dlsym(handle, full);
	}
	dlclose(handle);
	if (status != NULL) {
		*status = *at == NULL;
	}
	return *at == NULL ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
	*device = ordinal;
	return ordinal >= 0 && ordinal < (int)number("FAKE_DEVICES", 1) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count) {
	*count = (int)number("FAKE_DEVICES", 1);
	return CUDA_SUCCESS;
}

/* That of GPU n ends with the byte n. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
	memset(uuid, 0xfa, sizeof *uuid);
	uuid->bytes[15] = (unsigned char)gpu_of[device];
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
	(void)device;
	*value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
		attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED ||
		(attribute == CU_DEVICE_ATTRIBUTE_MPS_ENABLED && getenv("FAKE_MPS") != NULL);
	return there();
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
	*can = device != peer && getenv("FAKE_APART") == NULL;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
	(void)device;
	snprintf(name, (size_t)length, "fake GPU on host memory");
	return there();
}

/* Contexts */

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
	(void)flags;
	*context = calloc(1, sizeof **context);
	(*context)->device = device;
	stack[depth++] = *context;
	return CUDA_SUCCESS;
}

static void end_context(CUcontext context) {
	struct block **b = &blocks, *old;
	struct CUstream_st **s = &streams;

	pthread_mutex_lock(&lock);
	while (*b != NULL) {
		if ((*b)->context == context) {
			old = *b;
			*b = old->next;
			munmap(old->at, old->bytes);
			if (!old->host) {
				discharge(old->device, old->bytes);
			}
			free(old);
		} else {
			b = &(*b)->next;
		}
	}
	while (*s != NULL) {
		if ((*s)->context == context) {
			*s = (*s)->next;
		} else {
			s = &(*s)->next;
		}
	}
	context->ended = true;
	pthread_mutex_unlock(&lock);
}

static CUresult destroy_context(CUcontext context) {
	end_context(context);
	depth -= current() == context;
	return CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(CUcontext context) { return destroy_context(context); }

CUresult cuCtxAttach(CUcontext *context, unsigned flags) {
	(void)flags;
	*context = current();
	(*context)->attached++;
	return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext context) {
	return context->attached > 0 ? context->attached--, CUDA_SUCCESS : destroy_context(context);
}

static CUcontext retain(CUdevice device) {
	retained[device]++;
	primary[device].ended = false;
	return &primary[device];
}

static CUresult release_primary(CUdevice device) {
	if (retained[device] > 0 && --retained[device] == 0) {
		end_context(&primary[device]);
	}
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
	*context = retain(device);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return release_primary(device); }

CUresult cuGreenCtxCreate(CUgreenCtx *green, const void *part, CUdevice device, unsigned flags) {
	(void)part;
	(void)flags;
	*green = calloc(1, sizeof **green);
	(*green)->context = (struct CUctx_st){ .device = device, .primary = retain(device) };
	return CUDA_SUCCESS;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
	*context = &green->context;
	return CUDA_SUCCESS;
}

/* Its memory is the primary context's. */
CUresult cuGreenCtxDestroy(CUgreenCtx green) {
	struct block *b;

	pthread_mutex_lock(&lock);
	for (b = blocks; b != NULL; b = b->next) {
		b->context = b->context == &green->context ? green->context.primary : b->context;
	}
	pthread_mutex_unlock(&lock);
	destroy_context(&green->context);
	return release_primary(green->context.device);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
	*flags = 0;
	*active = retained[device] > 0;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
	*context = current();
	return CUDA_SUCCESS;
}

/* How often a context was pushed. */
_Atomic unsigned fake_pushes;

CUresult cuCtxPushCurrent_v2(CUcontext context) {
	fake_pushes++;
	if (context == NULL) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (context->ended) { /* driver 580 says that it has, and dies of it later */
		fputs("the fake driver: a context that has ended is pushed\n", stderr);
		abort();
	}
	stack[depth++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
	*context = stack[--depth];
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
	*device = current() != NULL ? current()->device : -1;
	return current() != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxSynchronize(void) {
	looks();
	CUresult e = current() == NULL ? CUDA_ERROR_INVALID_CONTEXT : spoils(NULL);

	return e != CUDA_SUCCESS ? e : drained_of(current());
}

/* Memory */

static struct block *block_of(CUdeviceptr at) {
	struct block *b;

	pthread_mutex_lock(&lock); /* others take blocks out of the list */
	for (b = blocks; b != NULL && (b->asleep || at - (uintptr_t)b->at >= b->bytes); b = b->next) {
	}
	pthread_mutex_unlock(&lock);
	return b;
}

static CUresult allocate(CUdeviceptr *at, size_t bytes, bool host, bool managed) {
	static uintptr_t hint = 0x600000000000;
	struct block *b = calloc(1, sizeof *b);
	void *p;

	enter();
	if (current() == NULL) {
		free(b);
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (!host && !charge(current()->device, bytes)) {
		free(b);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_lock(&lock);
	p = mmap((void *)hint, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	hint += (bytes + 2 * PAGE) & ~(uintptr_t)(PAGE - 1);
	*b = (struct block){ .at = p,
		.bytes = bytes,
		.context = current(),
		.host = host,
		.managed = managed,
		.device = current()->device,
		.next = blocks };
	blocks = b;
	pthread_mutex_unlock(&lock);
	*at = (uintptr_t)p;
	return CUDA_SUCCESS;
}

static void reserve(void *at, size_t bytes) {
	mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

static void unuse(struct physical *p) {
	struct physical **at = &physicals;

	if (--p->uses == 0) {
		if (!p->imported) {
			discharge(p->device, p->bytes);
			for (; *at != p; at = &(*at)->next) {
			}
			*at = p->next;
		}
		close(p->fd);
		free(p);
	}
}

static CUresult release(CUdeviceptr at) {
	struct block **b, *old;
	CUresult e = CUDA_ERROR_INVALID_VALUE;

	enter();
	pthread_mutex_lock(&lock);
	for (b = &blocks; *b != NULL; b = &(*b)->next) {
		if ((uintptr_t)(*b)->at == at) {
			old = *b;
			*b = old->next;
			if (old->behind != NULL) { /* its addresses stay reserved, at every moment */
				reserve(old->at, old->bytes);
				unuse(old->behind);
			} else {
				munmap(old->at, old->bytes);
				if (!old->host) {
					discharge(old->device, old->bytes);
				}
			}
			free(old);
			e = CUDA_SUCCESS;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	return e;
}

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) { return allocate(at, bytes, false, false); }

CUresult cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t height, unsigned element) {
	(void)element;
	*pitch = (width + 511) & ~(size_t)511;
	return allocate(at, *pitch * height, false, false);
}

CUresult cuMemAllocManaged(CUdeviceptr *at, size_t bytes, unsigned flags) {
	(void)flags;
	return allocate(at, bytes, false, true);
}

CUresult cuMemFree_v2(CUdeviceptr at) {
	drained(NULL);
	return release(at);
}

CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
	CUdeviceptr p = 0;
	CUresult e = allocate(&p, bytes, true, false);

	(void)flags;
	*at = address(p);
	return e;
}

CUresult cuMemFreeHost(void *at) { return release((uintptr_t)at); }

/* It is the device's, whatever becomes of the context. */
static CUresult from_pool(CUdeviceptr *at, size_t bytes, bool asleep) {
	CUresult e = allocate(at, bytes, false, false);
	struct block *b = e == CUDA_SUCCESS ? block_of(*at) : NULL;

	if (b != NULL) {
		b->context = NULL;
		b->asleep = asleep;
	}
	return e;
}

CUresult cuMemAllocAsync(CUdeviceptr *at, size_t bytes, CUstream stream) {
	(void)stream;
	return from_pool(at, bytes, false);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *at, size_t bytes, CUmemoryPool pool, CUstream stream) {
	(void)pool;
	(void)stream;
	return from_pool(at, bytes, false);
}

static void run_free(const struct work *w) { release(w->a[0]); }

CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream) {
	return block_of(at) == NULL ? CUDA_ERROR_INVALID_VALUE
								: submit(stream, (struct work){ .run = run_free, .a = { at } });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr at) {
	const struct block *b = block_of(at);

	if (b == NULL) {
		return CUDA_ERROR_NOT_FOUND;
	}
	if (base != NULL) {
		*base = (uintptr_t)b->at;
	}
	if (bytes != NULL) {
		*bytes = b->bytes;
	}
	return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr at) {
	const struct block *b = block_of(at);

	if (b == NULL) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		memcpy(value, attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ? (void *)&b->bytes : (void *)&b->at, 8);
		break;
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		memcpy(value, &b->context, sizeof b->context);
		break;
	default:
		*(int *)value = attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED ? b->managed
			: b->host                                                ? CU_MEMORYTYPE_HOST
																	 : CU_MEMORYTYPE_DEVICE;
	}
	return CUDA_SUCCESS;
}

/* As the driver does, which refuses it for mapped memory. */
CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr at) {
	const struct block *b = block_of(at);

	return value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || b == NULL ? CUDA_ERROR_INVALID_VALUE
		: b->behind != NULL                                                            ? CUDA_ERROR_NOT_SUPPORTED
																					   : CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr at) {
	CUresult e = CUDA_SUCCESS;
	unsigned i;

	for (i = 0; i < count && e == CUDA_SUCCESS; i++) {
		e = cuPointerGetAttribute(values[i], attributes[i], at);
	}
	return e;
}

CUresult cuMemAddressReserve(
	CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags) {
	(void)alignment;
	(void)flags;
	*at = (uintptr_t)mmap(address(hint), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) { return munmap(address(at), bytes) != 0; }

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop, int option) {
	(void)prop;
	(void)option;
	*bytes = 2 << 20;
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *bytes) {
	*bytes = number("FAKE_MEMORY", (uint64_t)1 << 30);
	*free_bytes = *bytes - atomic_load(&usage[gpu_of[current()->device]]);
	return there();
}

CUresult cuMemCreate(
	CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags) {
	struct physical *p;

	enter();
	if ((prop->requestedHandleTypes != 0 && fails("create")) || !charge(prop->location.id, bytes)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	p = calloc(1, sizeof *p);
	*p = (struct physical){
		.fd = memfd_create("fake", MFD_CLOEXEC), .device = prop->location.id, .uses = 1, .bytes = bytes
	};
	(void)flags;
	*handle = (uintptr_t)p;
	pthread_mutex_lock(&lock);
	p->next = physicals;
	physicals = p;
	pthread_mutex_unlock(&lock);
	return ftruncate(p->fd, (off_t)bytes) != 0;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
	if (handle == (CUmemGenericAllocationHandle)-1) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&lock);
	unuse(address(handle));
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *at) {
	struct block *b;

	pthread_mutex_lock(&lock);
	b = block_of((uintptr_t)at);
	if (b != NULL && b->behind != NULL) {
		b->behind->uses++;
		*handle = (uintptr_t)b->behind;
	}
	pthread_mutex_unlock(&lock);
	return b == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(
	void *shared, CUmemGenericAllocationHandle handle, int type, unsigned long long flags) {
	int fd = dup(((struct physical *)address(handle))->fd);

	memcpy(shared, &fd, sizeof fd);
	return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && flags == 0 && fd >= 0 ? CUDA_SUCCESS
																					 : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, int type) {
	struct physical *p = calloc(1, sizeof *p);
	struct stat is;

	enter();
	*p = (struct physical){ .fd = dup((int)(intptr_t)shared), .uses = 1, .imported = true };
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || p->fd < 0 || fstat(p->fd, &is) != 0) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	p->bytes = (size_t)is.st_size;
	*handle = (uintptr_t)p;
	return CUDA_SUCCESS;
}

/* Handles of the driver's own memory. They say no more than that. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr at) {
	memset(handle, 'd', sizeof *handle);
	return block_of(at) == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags) {
	(void)flags;
	return handle.reserved[0] == 'd' ? cuMemAlloc_v2(at, 8 << 20) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr at) { return cuMemFree_v2(at); }

static CUresult map_pages(const struct block *b, int protection) {
	return mmap(b->at, b->bytes, protection, MAP_SHARED | MAP_FIXED, b->behind->fd, 0) == MAP_FAILED;
}

CUresult cuMemMap(
	CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
	struct block *b = calloc(1, sizeof *b);

	(void)flags;
	(void)offset;
	enter();
	*b = (struct block){ .at = address(at), .bytes = bytes, .behind = address(handle), .next = blocks };
	if (map_pages(b, PROT_NONE) != 0) {
		free(b);
		return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&lock);
	b->next = blocks;
	b->behind->uses++;
	b->device = b->behind->device;
	blocks = b;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count) {
	bool reachable = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

	(void)count;
	enter();
	pthread_mutex_lock(&lock);
	block_of(at)->reachable = reachable;
	pthread_mutex_unlock(&lock);
	return mprotect(address(at), bytes, reachable ? PROT_READ | PROT_WRITE : PROT_NONE) != 0;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
	(void)bytes;
	return at >> 40 == 0x50 && fails("unmap") ? CUDA_ERROR_INVALID_VALUE : release(at);
}

/* Checkpoints of the process */

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args) {
	if (pid != getpid() || args == NULL || args->timeoutMs == 0 || fails("lock")) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&lock); /* whoever is in a call leaves first */
	atomic_store(&locked, 1);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessCheckpoint(int pid, void *args) {
	struct physical *p;
	struct CUstream_st *s;
	struct block *b;
	const char *why = pid != getpid() || args != NULL ? "it is another process's"
		: !locked                                     ? "the process is not locked"
		: stopped                                     ? "there is one"
		: fails("checkpoint")                         ? "it is to fail"
													  : NULL;

	pthread_mutex_lock(&lock);
	(void)advance_all(); /* as the real one does with what was submitted before */
	for (s = streams; s != NULL; s = s->next) {
		why = s->todo.first != NULL ? "a stream has work" : why;
	}
	for (b = blocks; b != NULL; b = b->next) {
		why = b->managed                               ? "there is managed memory"
			: b->behind != NULL && b->behind->imported ? "memory is imported"
													   : why;
	}
	const bool all = why == NULL;
	if (!all) {
		fprintf(stderr, "the fake driver makes no checkpoint: %s\n", why);
	}
	for (b = all ? blocks : NULL; b != NULL; b = b->next) {
		if (b->host) {
			continue;
		}
		if (b->behind == NULL) {
			discharge(b->device, b->bytes);
		}
		if (b->behind == NULL || b->reachable) {
			b->saved = malloc(b->bytes);
			memcpy(b->saved, b->at, b->bytes);
		}
		if (b->behind != NULL) {
			reserve(b->at, b->bytes);
		} else {
			munmap(b->at, b->bytes);
		}
	}
	for (p = all ? physicals : NULL; p != NULL; p = p->next) { /* mapped or not */
		discharge(p->device, p->bytes);
	}
	pthread_mutex_unlock(&lock);
	stopped = stopped || all;
	return all ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

/* Every device must be told where to go, if any is. */
static bool remap(const CUcheckpointRestoreArgs *args) {
	int next[MOST], i, n = (int)number("FAKE_DEVICES", 1);
	unsigned p;
	CUuuid own;

	for (i = 0; i < n; i++) {
		next[i] = gpu_of[i];
		cuDeviceGetUuid(&own, i);
		for (p = 0; args != NULL && p < args->gpuPairsCount; p++) {
			if (memcmp(&args->gpuPairs[p].oldUuid, &own, sizeof own) == 0) {
				next[i] = args->gpuPairs[p].newUuid.bytes[15];
				break;
			}
		}
		if ((args != NULL && p == args->gpuPairsCount) || next[i] >= MOST) {
			return false;
		}
	}
	memcpy(gpu_of, next, sizeof *next * (size_t)n);
	return true;
}

/* Memory comes back to its addresses, whatever is there by now. */
CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args) {
	struct physical *p;
	struct block *b;

	if (pid != getpid() || !stopped || fails("restore") || !remap(args)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&lock);
	for (p = physicals; p != NULL; p = p->next) {
		if (!charge(p->device, p->bytes)) {
			abort();
		}
	}
	for (b = blocks; b != NULL; b = b->next) {
		if (b->host) {
			continue;
		}
		if (b->behind == NULL && !charge(b->device, b->bytes)) {
			abort(); /* the real one has lost the process, too */
		}
		if (b->behind != NULL) {
			map_pages(b, PROT_READ | PROT_WRITE);
		} else {
			mmap(b->at, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		}
		if (b->saved != NULL) {
			memcpy(b->at, b->saved, b->bytes);
			free(b->saved);
			b->saved = NULL;
		}
	}
	stopped = false;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessUnlock(int pid, void *args) {
	if (pid != getpid() || args != NULL || !locked || stopped) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	atomic_store(&locked, 0);
	return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags) {
	(void)host;
	(void)bytes;
	(void)flags;
	return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *host) {
	(void)host;
	return CUDA_SUCCESS;
}

/* Arrays */

static CUarray create(const CUDA_ARRAY3D_DESCRIPTOR *d) {
	struct CUarray_st *a = calloc(1, sizeof *a);

	a->d = *d;
	a->element = d->NumChannels * (d->Format == 0x01 ? 1 : 4);
	a->bytes = calloc(d->Width * (d->Height == 0 ? 1 : d->Height) * (d->Depth == 0 ? 1 : d->Depth), a->element);
	return a;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d) {
	*array = create(d);
	return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d) {
	CUDA_ARRAY3D_DESCRIPTOR all = {
		.Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels
	};

	*array = create(&all);
	return CUDA_SUCCESS;
}

static void destroy(CUarray array) {
	free(array->bytes);
	free(array);
}

CUresult cuArrayDestroy(CUarray array) {
	destroy(array);
	return CUDA_SUCCESS;
}

/* A mipmapped array is its levels. */
struct CUmipmappedArray_st {
	unsigned levels;
	CUarray level[16];
};

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
	CUDA_ARRAY3D_DESCRIPTOR one = *d;
	unsigned i;

	*array = calloc(1, sizeof **array);
	(*array)->levels = levels;
	for (i = 0; i < levels && i < 16; i++) {
		(*array)->level[i] = create(&one);
		one.Width = one.Width > 1 ? one.Width / 2 : 1;
		one.Height = one.Height > 1 ? one.Height / 2 : one.Height;
		one.Depth = one.Depth > 1 ? one.Depth / 2 : one.Depth;
	}
	return levels <= 16 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray of, unsigned level) {
	*array = of->level[level];
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
	while (array->levels > 0) {
		destroy(array->level[--array->levels]);
	}
	free(array);
	return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(int limit, size_t value) {
	(void)value;
	return limit == CU_LIMIT_MALLOC_HEAP_SIZE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* One side of a copy: where a row begins. */
static char *row(
	int type, const void *host, CUdeviceptr device, CUarray array, size_t pitch, size_t height, size_t y, size_t z) {
	if (type == CU_MEMORYTYPE_ARRAY) {
		return array->bytes + (z * (array->d.Height == 0 ? 1 : array->d.Height) + y) * array->d.Width * array->element;
	}
	return (char *)(uintptr_t)(type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : device) + (z * height + y) * pitch;
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *c) {
	size_t y, z;

	drained(NULL);
	for (z = 0; z < c->Depth; z++) {
		for (y = 0; y < c->Height; y++) {
			memcpy(row(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray, c->dstPitch, c->dstHeight, y + c->dstY,
					   z + c->dstZ) +
					c->dstXInBytes,
				row(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray, c->srcPitch, c->srcHeight, y + c->srcY,
					z + c->srcZ) +
					c->srcXInBytes,
				c->WidthInBytes);
		}
	}
	return CUDA_SUCCESS;
}

/* Copies */

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
	return submit(stream, (struct work){ .run = run_copy, .a = { to, from, bytes } });
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
	static int copies;
	const char *drops = getenv("FAKE_DROPS");

	if (drops != NULL && ++copies == atoi(drops)) {
		return CUDA_SUCCESS;
	}
	return copy(to, (uintptr_t)from, bytes, NULL);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) { return copy((uintptr_t)to, from, bytes, NULL); }

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) { return copy(to, from, bytes, NULL); }

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
	return copy(to, (uintptr_t)from, bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
	return copy((uintptr_t)to, from, bytes, stream);
}

/* By whoever holds memory beside a program: the n-th may go wrong. */
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
	CUresult e;

	if (fails("peer")) {
		return CUDA_SUCCESS;
	}
	e = copy(to, from, bytes, stream);
	return e != CUDA_SUCCESS || !fails("byte")
		? e
		: submit(stream, (struct work){ .run = run_flip, .a = { to + bytes / 2 + 1 } });
}

static CUresult set(CUdeviceptr at, uint64_t value, size_t count, size_t width, CUstream stream) {
	return submit(stream, (struct work){ .run = run_set, .a = { at, value, count, width } });
}

CUresult cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t bytes) { return set(at, value, bytes, 1, NULL); }

CUresult cuMemsetD32_v2(CUdeviceptr at, unsigned value, size_t words) { return set(at, value, words, 4, NULL); }

CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream) {
	return set(at, value, bytes, 1, stream);
}

/* Modules */

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
	CUdeviceptr at = 0;
	CUresult e;

	if (strstr(image, "holdfast_chunk_hash(") != NULL) {
		*module = (CUmodule)(uintptr_t)image;
		return CUDA_SUCCESS;
	}
	if (strcmp(image, "fake module") != 0) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if ((e = allocate(&at, sizeof *factor, false, false)) == CUDA_SUCCESS) {
		factor = address(at);
		*factor = 0.5;
		*module = (CUmodule)(uintptr_t)at;
	}
	return e;
}

CUresult cuModuleUnload(CUmodule module) {
	return fails("unload") ? STREAM_CAPTURE_UNSUPPORTED : release((uintptr_t)module);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
	size_t i;

	(void)module;
	for (i = 0; i < sizeof kernels / sizeof *kernels; i++) {
		if (strcmp(name, kernels[i].name) == 0) {
			*function = &kernels[i];
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *bytes, CUmodule module, const char *name) {
	*at = (uintptr_t)module;
	*bytes = sizeof *factor;
	return strcmp(name, "factor") == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* Streams and events */

static CUresult create_stream(CUstream *stream, CUcontext context) {
	struct CUstream_st *s = calloc(1, sizeof *s);

	s->context = context;
	pthread_mutex_lock(&lock);
	s->next = streams;
	streams = s;
	pthread_mutex_unlock(&lock);
	*stream = s;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
	(void)flags;
	return create_stream(stream, current());
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned flags, int priority) {
	(void)flags;
	(void)priority;
	return create_stream(stream, &green->context);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
	struct CUstream_st **s;

	drained(stream);
	pthread_mutex_lock(&lock);
	for (s = &streams; *s != stream; s = &(*s)->next) {
	}
	*s = stream->next;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
	looks();
	struct CUstream_st *s = stream_of(stream);
	CUresult e = spoils(s);

	if (e == CUDA_SUCCESS) {
		pthread_mutex_lock(&lock);
		e = (s == NULL ? advance_all() : advance(s)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
		pthread_mutex_unlock(&lock);
	}
	return e;
}

/* How many times the default stream was waited for. */
_Atomic unsigned fake_waits;

CUresult cuStreamSynchronize(CUstream stream) {
	looks();
	fake_waits += stream == NULL;
	CUresult e = spoils(stream_of(stream));

	return e != CUDA_SUCCESS ? e : drained(stream_of(stream));
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
	(void)flags;
	*event = calloc(1, sizeof **event);
	(*event)->done = true;
	return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
	event->done = false;
	event->stream = stream_of(stream);
	return submit(stream, (struct work){ .run = run_record, .a = { (uintptr_t)event } });
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
	(void)flags;
	return submit(stream, (struct work){ .run = run_nothing, .ready = event_done, .a = { (uintptr_t)event } });
}

CUresult cuEventQuery(CUevent event) {
	looks();
	return event->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* Its thread wakes up late, and looks once more. */
CUresult cuEventSynchronize(CUevent event) {
	CUresult e;

	looks();
	e = event->done ? CUDA_SUCCESS : drained(event->stream);
	usleep(50000);
	looks();
	return e;
}

CUresult cuEventDestroy_v2(CUevent event) {
	free(event);
	return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
	(void)mode;
	stream->capture = calloc(1, sizeof *stream->capture);
	stream->invalid = false;
	return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
	looks();
	if (stream->capture == NULL) {
		return ILLEGAL_STATE;
	}
	*graph = stream->invalid ? NULL : stream->capture;
	stream->capture = NULL;
	return stream->invalid ? STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, int *status) {
	struct CUstream_st *s = stream_of(stream);

	looks();
	*status = s == NULL || s->capture == NULL ? 0 : s->invalid ? 2 : 1;
	return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
	(void)flags;
	*graph = calloc(1, sizeof **graph);
	return CUDA_SUCCESS;
}

static void run_wake(const struct work *w) {
	struct block *b;

	for (b = blocks; b != NULL && (uintptr_t)b->at != w->a[0]; b = b->next) {
	}
	if (b != NULL) {
		b->asleep = false;
	}
}

static CUresult add_node(CUgraphNode *node, CUgraph graph, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
	CUresult e = from_pool(&params->at, params->bytes, true);

	*node = NULL;
	append(graph, &(struct work){ .run = run_wake, .a = { params->at } });
	return e;
}

CUresult cuGraphAddMemAllocNode(
	CUgraphNode *node, CUgraph graph, const void *dependencies, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
	(void)dependencies;
	(void)count;
	return add_node(node, graph, params);
}

CUresult cuGraphAddNode(
	CUgraphNode *node, CUgraph graph, const void *dependencies, size_t count, CUgraphNodeParams *params) {
	(void)dependencies;
	(void)count;
	return params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? add_node(node, graph, &params->alloc) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const void *dependencies, const void *edges, size_t count,
	CUgraphNodeParams *params) {
	(void)dependencies;
	(void)edges;
	(void)count;
	return params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? add_node(node, graph, &params->alloc) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
	(void)flags;
	*exec = (CUgraphExec)(void *)graph;
	return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
	const struct work *w;
	CUresult e = CUDA_SUCCESS;

	for (w = ((struct CUgraph_st *)(void *)exec)->first; w != NULL && e == CUDA_SUCCESS; w = w->next) {
		e = submit(stream, *w);
	}
	return e;
}
