/* The platform, its devices, contexts. */
#include "hfcl.h"

struct answer {
	struct answer *next;
	uint32_t param;
	cl_int rc;
	size_t size;
	char bytes[];
};

static struct _cl_platform_id platform = { { &hfcl_dispatch, PLATFORM, 1, 0 } };

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
		list[0] = &platform;
	}
	if (count != NULL) {
		*count = 1;
	}
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id p, cl_platform_info what, size_t room, void *to,
	size_t *size_ret) {
	if (p != NULL && p != &platform) {
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

CL_API_ENTRY cl_int CL_API_CALL clGetDeviceIDs(cl_platform_id p, cl_device_type type, cl_uint room, cl_device_id *list,
	cl_uint *count) {
	const cl_device_type known = CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU |
		CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM;
	if (p != NULL && p != &platform) {
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

/* answer_of is what the server said first, NULL without memory; d's lock is held. */
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

CL_API_ENTRY cl_int CL_API_CALL clGetDeviceInfo(cl_device_id d, cl_device_info what, size_t room, void *to,
	size_t *size_ret) {
	if (!hfcl_is(d, DEVICE)) {
		return CL_INVALID_DEVICE;
	}
	switch (what) {
	case CL_DEVICE_PLATFORM:
		return ANSWER(cl_platform_id, &platform);
	case CL_DEVICE_PARENT_DEVICE:
		return ANSWER(cl_device_id, NULL);
	case CL_DEVICE_REFERENCE_COUNT:
		return ANSWER(cl_uint, 1);
	case CL_DEVICE_TYPE:
		return ANSWER(cl_device_type, d->type);
	case CL_DEVICE_AVAILABLE:
		return ANSWER(cl_bool, hfcl_lost() ? CL_FALSE : CL_TRUE);
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

/* check_properties looks at a list for a context, and says how many words it has. */
static cl_int check_properties(const cl_context_properties *list, size_t *words) {
	*words = 0;
	if (list == NULL) {
		return CL_SUCCESS;
	}
	for (; list[*words] != 0; *words += 2) {
		switch (list[*words]) {
		case CL_CONTEXT_PLATFORM:
			if (list[*words + 1] != (cl_context_properties)&platform) {
				return CL_INVALID_PLATFORM;
			}
			break;
		case CL_CONTEXT_INTEROP_USER_SYNC:
			break;
		default:
			return CL_INVALID_PROPERTY;
		}
	}
	*words += 1;
	return CL_SUCCESS;
}

CL_API_ENTRY cl_context CL_API_CALL clCreateContext(const cl_context_properties *properties, cl_uint n,
	const cl_device_id *list, void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data,
	cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	size_t words;
	*rc = check_properties(properties, &words);
	if (*rc == CL_SUCCESS && (n == 0 || list == NULL || (notify == NULL && data != NULL))) {
		*rc = CL_INVALID_VALUE;
	}
	for (cl_uint i = 0; i < n && *rc == CL_SUCCESS; i++) {
		if (!hfcl_is(list[i], DEVICE)) {
			*rc = CL_INVALID_DEVICE;
		} else if (list[i] != list[0]) {
			*rc = CL_OUT_OF_RESOURCES; /* a context has one device */
		}
	}
	if (*rc != CL_SUCCESS) {
		return NULL;
	}
	cl_context c = calloc(1, sizeof *c);
	if (c != NULL && words > 0) {
		c->properties_size = words * sizeof *properties;
		c->properties = malloc(c->properties_size);
	}
	if (c == NULL || (words > 0 && c->properties == NULL)) {
		free(c);
		*rc = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	if (words > 0) {
		memcpy(c->properties, properties, c->properties_size);
	}
	hfcl_init(&c->o, CONTEXT);
	c->device = list[0];
	return c;
}

CL_API_ENTRY cl_context CL_API_CALL clCreateContextFromType(const cl_context_properties *properties,
	cl_device_type type, void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data,
	cl_int *rc_ret) {
	cl_device_id first;
	cl_int rc = clGetDeviceIDs(&platform, type, 1, &first, NULL);
	if (rc != CL_SUCCESS) {
		if (rc_ret != NULL) {
			*rc_ret = rc;
		}
		return NULL;
	}
	return clCreateContext(properties, 1, &first, notify, data, rc_ret);
}

CL_API_ENTRY cl_int CL_API_CALL clRetainContext(cl_context c) {
	if (!hfcl_is(c, CONTEXT)) {
		return CL_INVALID_CONTEXT;
	}
	hfcl_retain(c);
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clReleaseContext(cl_context c) {
	if (!hfcl_is(c, CONTEXT)) {
		return CL_INVALID_CONTEXT;
	}
	if (hfcl_drop(c)) {
		free(c->properties);
		free(c);
	}
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clGetContextInfo(cl_context c, cl_context_info what, size_t room, void *to,
	size_t *size_ret) {
	if (!hfcl_is(c, CONTEXT)) {
		return CL_INVALID_CONTEXT;
	}
	switch (what) {
	case CL_CONTEXT_REFERENCE_COUNT:
		return ANSWER(cl_uint, atomic_load(&c->o.refs));
	case CL_CONTEXT_NUM_DEVICES:
		return ANSWER(cl_uint, 1);
	case CL_CONTEXT_DEVICES:
		return ANSWER(cl_device_id, c->device);
	case CL_CONTEXT_PROPERTIES:
		return hfcl_answer(c->properties, c->properties_size, room, to, size_ret);
	default:
		return CL_INVALID_VALUE;
	}
}
