/* Contexts, and the call-backs at their end. */
#include "hfcl.h"

cl_uint hfcl_device_index(cl_context c, cl_device_id d) {
	cl_uint i = 0;
	while (i < c->count && c->devices[i] != d) {
		i++;
	}
	return i;
}

/* hfcl_check_devices looks at a list of devices of a context; an empty one stands for all. */
cl_int hfcl_check_devices(cl_context c, cl_uint n, const cl_device_id *list) {
	if ((n == 0) != (list == NULL)) {
		return CL_INVALID_VALUE;
	}
	for (cl_uint i = 0; i < n; i++) {
		if (hfcl_device_index(c, list[i]) == c->count) {
			return CL_INVALID_DEVICE;
		}
	}
	return CL_SUCCESS;
}

/* hfcl_goodbye enters a function to call; false without memory. */
bool hfcl_goodbye(pthread_mutex_t *lock, struct goodbye **list, void(CL_CALLBACK *call)(void *, void *), void *data) {
	struct goodbye *g = malloc(sizeof *g);
	if (g == NULL) {
		return false;
	}
	pthread_mutex_lock(lock);
	*g = (struct goodbye){ *list, call, data };
	*list = g;
	pthread_mutex_unlock(lock);
	return true;
}

/* hfcl_say_goodbye calls all, newest first, and frees the list. */
void hfcl_say_goodbye(struct goodbye *list, void *handle) {
	while (list != NULL) {
		struct goodbye *g = list;
		list = g->next;
		g->call(handle, g->data);
		free(g);
	}
}

/* check_properties looks at a list for a context, and says how many words it has. */
static cl_int check_properties(const cl_context_properties *list, size_t *words) {
	*words = 0;
	if (list == NULL) {
		return CL_SUCCESS;
	}
	for (; list[*words] != 0; *words += 2) {
		for (size_t i = 0; i < *words; i += 2) {
			if (list[i] == list[*words]) {
				return CL_INVALID_PROPERTY; /* twice */
			}
		}
		switch (list[*words]) {
		case CL_CONTEXT_PLATFORM:
			if (list[*words + 1] != (cl_context_properties)&hfcl_platform) {
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

/* Contexts whose program wants errors reported. */
static struct {
	pthread_mutex_t lock;
	cl_context first;
} listeners = { PTHREAD_MUTEX_INITIALIZER, NULL };

static void listen(cl_context c) {
	pthread_mutex_lock(&listeners.lock);
	c->next = listeners.first;
	c->linked = &listeners.first;
	if (c->next != NULL) {
		c->next->linked = &c->next;
	}
	listeners.first = c;
	pthread_mutex_unlock(&listeners.lock);
}

static void listen_no_more(cl_context c) {
	pthread_mutex_lock(&listeners.lock);
	if (c->linked != NULL) {
		*c->linked = c->next;
		if (c->next != NULL) {
			c->next->linked = c->linked;
		}
	}
	pthread_mutex_unlock(&listeners.lock);
}

static bool has_lost(cl_context c) {
	bool lost = hfcl_lost();
	for (cl_uint i = 0; i < c->count; i++) {
		lost = lost || atomic_load(&c->devices[i]->lost);
	}
	return lost;
}

/* report_loss calls the program; it has a reference to the context. */
static void report_loss(void *context) {
	cl_context c = context;
	c->notify(hfcl_lost()
			? "CL_DEVICE_NOT_AVAILABLE: the holdfast command that serves this program has ended, and all devices and "
			  "objects are lost. Calls and waits fail: start the program again, from its last checkpoint if it has one."
			: "CL_DEVICE_NOT_AVAILABLE: the GPU server of a device of this context is lost, and its objects with it. "
			  "Commands and waits fail: start the program again, from its last checkpoint if it has one.",
		NULL, 0, c->notify_data);
	clReleaseContext(c);
}

/* retain_living takes a reference, unless the last one has gone already. */
static bool retain_living(struct object *o) {
	cl_uint refs = atomic_load(&o->refs);
	while (refs > 0) {
		if (atomic_compare_exchange_weak(&o->refs, &refs, refs + 1)) {
			return true;
		}
	}
	return false;
}

/* notify_once reports a loss to the program, if it concerns the context and was not reported before. */
static void notify_once(cl_context c) {
	if (has_lost(c) && !atomic_exchange(&c->notified, true)) {
		if (retain_living(&c->o)) {
			hfcl_call_later(report_loss, c);
		}
	}
}

void hfcl_report_loss(void) {
	pthread_mutex_lock(&listeners.lock);
	for (cl_context c = listeners.first; c != NULL; c = c->next) {
		notify_once(c);
	}
	pthread_mutex_unlock(&listeners.lock);
}

static void free_context(cl_context c) {
	pthread_mutex_destroy(&c->lock);
	free(c->properties);
	free(c->devices);
	free(c);
}

/* new_context makes one of the devices of a list, each of which counts once; NULL without memory. */
static cl_context new_context(
	const cl_context_properties *properties, size_t words, cl_uint n, const cl_device_id *list) {
	cl_context c = calloc(1, sizeof *c);
	if (c == NULL) {
		return NULL;
	}
	hfcl_init(&c->o, CONTEXT);
	pthread_mutex_init(&c->lock, NULL);
	c->devices = calloc(n, sizeof *list);
	c->properties_size = words * sizeof *properties;
	c->properties = malloc(c->properties_size + 1);
	if (c->devices == NULL || c->properties == NULL) {
		free_context(c);
		return NULL;
	}
	if (words > 0) {
		memcpy(c->properties, properties, c->properties_size);
	}
	for (cl_uint i = 0; i < n; i++) {
		if (hfcl_device_index(c, list[i]) == c->count) {
			c->devices[c->count++] = list[i];
		}
	}
	return c;
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
		*rc = hfcl_is(list[i], DEVICE) ? CL_SUCCESS : CL_INVALID_DEVICE;
	}
	cl_context c = *rc == CL_SUCCESS ? new_context(properties, words, n, list) : NULL;
	if (c == NULL) {
		*rc = *rc == CL_SUCCESS ? CL_OUT_OF_HOST_MEMORY : *rc;
		return NULL;
	}
	struct call m;
	hfcl_begin(&m, HFCL_CONTEXT);
	hfcl_put64(&m, c->o.id);
	hfcl_put32(&m, c->count);
	for (cl_uint i = 0; i < c->count; i++) {
		hfcl_put64(&m, c->devices[i]->o.id);
	}
	*rc = hfcl_run(&m, NULL, NULL);
	hfcl_end(&m);
	if (*rc != CL_SUCCESS) {
		free_context(c);
		return NULL;
	}
	if (notify != NULL) {
		c->notify = notify;
		c->notify_data = data;
		listen(c);
		notify_once(c); /* of a loss that came before it was in the list */
	}
	return c;
}

CL_API_ENTRY cl_context CL_API_CALL clCreateContextFromType(const cl_context_properties *properties,
	cl_device_type type, void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data,
	cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	cl_uint n = 0;
	*rc = clGetDeviceIDs(&hfcl_platform, type, 0, NULL, &n);
	cl_device_id *list = *rc == CL_SUCCESS ? calloc(n, sizeof *list) : NULL;
	if (list == NULL) {
		*rc = *rc == CL_SUCCESS ? CL_OUT_OF_HOST_MEMORY : *rc;
		return NULL;
	}
	clGetDeviceIDs(&hfcl_platform, type, n, list, NULL);
	cl_context c = clCreateContext(properties, n, list, notify, data, rc);
	free(list);
	return c;
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
		listen_no_more(c);
		hfcl_say_goodbye(c->goodbyes, c);
		hfcl_release(c->o.id);
		free_context(c);
	}
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clGetContextInfo(
	cl_context c, cl_context_info what, size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(c, CONTEXT)) {
		return CL_INVALID_CONTEXT;
	}
	switch (what) {
	case CL_CONTEXT_REFERENCE_COUNT:
		return ANSWER(cl_uint, atomic_load(&c->o.refs));
	case CL_CONTEXT_NUM_DEVICES:
		return ANSWER(cl_uint, c->count);
	case CL_CONTEXT_DEVICES:
		return hfcl_answer(c->devices, c->count * sizeof *c->devices, room, to, size_ret);
	case CL_CONTEXT_PROPERTIES:
		return hfcl_answer(c->properties, c->properties_size, room, to, size_ret);
	default:
		return CL_INVALID_VALUE;
	}
}

CL_API_ENTRY cl_int CL_API_CALL clSetContextDestructorCallback(
	cl_context c, void(CL_CALLBACK *call)(cl_context, void *), void *data) {
	if (!hfcl_is(c, CONTEXT)) {
		return CL_INVALID_CONTEXT;
	}
	if (call == NULL) {
		return CL_INVALID_VALUE;
	}
	return hfcl_goodbye(&c->lock, &c->goodbyes, (void(CL_CALLBACK *)(void *, void *))call, data)
		? CL_SUCCESS
		: CL_OUT_OF_HOST_MEMORY;
}
