/* The platform and its devices. */
#include "hfcl.h"

struct answer {
	struct answer *next;
	uint32_t param;
	cl_int rc;
	size_t size;
	char bytes[];
};

static struct {
	pthread_mutex_t lock;
	bool asked;
	cl_uint count;
	cl_device_id *list;
} devices = { PTHREAD_MUTEX_INITIALIZER, false, 0, NULL };

CL_API_ENTRY cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint room, cl_platform_id *list, cl_uint *count) {
	if ((room == 0 && list != NULL) || (list == NULL && count == NULL)) {
		return CL_INVALID_VALUE;
	}
	if (list != NULL) {
		list[0] = &hfcl_platform;
	}
	if (count != NULL) {
		*count = 1;
	}
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clGetPlatformInfo(
	cl_platform_id p, cl_platform_info what, size_t room, void *to, size_t *size_ret) {
	if (p != NULL && p != &hfcl_platform) {
		return CL_INVALID_PLATFORM;
	}
	switch (what) {
	case CL_PLATFORM_PROFILE:
		return hfcl_answer_text("FULL_PROFILE", room, to, size_ret);
	case CL_PLATFORM_VERSION:
		return hfcl_answer_text("OpenCL 1.2 Holdfast", room, to, size_ret);
	case CL_PLATFORM_NAME:
		return hfcl_answer_text("Holdfast", room, to, size_ret);
	case CL_PLATFORM_VENDOR:
		return hfcl_answer_text("Holdfast", room, to, size_ret);
	case CL_PLATFORM_EXTENSIONS:
		return hfcl_answer_text("cl_khr_icd", room, to, size_ret);
	case CL_PLATFORM_ICD_SUFFIX_KHR:
		return hfcl_answer_text("HFCL", room, to, size_ret);
	default:
		return CL_INVALID_VALUE;
	}
}

/* ask_devices lists the devices of the server; the lock is held. */
static void ask_devices(void) {
	devices.asked = true;
	if (!hfcl_connect()) {
		return;
	}
	struct call c;
	hfcl_begin(&c, HFCL_DEVICES);
	if (hfcl_run(&c, NULL, NULL) == CL_SUCCESS) {
		cl_uint n = hfcl_get32(&c);
		devices.list = n > HFCL_MAX_LIST ? NULL : calloc(n + 1, sizeof(cl_device_id));
		for (cl_uint i = 0; i < n && devices.list != NULL; i++) {
			cl_device_id d = calloc(1, sizeof *d);
			if (d == NULL) {
				break;
			}
			hfcl_init(&d->o, DEVICE);
			d->o.id = i;
			d->type = hfcl_get64(&c);
			pthread_mutex_init(&d->lock, NULL);
			if (c.failed) {
				free(d);
				break;
			}
			devices.list[devices.count++] = d;
		}
	}
	hfcl_end(&c);
}

static cl_uint all_devices(void) {
	pthread_mutex_lock(&devices.lock);
	if (!devices.asked) {
		ask_devices();
	}
	pthread_mutex_unlock(&devices.lock);
	return devices.count;
}

static bool fits(cl_uint i, cl_device_type type) {
	return (type & devices.list[i]->type) != 0 || ((type & CL_DEVICE_TYPE_DEFAULT) != 0 && i == 0);
}

CL_API_ENTRY cl_int CL_API_CALL clGetDeviceIDs(
	cl_platform_id p, cl_device_type type, cl_uint room, cl_device_id *list, cl_uint *count) {
	const cl_device_type known = CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU |
		CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM;
	if (p != NULL && p != &hfcl_platform) {
		return CL_INVALID_PLATFORM;
	}
	if (type == 0 || (type != CL_DEVICE_TYPE_ALL && (type & ~known) != 0)) {
		return CL_INVALID_DEVICE_TYPE;
	}
	if ((room == 0 && list != NULL) || (list == NULL && count == NULL)) {
		return CL_INVALID_VALUE;
	}
	cl_uint all = all_devices(), n = 0;
	for (cl_uint i = 0; i < all; i++) {
		if (fits(i, type)) {
			if (list != NULL && n < room) {
				list[n] = devices.list[i];
			}
			n++;
		}
	}
	if (count != NULL) {
		*count = n;
	}
	return n == 0 ? CL_DEVICE_NOT_FOUND : CL_SUCCESS;
}

void hfcl_lose_device(uint64_t number) {
	pthread_mutex_lock(&devices.lock);
	if (number < devices.count) {
		atomic_store(&devices.list[number]->lost, true);
	}
	pthread_mutex_unlock(&devices.lock);
}

/* answer_of returns the server's first answer, NULL without memory; d's lock is held. */
static struct answer *answer_of(cl_device_id d, uint32_t what) {
	for (struct answer *a = d->answers; a != NULL; a = a->next) {
		if (a->param == what) {
			return a;
		}
	}
	struct call c;
	hfcl_begin(&c, HFCL_DEVICE_INFO);
	hfcl_put32(&c, (uint32_t)d->o.id);
	hfcl_put32(&c, what);
	cl_int rc = hfcl_run(&c, NULL, NULL);
	size_t n = 0;
	const char *b = rc == CL_SUCCESS ? hfcl_get_bytes(&c, &n) : NULL;
	struct answer *a = malloc(sizeof *a + n);
	if (a != NULL) {
		*a = (struct answer){ d->answers, what, rc, n };
		if (n > 0) {
			memcpy(a->bytes, b, n);
		}
		d->answers = a;
	}
	hfcl_end(&c);
	return a;
}

CL_API_ENTRY cl_int CL_API_CALL clGetDeviceInfo(
	cl_device_id d, cl_device_info what, size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(d, DEVICE)) {
		return CL_INVALID_DEVICE;
	}
	switch (what) {
	case CL_DEVICE_PLATFORM:
		return ANSWER(cl_platform_id, &hfcl_platform);
	case CL_DEVICE_PARENT_DEVICE:
		return ANSWER(cl_device_id, NULL);
	case CL_DEVICE_REFERENCE_COUNT:
		return ANSWER(cl_uint, 1);
	case CL_DEVICE_TYPE:
		return ANSWER(cl_device_type, d->type);
	case CL_DEVICE_AVAILABLE:
		return ANSWER(cl_bool, hfcl_lost() || atomic_load(&d->lost) ? CL_FALSE : CL_TRUE);
	default:
		break;
	}
	pthread_mutex_lock(&d->lock);
	struct answer *a = answer_of(d, what);
	pthread_mutex_unlock(&d->lock);
	if (a == NULL) {
		return CL_OUT_OF_HOST_MEMORY;
	}
	return a->rc != CL_SUCCESS ? a->rc : hfcl_answer(a->bytes, a->size, room, to, size_ret);
}

CL_API_ENTRY cl_int CL_API_CALL clRetainDevice(cl_device_id d) {
	return hfcl_is(d, DEVICE) ? CL_SUCCESS : CL_INVALID_DEVICE;
}

CL_API_ENTRY cl_int CL_API_CALL clReleaseDevice(cl_device_id d) {
	return hfcl_is(d, DEVICE) ? CL_SUCCESS : CL_INVALID_DEVICE;
}
