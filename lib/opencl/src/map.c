/* Mappings. The host sees an object in memory of its own: the program's for USE_HOST_PTR, otherwise the library's, of
   buffers an area that the server maps too, as
   large as the object and in one piece, so that a byte has the same address at each mapping. A mapping for reading
   reads the object into it, the end of one for writing writes it back. */
#define _DEFAULT_SOURCE
#include "hfcl.h"

#include <sys/mman.h>

/* share_shadow lets the device know a shadow that is worth it: all its pages are made then. */
static void share_shadow(cl_command_queue q, cl_mem m, size_t mapped) {
	bool worth = (m->flags & CL_MEM_ALLOC_HOST_PTR) != 0 || mapped >= m->size / 2;
	pthread_mutex_lock(&m->lock);
	bool now = worth && m->area != NULL && !m->area_shared;
	m->area_shared = m->area_shared || now;
	pthread_mutex_unlock(&m->lock);
	if (now) {
		hfcl_area_share(m->area, q->device->o.id);
	}
}

/* shadow_of gives where the host sees the object, NULL without memory; untouched pages cost nothing. */
static char *shadow_of(cl_mem m, size_t size) {
	pthread_mutex_lock(&m->lock);
	if (m->shadow == NULL && m->host != NULL) {
		m->shadow = m->host;
	}
	if (m->shadow == NULL && !hfcl_is_image(m) && (m->area = hfcl_area(size)) != NULL) {
		m->shadow = m->area->at;
	}
	if (m->shadow == NULL) {
		void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p != MAP_FAILED) {
			m->shadow = p;
			m->shadow_size = size;
			m->shadow_owned = true;
		}
	}
	char *shadow = m->shadow;
	pthread_mutex_unlock(&m->lock);
	return shadow;
}

static cl_int check_map(cl_command_queue q, cl_mem m, cl_map_flags flags) {
	const cl_map_flags all = CL_MAP_READ | CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
	if (hfcl_check_queue(q) != CL_SUCCESS) {
		return CL_INVALID_COMMAND_QUEUE;
	}
	if (!hfcl_is(m, MEM)) {
		return CL_INVALID_MEM_OBJECT;
	}
	if (m->context != q->context) {
		return CL_INVALID_CONTEXT;
	}
	if ((flags & ~all) != 0 ||
		((flags & CL_MAP_WRITE_INVALIDATE_REGION) != 0 && flags != CL_MAP_WRITE_INVALIDATE_REGION)) {
		return CL_INVALID_VALUE;
	}
	bool reads = (flags & CL_MAP_READ) != 0, writes = (flags & ~(cl_map_flags)CL_MAP_READ) != 0;
	if ((m->flags & CL_MEM_HOST_NO_ACCESS) != 0 || (reads && (m->flags & CL_MEM_HOST_WRITE_ONLY) != 0) ||
		(writes && (m->flags & CL_MEM_HOST_READ_ONLY) != 0)) {
		return CL_INVALID_OPERATION;
	}
	return CL_SUCCESS;
}

/* remember enters a mapping, NULL without memory. */
static struct mapping *remember(cl_mem m, char *at, cl_map_flags flags, const size_t *origin, const size_t *region) {
	struct mapping *p = malloc(sizeof *p);
	if (p == NULL) {
		return NULL;
	}
	*p = (struct mapping){ .at = at, .flags = flags };
	memcpy(p->origin, origin, sizeof p->origin);
	memcpy(p->region, region, sizeof p->region);
	pthread_mutex_lock(&m->lock);
	p->next = m->mappings;
	m->mappings = p;
	atomic_fetch_add(&hfcl_mapped, 1);
	pthread_mutex_unlock(&m->lock);
	return p;
}

/* take takes the newest mapping at an address out, NULL where there is none. */
static struct mapping *take(cl_mem m, const char *at) {
	pthread_mutex_lock(&m->lock);
	struct mapping **p = &m->mappings;
	while (*p != NULL && (*p)->at != at) {
		p = &(*p)->next;
	}
	struct mapping *found = *p;
	if (found != NULL) {
		*p = found->next;
		atomic_fetch_sub(&hfcl_mapped, 1);
	}
	pthread_mutex_unlock(&m->lock);
	return found;
}

static void image_rows(cl_mem m, const size_t *origin, const size_t *region, struct rows *r) {
	size_t row = m->desc.image_row_pitch, slice = m->desc.image_slice_pitch;
	bool lines = m->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
	char *at = m->shadow + origin[2] * slice + origin[1] * (lines ? slice : row) + origin[0] * m->pixel;
	*r = hfcl_pixel_rows(m, at, region, row, slice);
}

/* move moves the bytes of a mapping, or only gives an event if none are to be moved and the program wants one. */
static cl_int move(cl_command_queue q, cl_mem m, cl_command_type type, bool write, bool bytes, cl_bool blocking,
	const struct mapping *p, cl_uint n, const cl_event *waits, cl_event *event) {
	if (!bytes && !blocking && event == NULL && n == 0 && waits == NULL && !hfcl_ring_device_lost() && !hfcl_lost()) {
		return CL_SUCCESS;
	}
	if (!bytes) {
		struct command c;
		cl_event done = NULL;
		cl_int rc = hfcl_command(&c, HFCL_MARKER, type, q, n, waits, blocking ? &done : event, false);
		if (rc != CL_SUCCESS) {
			return rc;
		}
		hfcl_put32(&c.call, HFCL_ALONE);
		rc = hfcl_submit(&c);
		if (done != NULL) {
			rc = clWaitForEvents(1, &done);
			if (rc == CL_SUCCESS && event != NULL) {
				*event = done;
			} else {
				clReleaseEvent(done);
			}
		}
		return rc;
	}
	if (!hfcl_is_image(m)) {
		return hfcl_transfer_range(
			q, m, type, write, blocking != CL_FALSE, p->origin[0], p->region[0], p->at, n, waits, event);
	}
	struct rows host;
	image_rows(m, p->origin, p->region, &host);
	return hfcl_transfer_pixels(q, m, type, write, blocking != CL_FALSE, p->origin, p->region, &host, n, waits, event);
}

static void *map(cl_command_queue q, cl_mem m, cl_command_type type, cl_bool blocking, cl_map_flags flags, char *at,
	const size_t *origin, const size_t *region, cl_uint n, const cl_event *waits, cl_event *event, cl_int *rc) {
	struct mapping *p = remember(m, at, flags, origin, region);
	if (p == NULL) {
		*rc = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	struct mapping copy = *p;
	*rc = move(q, m, type, false, (flags & CL_MAP_WRITE_INVALIDATE_REGION) == 0, blocking, &copy, n, waits, event);
	if (*rc != CL_SUCCESS) {
		free(take(m, at));
		return NULL;
	}
	return at;
}

CL_API_ENTRY void *CL_API_CALL clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, cl_map_flags flags,
	size_t offset, size_t size, cl_uint n, const cl_event *waits, cl_event *event, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	*rc = check_map(q, m, flags);
	if (*rc == CL_SUCCESS && hfcl_is_image(m)) {
		*rc = CL_INVALID_MEM_OBJECT;
	}
	if (*rc == CL_SUCCESS && (size == 0 || offset > m->size || size > m->size - offset)) {
		*rc = CL_INVALID_VALUE;
	}
	if (*rc != CL_SUCCESS) {
		return NULL;
	}
	char *shadow = shadow_of(m, m->size);
	if (shadow == NULL) {
		*rc = CL_MAP_FAILURE;
		return NULL;
	}
	share_shadow(q, m, size);
	const size_t origin[3] = { offset, 0, 0 }, region[3] = { size, 1, 1 };
	return map(q, m, CL_COMMAND_MAP_BUFFER, blocking, flags, shadow + offset, origin, region, n, waits, event, rc);
}

CL_API_ENTRY void *CL_API_CALL clEnqueueMapImage(cl_command_queue q, cl_mem m, cl_bool blocking, cl_map_flags flags,
	const size_t *origin, const size_t *region, size_t *row_pitch, size_t *slice_pitch, cl_uint n,
	const cl_event *waits, cl_event *event, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	*rc = check_map(q, m, flags);
	if (*rc == CL_SUCCESS && !hfcl_is_image(m)) {
		*rc = CL_INVALID_MEM_OBJECT;
	}
	if (*rc != CL_SUCCESS) {
		return NULL;
	}
	size_t extent[3];
	hfcl_image_extent(m, extent);
	bool slices = m->desc.image_slice_pitch != 0;
	*rc = origin == NULL || region == NULL || row_pitch == NULL || (slices && slice_pitch == NULL) ? CL_INVALID_VALUE
																								   : CL_SUCCESS;
	for (int i = 0; i < 3 && *rc == CL_SUCCESS; i++) {
		if (region[i] == 0 || origin[i] > extent[i] || region[i] > extent[i] - origin[i]) {
			*rc = CL_INVALID_VALUE;
		}
	}
	if (*rc != CL_SUCCESS) {
		return NULL;
	}
	size_t last = m->desc.image_slice_pitch != 0 ? m->desc.image_slice_pitch * (extent[1] * extent[2]) : m->size;
	if (shadow_of(m, last) == NULL) {
		*rc = CL_MAP_FAILURE;
		return NULL;
	}
	struct rows host;
	image_rows(m, origin, region, &host);
	*row_pitch = m->desc.image_row_pitch;
	if (slice_pitch != NULL) {
		*slice_pitch = m->desc.image_slice_pitch;
	}
	return map(q, m, CL_COMMAND_MAP_IMAGE, blocking, flags, host.at, origin, region, n, waits, event, rc);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueUnmapMemObject(
	cl_command_queue q, cl_mem m, void *at, cl_uint n, const cl_event *waits, cl_event *event) {
	if (hfcl_check_queue(q) != CL_SUCCESS) {
		return CL_INVALID_COMMAND_QUEUE;
	}
	if (!hfcl_is(m, MEM)) {
		return CL_INVALID_MEM_OBJECT;
	}
	if (m->context != q->context) {
		return CL_INVALID_CONTEXT;
	}
	struct mapping *p = at == NULL ? NULL : take(m, at);
	if (p == NULL) {
		return CL_INVALID_VALUE;
	}
	bool wrote = (p->flags & ~(cl_map_flags)CL_MAP_READ) != 0;
	cl_int rc = move(q, m, CL_COMMAND_UNMAP_MEM_OBJECT, true, wrote, CL_FALSE, p, n, waits, event);
	if (rc != CL_SUCCESS) { /* it is still mapped */
		pthread_mutex_lock(&m->lock);
		p->next = m->mappings;
		m->mappings = p;
		atomic_fetch_add(&hfcl_mapped, 1);
		pthread_mutex_unlock(&m->lock);
		return rc;
	}
	free(p);
	return CL_SUCCESS;
}
