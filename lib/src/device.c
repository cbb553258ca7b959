/* device.c - memory of GPUs. The library links none of their libraries: a pointer to device memory can only come from
 * one that the program has loaded, and that is the one that is asked. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>

#include "client.h"

/* A call of a driver, by its purpose. All return 0 or a number of the driver's own. */
typedef union {
	void *symbol;
	int (*attribute)(void *data, int attribute, uintptr_t ptr);
	int (*push)(void *context);
	int (*pop)(void **context);
	int (*set)(int ordinal);
	int (*get)(int *ordinal);
	int (*synchronize)(void);
	int (*to_host)(void *host, uintptr_t device, size_t bytes);
	int (*to_device)(uintptr_t device, const void *host, size_t bytes);
	int (*lock)(void *host, size_t bytes, unsigned int flags);
	int (*unlock)(void *host);
	int (*unused)(size_t *bytes, size_t *all);
	int (*allocate)(uintptr_t *device, size_t bytes);
	int (*release)(uintptr_t device);
	int (*on_device)(uintptr_t to, uintptr_t from, size_t bytes);
	int (*open)(void **stream, unsigned int flags);
	int (*close)(void *stream);
	int (*complete)(void *stream);
	int (*to_host_by)(void *host, uintptr_t device, size_t bytes, void *stream);
	int (*capture_mode)(int *mode);
	int (*current)(void **context);
} driver_call;

/* The common part of CUDA and HIP. */
struct hf_device {
	const char *name;
	const char *const *libraries; /* the first that is loaded counts; NULL ends them */
	const char *const *calls;     /* in the order of enum call */
	bool (*find)(const struct hf_device *d, const void *ptr, int *error, struct hf_place *to);
	int (*enter)(const struct hf_device *d, const struct hf_place *p, struct hf_place *before);
	int (*leave)(const struct hf_device *d, const struct hf_place *before);
	unsigned int lock_flags;
	void *so;
	driver_call call[18];
	bool shadows; /* it has the calls for them */
};

/* From UNUSED on they are for shadows. Drivers may lack the last two. */
enum call {
	ATTRIBUTE,
	SELECT,
	DESELECT,
	SYNCHRONIZE,
	TO_HOST,
	TO_DEVICE,
	LOCK,
	UNLOCK,
	UNUSED,
	ALLOCATE,
	RELEASE,
	ON_DEVICE,
	OPEN,
	CLOSE,
	COMPLETE,
	TO_HOST_BY,
	CAPTURE_MODE,
	CURRENT,
	CALLS
};

enum { NON_BLOCKING = 1, RELAXED = 2 }; /* a stream, and a thread's mode for streams that capture: of both drivers */

/* CUDA: the driver API, which the runtime is above. Numbers are those of cuda.h. */
enum {
	CU_ATTRIBUTE_CONTEXT = 1,
	CU_ATTRIBUTE_MEMORY_TYPE = 2,
	CU_ATTRIBUTE_IS_MANAGED = 8,
	CU_MEMORY_DEVICE = 2,
	CU_INVALID_VALUE = 1,
	CU_NOT_INITIALIZED = 3,
	CU_REGISTER_PORTABLE = 1
};

static bool cuda_find(const struct hf_device *d, const void *ptr, int *error, struct hf_place *to) {
	unsigned int type = 0, managed = 0;

	*error = d->call[ATTRIBUTE].attribute(&type, CU_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)ptr);
	if (*error == CU_INVALID_VALUE || *error == CU_NOT_INITIALIZED) { /* the driver does not know it */
		*error = 0;
		return false;
	}
	if (*error != 0 || d->call[ATTRIBUTE].attribute(&managed, CU_ATTRIBUTE_IS_MANAGED, (uintptr_t)ptr) != 0) {
		managed = 0;
	}
	if (*error != 0 || (type != CU_MEMORY_DEVICE && managed == 0)) { /* page-locked host memory */
		return false;
	}
	to->managed = managed != 0;
	*error = d->call[ATTRIBUTE].attribute(&to->context, CU_ATTRIBUTE_CONTEXT, (uintptr_t)ptr);
	return *error == 0;
}

/* Memory of a pool has no context: that of the thread serves, as it did for the program. */
static int cuda_enter(const struct hf_device *d, const struct hf_place *p, struct hf_place *before) {
	(void)before;
	return p->context == NULL ? 0 : d->call[SELECT].push(p->context);
}

static int cuda_leave(const struct hf_device *d, const struct hf_place *p) {
	void *popped;

	return p->context == NULL ? 0 : d->call[DESELECT].pop(&popped);
}

static const char *const cuda_libraries[] = { "libcuda.so.1", NULL };
static const char *const cuda_calls[CALLS] = { "cuPointerGetAttribute", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
	"cuCtxSynchronize", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2", "cuMemHostRegister_v2", "cuMemHostUnregister",
	"cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyDtoD_v2", "cuStreamCreate", "cuStreamDestroy_v2",
	"cuStreamSynchronize", "cuMemcpyDtoHAsync_v2", "cuThreadExchangeStreamCaptureMode", "cuCtxGetCurrent" };

/* HIP. The meaning of its numbers for types of memory has changed between releases: device memory has an address there
 * and none for the host. */
enum {
	HIP_ATTRIBUTE_DEVICE_POINTER = 3,
	HIP_ATTRIBUTE_HOST_POINTER = 4,
	HIP_ATTRIBUTE_DEVICE_ORDINAL = 9,
	HIP_INVALID_VALUE = 1,
	HIP_NOT_INITIALIZED = 3,
	HIP_REGISTER_PORTABLE = 1
};

static bool hip_find(const struct hf_device *d, const void *ptr, int *error, struct hf_place *to) {
	void *device = NULL, *host = NULL;

	*error = d->call[ATTRIBUTE].attribute(&device, HIP_ATTRIBUTE_DEVICE_POINTER, (uintptr_t)ptr);
	if (*error == HIP_INVALID_VALUE || *error == HIP_NOT_INITIALIZED) {
		*error = 0;
		return false;
	}
	if (*error != 0 || device == NULL) {
		return false;
	}
	if (d->call[ATTRIBUTE].attribute(&host, HIP_ATTRIBUTE_HOST_POINTER, (uintptr_t)ptr) == 0 && host != NULL) {
		return false;
	}
	*error = d->call[ATTRIBUTE].attribute(&to->ordinal, HIP_ATTRIBUTE_DEVICE_ORDINAL, (uintptr_t)ptr);
	return *error == 0;
}

static int hip_enter(const struct hf_device *d, const struct hf_place *p, struct hf_place *before) {
	const int error = d->call[DESELECT].get(&before->ordinal);

	return error != 0 ? error : d->call[SELECT].set(p->ordinal);
}

static int hip_leave(const struct hf_device *d, const struct hf_place *before) {
	return d->call[SELECT].set(before->ordinal);
}

static const char *const hip_libraries[] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
	"libamdhip64.so", NULL };
static const char *const hip_calls[CALLS] = { "hipPointerGetAttribute", "hipSetDevice", "hipGetDevice",
	"hipDeviceSynchronize", "hipMemcpyDtoH", "hipMemcpyHtoD", "hipHostRegister", "hipHostUnregister", "hipMemGetInfo",
	"hipMalloc", "hipFree", "hipMemcpyDtoD", "hipStreamCreateWithFlags", "hipStreamDestroy", "hipStreamSynchronize",
	"hipMemcpyDtoHAsync", "hipThreadExchangeStreamCaptureMode", "hipGetDevice" };

static struct hf_device devices[] = {
	{ .name = "CUDA",
		.libraries = cuda_libraries,
		.calls = cuda_calls,
		.find = cuda_find,
		.enter = cuda_enter,
		.leave = cuda_leave,
		.lock_flags = CU_REGISTER_PORTABLE },
	{ .name = "HIP",
		.libraries = hip_libraries,
		.calls = hip_calls,
		.find = hip_find,
		.enter = hip_enter,
		.leave = hip_leave,
		.lock_flags = HIP_REGISTER_PORTABLE },
};

enum { DEVICES = sizeof devices / sizeof devices[0] };

/* Whether the program has loaded the driver's library. It stays loaded from then on. */
static bool loaded(struct hf_device *d) {
	void *so = NULL;
	size_t i;

	if (d->so != NULL) {
		return true;
	}
	for (i = 0; so == NULL && d->libraries[i] != NULL; i++) {
		so = dlopen(d->libraries[i], RTLD_LAZY | RTLD_NOLOAD);
	}
	if (so == NULL) {
		return false;
	}
	d->shadows = true;
	for (i = 0; i < CALLS; i++) {
		if ((d->call[i].symbol = dlsym(so, d->calls[i])) != NULL) {
			continue;
		}
		if (i < UNUSED) {
			dlclose(so);
			return false;
		}
		d->shadows = d->shadows && i >= CAPTURE_MODE;
	}
	d->so = so;
	return true;
}

int hf_place_of(const char *name, const void *ptr, struct hf_place *to) {
	size_t i;

	*to = (struct hf_place){ .device = NULL };
	if (ptr == NULL) {
		return HF_OK;
	}
	for (i = 0; i < DEVICES; i++) {
		struct hf_place found = { .device = &devices[i] };
		int error = 0;
		if (!loaded(&devices[i])) {
			continue;
		}
		if (devices[i].find(&devices[i], ptr, &error, &found)) {
			*to = found;
			return HF_OK;
		}
		if (error != 0) {
			return hf_fail(HF_E_FAILED,
				"\"%s\": %s cannot say where %p lies (error %d); an earlier call of the "
				"program to its GPU may have failed",
				name, devices[i].name, ptr, error);
		}
	}
	return HF_OK;
}

bool hf_cuda_place(void *context, struct hf_place *to) {
	*to = (struct hf_place){ .device = &devices[0], .context = context };
	return loaded(&devices[0]);
}

/* Copies between device and host, after all that the program has asked the device to do. Returns 0 or an errno. */
static int copy(const struct hf_place *p, enum call direction, const void *device, void *host, size_t bytes) {
	const struct hf_device *d = p->device;
	struct hf_place before = *p;
	int error = d->enter(d, p, &before), left;

	if (error != 0) {
		return EIO;
	}
	if (p->stream != NULL) { /* a shadow, to the host */
		error = d->call[TO_HOST_BY].to_host_by(host, (uintptr_t)device, bytes, p->stream);
		if (error == 0) {
			error = d->call[COMPLETE].complete(p->stream);
		}
		left = d->leave(d, &before);
		return error == 0 && left == 0 ? 0 : EIO;
	}
	error = d->call[SYNCHRONIZE].synchronize();
	if (error == 0 && direction == TO_HOST) {
		error = d->call[TO_HOST].to_host(host, (uintptr_t)device, bytes);
	}
	if (error == 0 && direction == TO_DEVICE) {
		error = d->call[TO_DEVICE].to_device((uintptr_t)device, host, bytes);
	}
	if (error == 0) { /* a copy may return before the device has its bytes */
		error = d->call[SYNCHRONIZE].synchronize();
	}
	left = d->leave(d, &before);
	return error == 0 && left == 0 ? 0 : EIO;
}

int hf_copy_from_device(const struct hf_place *p, const void *device, char *host, size_t bytes) {
	return bytes == 0 ? 0 : copy(p, TO_HOST, device, host, bytes);
}

int hf_copy_to_device(const struct hf_place *p, void *device, const char *host, size_t bytes) {
	return bytes == 0 ? 0 : copy(p, TO_DEVICE, device, (void *)(uintptr_t)host, bytes);
}

API int hf_read_memory(void *to, const void *from, size_t bytes) {
	struct hf_place p;
	int code, err;

	if ((to == NULL || from == NULL) && bytes > 0) {
		return hf_fail(HF_E_ARG, "hf_read_memory: %zu bytes at address 0", bytes);
	}
	if ((code = hf_place_of("hf_read_memory", from, &p)) != HF_OK || bytes == 0) {
		return code;
	}
	if (p.device == NULL) {
		hf_copy(to, from, bytes, false);
		return HF_OK;
	}
	err = hf_copy_from_device(&p, from, to, bytes);
	return err == 0 ? HF_OK
					: hf_fail(HF_E_FAILED,
						  "hf_read_memory: %s cannot copy %zu bytes from %p; an earlier call of the program to its "
						  "GPU may have failed",
						  p.device->name, bytes, from);
}

/* A device reads and writes locked memory several times as fast. Memory that cannot be locked is slower. */
const struct hf_device *hf_lock_memory(const struct hf_place *p, void *at, size_t bytes) {
	const struct hf_device *d = p->device;
	struct hf_place before = *p;
	int error;

	if (d->enter(d, p, &before) != 0) {
		return NULL;
	}
	error = d->call[LOCK].lock(at, bytes, d->lock_flags);
	return d->leave(d, &before) == 0 && error == 0 ? d : NULL;
}

void hf_unlock_memory(const struct hf_device *d, void *at) {
	if (d != NULL) {
		(void)d->call[UNLOCK].unlock(at); /* the program may have ended the driver */
	}
}

bool hf_can_copy_aside(struct hf_place *p) {
	const struct hf_device *d = p->device;

	if (d == NULL || !d->shadows || p->managed) {
		return false;
	}
	if (d->enter != cuda_enter || p->context != NULL) {
		return true;
	}
	/* Memory of a pool. Another thread has no context of its own. */
	return d->call[CURRENT].symbol != NULL && d->call[CURRENT].current(&p->context) == 0 && p->context != NULL;
}

size_t hf_unused_on_device(const struct hf_place *p) {
	const struct hf_device *d = p->device;
	struct hf_place before = *p;
	size_t bytes = 0, all = 0;
	int error = d->enter(d, p, &before);

	if (error != 0) {
		return 0;
	}
	error = d->call[UNUSED].unused(&bytes, &all);
	return d->leave(d, &before) == 0 && error == 0 ? bytes : 0;
}

int hf_allocate_on_device(const struct hf_place *p, size_t bytes, uintptr_t *at) {
	const struct hf_device *d = p->device;
	struct hf_place before = *p;
	int error = d->enter(d, p, &before);

	if (error != 0) {
		return EIO;
	}
	hf_own_allocations(true);
	error = d->call[ALLOCATE].allocate(at, bytes);
	hf_own_allocations(false);
	if (d->leave(d, &before) != 0 && error == 0) {
		hf_free_on_device(p, *at);
		error = EIO;
	}
	return error == 0 ? 0 : ENOMEM;
}

void hf_free_on_device(const struct hf_place *p, uintptr_t at) {
	const struct hf_device *d = p->device;
	struct hf_place before = *p;

	if (d->enter(d, p, &before) != 0) {
		return; /* the program may have ended the driver */
	}
	(void)d->call[RELEASE].release(at);
	(void)d->leave(d, &before);
}

/* After all that the program has asked the device to do, which hf_synchronize has waited for. */
int hf_copy_on_device(const struct hf_place *p, uintptr_t to, uintptr_t from, size_t bytes) {
	const struct hf_device *d = p->device;
	struct hf_place before = *p;
	int error = d->enter(d, p, &before);

	if (error != 0) {
		return EIO;
	}
	error = d->call[ON_DEVICE].on_device(to, from, bytes);
	return d->leave(d, &before) == 0 && error == 0 ? 0 : EIO;
}

int hf_synchronize(const struct hf_place *p) {
	const struct hf_device *d = p->device;
	struct hf_place before = *p;
	int error = d->enter(d, p, &before);

	if (error != 0) {
		return EIO;
	}
	error = d->call[SYNCHRONIZE].synchronize();
	return d->leave(d, &before) == 0 && error == 0 ? 0 : EIO;
}

void hf_open_stream(struct hf_place *p) {
	const struct hf_device *d = p->device;
	struct hf_place before = *p;

	if (d->enter(d, p, &before) != 0) {
		return;
	}
	if (d->call[OPEN].open(&p->stream, NON_BLOCKING) != 0) {
		p->stream = NULL;
	}
	(void)d->leave(d, &before);
}

void hf_close_stream(struct hf_place *p) {
	const struct hf_device *d = p->device;
	struct hf_place before = *p;

	if (p->stream == NULL || d->enter(d, p, &before) != 0) {
		return;
	}
	(void)d->call[CLOSE].close(p->stream);
	(void)d->leave(d, &before);
	p->stream = NULL;
}

/* Lets this thread make, free and wait while the program records a graph: else the driver would spoil that. */
void hf_ignore_captures(const struct hf_place *p) {
	int mode = RELAXED;

	if (p->device->call[CAPTURE_MODE].symbol != NULL) {
		(void)p->device->call[CAPTURE_MODE].capture_mode(&mode);
	}
}
