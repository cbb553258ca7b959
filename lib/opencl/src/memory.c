/* Memory objects: buffers, ranges of them, images; samplers. */
#include "hfcl.h"

#include <sys/mman.h>

enum { ACCESS = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY };
enum { HOST_ACCESS = CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS };
enum { HOST_MEMORY = CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR };

static bool at_most_one(cl_mem_flags f) { return (f & (f - 1)) == 0; }

cl_int hfcl_check_flags(cl_mem_flags f, const void *host) {
	if ((f & ~(cl_mem_flags)(ACCESS | HOST_ACCESS | HOST_MEMORY)) != 0 || !at_most_one(f & ACCESS) ||
		!at_most_one(f & HOST_ACCESS)) {
		return CL_INVALID_VALUE;
	}
	if ((f & CL_MEM_USE_HOST_PTR) != 0 && (f & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0) {
		return CL_INVALID_VALUE;
	}
	bool wants = (f & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0;
	return wants == (host != NULL) ? CL_SUCCESS : CL_INVALID_HOST_PTR;
}

/* hfcl_access_of is 0 for both, 1 for kernels that only read, 2 that only write. */
uint32_t hfcl_access_of(cl_mem_flags f) {
	return (f & CL_MEM_READ_ONLY) != 0 ? 1 : (f & CL_MEM_WRITE_ONLY) != 0 ? 2 : 0;
}

cl_mem hfcl_new_mem(cl_context context, cl_mem_object_type type, cl_mem_flags flags, size_t size, void *host) {
	cl_mem m = calloc(1, sizeof *m);
	if (m == NULL) {
		return NULL;
	}
	hfcl_init(&m->o, MEM);
	m->context = context;
	m->type = type;
	m->flags = (flags & ACCESS) != 0 ? flags : flags | CL_MEM_READ_WRITE;
	m->size = size;
	if ((flags & CL_MEM_USE_HOST_PTR) != 0) {
		m->host = host;
	}
	pthread_mutex_init(&m->lock, NULL);
	return m;
}

/* hfcl_made_mem finishes the creation of an object whose message is c. */
cl_mem hfcl_made_mem(cl_mem m, struct call *c, const struct rows *out, cl_int *rc) {
	if (out != NULL) {
		hfcl_wait_for_reads(out);
	}
	*rc = hfcl_run(c, out, NULL);
	hfcl_end(c);
	if (*rc != CL_SUCCESS) {
		pthread_mutex_destroy(&m->lock);
		free(m);
		return NULL;
	}
	hfcl_retain(m->context);
	if (m->parent != NULL) {
		hfcl_retain(m->parent);
	}
	hfcl_list(m);
	return m;
}

static cl_int check_size(cl_context context, size_t size) {
	for (cl_uint i = 0; i < context->count; i++) { /* each device has a copy of its own */
		cl_ulong largest;
		if (clGetDeviceInfo(context->devices[i], CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof largest, &largest, NULL) !=
			CL_SUCCESS) {
			return hfcl_lost() ? CL_DEVICE_NOT_AVAILABLE : CL_SUCCESS;
		}
		if (size > largest) {
			return CL_INVALID_BUFFER_SIZE;
		}
	}
	return size == 0 ? CL_INVALID_BUFFER_SIZE : CL_SUCCESS;
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateBuffer(
	cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	*rc = hfcl_is(context, CONTEXT) ? hfcl_check_flags(flags, host) : CL_INVALID_CONTEXT;
	if (*rc == CL_SUCCESS) {
		*rc = check_size(context, size);
	}
	if (*rc != CL_SUCCESS) {
		return NULL;
	}
	cl_mem m = hfcl_new_mem(context, CL_MEM_OBJECT_BUFFER, flags, size, host);
	if (m == NULL) {
		*rc = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	struct call c;
	hfcl_begin(&c, HFCL_CREATE_BUFFER);
	hfcl_put64(&c, m->o.id);
	hfcl_put64(&c, context->o.id);
	hfcl_put32(&c, hfcl_access_of(flags));
	hfcl_put64(&c, size);
	struct rows all = hfcl_linear(host, size);
	return hfcl_made_mem(m, &c, host == NULL ? NULL : &all, rc);
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateBufferWithProperties(
	cl_context context, const cl_mem_properties *list, cl_mem_flags flags, size_t size, void *host, cl_int *rc) {
	if (list != NULL && list[0] != 0) {
		if (rc != NULL) {
			*rc = CL_INVALID_PROPERTY;
		}
		return NULL;
	}
	return clCreateBuffer(context, flags, size, host, rc);
}

/* check_alignment: each device has the range as an object of its own. */
static cl_int check_alignment(cl_context context, size_t origin) {
	for (cl_uint i = 0; i < context->count; i++) {
		cl_uint bits = 0;
		clGetDeviceInfo(context->devices[i], CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof bits, &bits, NULL);
		if (bits >= 8 && origin % (bits / 8) != 0) {
			return CL_MISALIGNED_SUB_BUFFER_OFFSET;
		}
	}
	return CL_SUCCESS;
}

/* host_allows reports whether the flags of a range give the host no more access than those of the whole. */
static bool host_allows(cl_mem_flags whole, cl_mem_flags range) {
	return whole == 0 || range == 0 || range == whole || range == CL_MEM_HOST_NO_ACCESS;
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateSubBuffer(
	cl_mem parent, cl_mem_flags flags, cl_buffer_create_type type, const void *info, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	if (!hfcl_is(parent, MEM) || parent->type != CL_MEM_OBJECT_BUFFER || parent->parent != NULL) {
		*rc = CL_INVALID_MEM_OBJECT;
		return NULL;
	}
	const cl_buffer_region *r = info;
	if (type != CL_BUFFER_CREATE_TYPE_REGION || r == NULL || (flags & HOST_MEMORY) != 0 ||
		hfcl_check_flags(flags, NULL) != CL_SUCCESS || r->origin > parent->size || r->size > parent->size - r->origin ||
		((flags & ACCESS) != 0 && (parent->flags & CL_MEM_READ_WRITE) == 0 &&
			(flags & ACCESS) != (parent->flags & ACCESS)) ||
		!host_allows(parent->flags & HOST_ACCESS, flags & HOST_ACCESS)) {
		*rc = CL_INVALID_VALUE;
		return NULL;
	}
	*rc = r->size == 0 ? CL_INVALID_BUFFER_SIZE : check_alignment(parent->context, r->origin);
	if (*rc != CL_SUCCESS) {
		return NULL;
	}
	if ((flags & ACCESS) == 0) {
		flags |= parent->flags & ACCESS;
	}
	if ((flags & HOST_ACCESS) == 0) {
		flags |= parent->flags & HOST_ACCESS;
	}
	flags |= parent->flags & HOST_MEMORY;
	cl_mem m = hfcl_new_mem(parent->context, CL_MEM_OBJECT_BUFFER, flags, r->size, NULL);
	if (m == NULL) {
		*rc = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	m->parent = parent;
	m->offset = r->origin;
	m->host = parent->host == NULL ? NULL : (char *)parent->host + r->origin;
	struct call c;
	hfcl_begin(&c, HFCL_CREATE_SUB);
	hfcl_put64(&c, m->o.id);
	hfcl_put64(&c, parent->o.id);
	hfcl_put32(&c, hfcl_access_of(flags));
	hfcl_put64(&c, r->origin);
	hfcl_put64(&c, r->size);
	return hfcl_made_mem(m, &c, NULL, rc);
}

CL_API_ENTRY cl_int CL_API_CALL clRetainMemObject(cl_mem m) {
	if (!hfcl_is(m, MEM)) {
		return CL_INVALID_MEM_OBJECT;
	}
	hfcl_retain(m);
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clReleaseMemObject(cl_mem m) {
	if (!hfcl_is(m, MEM)) {
		return CL_INVALID_MEM_OBJECT;
	}
	if (!hfcl_drop(m)) {
		return CL_SUCCESS;
	}
	hfcl_release(m->o.id); /* when the commands that use it are complete */
	while (m->destructors != NULL) {
		struct destructor *d = m->destructors;
		m->destructors = d->next;
		d->call(m, d->data);
		free(d);
	}
	while (m->mappings != NULL) {
		struct mapping *p = m->mappings;
		m->mappings = p->next;
		atomic_fetch_sub(&hfcl_mapped, 1);
		free(p);
	}
	if (m->shadow_owned) {
		munmap(m->shadow, m->shadow_size);
	}
	if (m->area != NULL) {
		hfcl_area_end(m->area);
	}
	if (m->parent != NULL) {
		clReleaseMemObject(m->parent);
	}
	clReleaseContext(m->context);
	pthread_mutex_destroy(&m->lock);
	free(m);
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clSetMemObjectDestructorCallback(
	cl_mem m, void(CL_CALLBACK *call)(cl_mem, void *), void *data) {
	if (!hfcl_is(m, MEM)) {
		return CL_INVALID_MEM_OBJECT;
	}
	if (call == NULL) {
		return CL_INVALID_VALUE;
	}
	struct destructor *d = malloc(sizeof *d);
	if (d == NULL) {
		return CL_OUT_OF_HOST_MEMORY;
	}
	pthread_mutex_lock(&m->lock);
	*d = (struct destructor){ m->destructors, call, data };
	m->destructors = d;
	pthread_mutex_unlock(&m->lock);
	return CL_SUCCESS;
}

static cl_uint count_mappings(cl_mem m) {
	cl_uint n = 0;
	pthread_mutex_lock(&m->lock);
	for (struct mapping *p = m->mappings; p != NULL; p = p->next) {
		n++;
	}
	pthread_mutex_unlock(&m->lock);
	return n;
}

CL_API_ENTRY cl_int CL_API_CALL clGetMemObjectInfo(
	cl_mem m, cl_mem_info what, size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(m, MEM)) {
		return CL_INVALID_MEM_OBJECT;
	}
	switch (what) {
	case CL_MEM_TYPE:
		return ANSWER(cl_mem_object_type, m->type);
	case CL_MEM_FLAGS:
		return ANSWER(cl_mem_flags, m->flags);
	case CL_MEM_SIZE:
		return ANSWER(size_t, m->size);
	case CL_MEM_HOST_PTR:
		return ANSWER(void *, m->host);
	case CL_MEM_MAP_COUNT:
		return ANSWER(cl_uint, count_mappings(m));
	case CL_MEM_REFERENCE_COUNT:
		return ANSWER(cl_uint, atomic_load(&m->o.refs));
	case CL_MEM_CONTEXT:
		return ANSWER(cl_context, m->context);
	case CL_MEM_ASSOCIATED_MEMOBJECT:
		return ANSWER(cl_mem, m->parent);
	case CL_MEM_OFFSET:
		return ANSWER(size_t, m->offset);
	default:
		return CL_INVALID_VALUE;
	}
}

CL_API_ENTRY cl_sampler CL_API_CALL clCreateSampler(
	cl_context context, cl_bool normalized, cl_addressing_mode addressing, cl_filter_mode filter, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	if (!hfcl_is(context, CONTEXT)) {
		*rc = CL_INVALID_CONTEXT;
		return NULL;
	}
	bool wraps = addressing == CL_ADDRESS_REPEAT || addressing == CL_ADDRESS_MIRRORED_REPEAT;
	if (normalized > CL_TRUE || addressing < CL_ADDRESS_NONE || addressing > CL_ADDRESS_MIRRORED_REPEAT ||
		(filter != CL_FILTER_NEAREST && filter != CL_FILTER_LINEAR) || (wraps && !normalized)) {
		*rc = CL_INVALID_VALUE;
		return NULL;
	}
	cl_sampler s = calloc(1, sizeof *s);
	if (s == NULL) {
		*rc = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	hfcl_init(&s->o, SAMPLER);
	s->context = context;
	s->normalized = normalized;
	s->addressing = addressing;
	s->filter = filter;
	struct call c;
	hfcl_begin(&c, HFCL_CREATE_SAMPLER);
	hfcl_put64(&c, s->o.id);
	hfcl_put64(&c, context->o.id);
	hfcl_put32(&c, normalized);
	hfcl_put32(&c, addressing);
	hfcl_put32(&c, filter);
	*rc = hfcl_run(&c, NULL, NULL);
	hfcl_end(&c);
	if (*rc != CL_SUCCESS) {
		free(s);
		return NULL;
	}
	hfcl_retain(context);
	hfcl_list(s);
	return s;
}

/* The properties of a sampler. */
struct sampler_properties {
	cl_sampler_properties normalized, addressing, filter;
	size_t words; /* of the list, with the 0 that ends it */
};

/* read_properties reads a list, in which each name is at most once. */
static bool read_properties(const cl_sampler_properties *list, struct sampler_properties *p) {
	*p = (struct sampler_properties){ CL_TRUE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, 0 };
	if (list == NULL) {
		return true;
	}
	bool seen[3] = { false, false, false };
	size_t n = 0;
	for (; list[n] != 0; n += 2) {
		size_t which = (size_t)(list[n] - CL_SAMPLER_NORMALIZED_COORDS);
		if (which >= 3 || seen[which] || list[n + 1] > UINT32_MAX) {
			return false;
		}
		seen[which] = true;
		*(which == 0 ? &p->normalized : which == 1 ? &p->addressing : &p->filter) = list[n + 1];
	}
	p->words = n + 1;
	return true;
}

CL_API_ENTRY cl_sampler CL_API_CALL clCreateSamplerWithProperties(
	cl_context context, const cl_sampler_properties *list, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	struct sampler_properties p;
	*rc = !hfcl_is(context, CONTEXT) ? CL_INVALID_CONTEXT : read_properties(list, &p) ? CL_SUCCESS : CL_INVALID_VALUE;
	if (*rc != CL_SUCCESS) {
		return NULL;
	}
	cl_sampler s =
		clCreateSampler(context, (cl_bool)p.normalized, (cl_addressing_mode)p.addressing, (cl_filter_mode)p.filter, rc);
	if (s != NULL && list != NULL) {
		s->list_size = p.words * sizeof *list;
		memcpy(s->list, list, s->list_size);
	}
	return s;
}

CL_API_ENTRY cl_int CL_API_CALL clRetainSampler(cl_sampler s) {
	if (!hfcl_is(s, SAMPLER)) {
		return CL_INVALID_SAMPLER;
	}
	hfcl_retain(s);
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clReleaseSampler(cl_sampler s) {
	if (!hfcl_is(s, SAMPLER)) {
		return CL_INVALID_SAMPLER;
	}
	if (hfcl_drop(s)) {
		hfcl_release(s->o.id);
		clReleaseContext(s->context);
		free(s);
	}
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clGetSamplerInfo(
	cl_sampler s, cl_sampler_info what, size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(s, SAMPLER)) {
		return CL_INVALID_SAMPLER;
	}
	switch (what) {
	case CL_SAMPLER_REFERENCE_COUNT:
		return ANSWER(cl_uint, atomic_load(&s->o.refs));
	case CL_SAMPLER_CONTEXT:
		return ANSWER(cl_context, s->context);
	case CL_SAMPLER_NORMALIZED_COORDS:
		return ANSWER(cl_bool, s->normalized);
	case CL_SAMPLER_ADDRESSING_MODE:
		return ANSWER(cl_addressing_mode, s->addressing);
	case CL_SAMPLER_FILTER_MODE:
		return ANSWER(cl_filter_mode, s->filter);
	case CL_SAMPLER_PROPERTIES:
		return hfcl_answer(s->list, s->list_size, room, to, size_ret);
	default:
		return CL_INVALID_VALUE;
	}
}
