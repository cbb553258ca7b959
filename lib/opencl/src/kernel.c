/* Kernels: arguments, needs, launches. */
#define _GNU_SOURCE
#include "hfcl.h"

static void free_kernel(cl_kernel k) {
	pthread_mutex_destroy(&k->lock);
	free(k->args);
	free(k->attributes);
	free(k->name);
	free(k);
}

CL_API_ENTRY cl_kernel CL_API_CALL clCreateKernel(cl_program p, const char *name, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	if (!hfcl_is(p, PROGRAM) || name == NULL) {
		*rc = name == NULL ? CL_INVALID_VALUE : CL_INVALID_PROGRAM;
		return NULL;
	}
	cl_kernel k = calloc(1, sizeof *k);
	if (k == NULL || (k->name = strdup(name)) == NULL) {
		free(k);
		*rc = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	hfcl_init(&k->o, KERNEL);
	pthread_mutex_init(&k->lock, NULL);
	k->program = p;
	pthread_mutex_lock(&p->lock);
	struct call c;
	hfcl_begin(&c, HFCL_CREATE_KERNEL);
	hfcl_put64(&c, k->o.id);
	hfcl_put64(&c, p->o.id);
	hfcl_put_bytes(&c, name, strlen(name));
	*rc = hfcl_built(p) ? hfcl_run(&c, NULL, NULL) : CL_INVALID_PROGRAM_EXECUTABLE;
	if (*rc == CL_SUCCESS) {
		k->count = hfcl_get32(&c);
		k->args = k->count > HFCL_MAX_LIST ? NULL : calloc(k->count + 1, sizeof *k->args);
		for (cl_uint i = 0; i < k->count && k->args != NULL; i++) {
			k->args[i].address = hfcl_get32(&c);
			k->args[i].takes = hfcl_get32(&c);
			k->args[i].bytes = hfcl_get32(&c);
		}
		k->attributes = hfcl_get_text(&c);
		*rc = c.failed || k->args == NULL || k->attributes == NULL ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS;
	}
	hfcl_end(&c);
	if (*rc == CL_SUCCESS) {
		p->live++;
		hfcl_retain(p);
	}
	pthread_mutex_unlock(&p->lock);
	if (*rc != CL_SUCCESS) {
		free_kernel(k);
		return NULL;
	}
	return k;
}

/* copy_of makes a kernel with this side's knowledge of another one, NULL without memory. */
static cl_kernel copy_of(cl_kernel from) {
	cl_kernel k = calloc(1, sizeof *k);
	if (k == NULL) {
		return NULL;
	}
	hfcl_init(&k->o, KERNEL);
	pthread_mutex_init(&k->lock, NULL);
	k->program = from->program;
	k->count = from->count;
	k->name = strdup(from->name);
	k->attributes = strdup(from->attributes);
	k->args = calloc(k->count + 1, sizeof *k->args);
	if (k->name == NULL || k->attributes == NULL || k->args == NULL) {
		free_kernel(k);
		return NULL;
	}
	pthread_mutex_lock(&from->lock);
	memcpy(k->args, from->args, k->count * sizeof *k->args);
	pthread_mutex_unlock(&from->lock);
	return k;
}

CL_API_ENTRY cl_kernel CL_API_CALL clCloneKernel(cl_kernel from, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	*rc = hfcl_is(from, KERNEL) ? CL_SUCCESS : CL_INVALID_KERNEL;
	cl_kernel k = *rc == CL_SUCCESS ? copy_of(from) : NULL;
	if (k == NULL) {
		*rc = *rc == CL_SUCCESS ? CL_OUT_OF_HOST_MEMORY : *rc;
		return NULL;
	}
	struct call c;
	hfcl_begin(&c, HFCL_CLONE_KERNEL);
	hfcl_put64(&c, k->o.id);
	hfcl_put64(&c, from->o.id);
	*rc = hfcl_run(&c, NULL, NULL);
	hfcl_end(&c);
	if (*rc != CL_SUCCESS) {
		free_kernel(k);
		return NULL;
	}
	pthread_mutex_lock(&k->program->lock);
	k->program->live++;
	pthread_mutex_unlock(&k->program->lock);
	hfcl_retain(k->program);
	return k;
}

CL_API_ENTRY cl_int CL_API_CALL clCreateKernelsInProgram(cl_program p, cl_uint room, cl_kernel *list, cl_uint *count) {
	if (!hfcl_is(p, PROGRAM)) {
		return CL_INVALID_PROGRAM;
	}
	pthread_mutex_lock(&p->lock);
	cl_uint n = p->kernels;
	char *names = hfcl_built(p) && p->names != NULL ? strdup(p->names) : NULL;
	pthread_mutex_unlock(&p->lock);
	if (names == NULL) {
		return CL_INVALID_PROGRAM_EXECUTABLE;
	}
	cl_int rc = list != NULL && room < n ? CL_INVALID_VALUE : CL_SUCCESS;
	char *rest = names;
	for (cl_uint i = 0; i < n && list != NULL && rc == CL_SUCCESS; i++) {
		list[i] = clCreateKernel(p, strsep(&rest, ";"), &rc);
		while (rc != CL_SUCCESS && i > 0) {
			clReleaseKernel(list[--i]);
		}
	}
	free(names);
	if (rc == CL_SUCCESS && count != NULL) {
		*count = n;
	}
	return rc;
}

CL_API_ENTRY cl_int CL_API_CALL clRetainKernel(cl_kernel k) {
	if (!hfcl_is(k, KERNEL)) {
		return CL_INVALID_KERNEL;
	}
	hfcl_retain(k);
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clReleaseKernel(cl_kernel k) {
	if (!hfcl_is(k, KERNEL)) {
		return CL_INVALID_KERNEL;
	}
	if (!hfcl_drop(k)) {
		return CL_SUCCESS;
	}
	hfcl_release(k->o.id);
	pthread_mutex_lock(&k->program->lock);
	k->program->live--;
	pthread_mutex_unlock(&k->program->lock);
	clReleaseProgram(k->program);
	free_kernel(k);
	return CL_SUCCESS;
}

/* ask_argument asks OpenCL about an argument; the caller frees the answer, NULL if there is none. */
static char *ask_argument(cl_kernel k, cl_uint i, uint32_t what, size_t *n, cl_int *rc) {
	struct call c;
	hfcl_begin(&c, HFCL_ARG_INFO);
	hfcl_put64(&c, k->o.id);
	hfcl_put32(&c, i);
	hfcl_put32(&c, what);
	*rc = hfcl_run(&c, NULL, NULL);
	const char *b = *rc == CL_SUCCESS ? hfcl_get_bytes(&c, n) : NULL;
	char *copy = b == NULL ? NULL : malloc(*n + 1);
	if (copy != NULL) {
		memcpy(copy, b, *n);
		copy[*n] = 0;
	}
	hfcl_end(&c);
	return copy;
}

CL_API_ENTRY cl_int CL_API_CALL clGetKernelArgInfo(
	cl_kernel k, cl_uint i, cl_kernel_arg_info what, size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(k, KERNEL)) {
		return CL_INVALID_KERNEL;
	}
	if (i >= k->count) {
		return CL_INVALID_ARG_INDEX;
	}
	if (what < CL_KERNEL_ARG_ADDRESS_QUALIFIER || what > CL_KERNEL_ARG_NAME) {
		return CL_INVALID_VALUE;
	}
	size_t n = 0;
	cl_int rc;
	char *b = ask_argument(k, i, what, &n, &rc);
	if (rc == CL_SUCCESS) {
		rc = b == NULL ? CL_OUT_OF_HOST_MEMORY : hfcl_answer(b, n, room, to, size_ret);
	}
	free(b);
	return rc;
}

CL_API_ENTRY cl_int CL_API_CALL clGetKernelInfo(
	cl_kernel k, cl_kernel_info what, size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(k, KERNEL)) {
		return CL_INVALID_KERNEL;
	}
	switch (what) {
	case CL_KERNEL_FUNCTION_NAME:
		return hfcl_answer_text(k->name, room, to, size_ret);
	case CL_KERNEL_NUM_ARGS:
		return ANSWER(cl_uint, k->count);
	case CL_KERNEL_REFERENCE_COUNT:
		return ANSWER(cl_uint, atomic_load(&k->o.refs));
	case CL_KERNEL_CONTEXT:
		return ANSWER(cl_context, k->program->context);
	case CL_KERNEL_PROGRAM:
		return ANSWER(cl_program, k->program);
	case CL_KERNEL_ATTRIBUTES:
		return hfcl_answer_text(k->attributes, room, to, size_ret);
	default:
		return CL_INVALID_VALUE;
	}
}

CL_API_ENTRY cl_int CL_API_CALL clGetKernelWorkGroupInfo(
	cl_kernel k, cl_device_id d, cl_kernel_work_group_info what, size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(k, KERNEL)) {
		return CL_INVALID_KERNEL;
	}
	cl_context context = k->program->context;
	if (d == NULL && context->count == 1) {
		d = context->devices[0];
	}
	if (hfcl_device_index(context, d) == context->count) {
		return CL_INVALID_DEVICE;
	}
	if (what < CL_KERNEL_WORK_GROUP_SIZE || what > CL_KERNEL_PRIVATE_MEM_SIZE) {
		return CL_INVALID_VALUE;
	}
	struct call c;
	hfcl_begin(&c, HFCL_WORK_GROUP);
	hfcl_put64(&c, k->o.id);
	hfcl_put64(&c, d->o.id);
	hfcl_put32(&c, what);
	cl_int rc = hfcl_run(&c, NULL, NULL);
	if (rc == CL_SUCCESS) {
		size_t n;
		const char *b = hfcl_get_bytes(&c, &n);
		rc = c.failed ? CL_DEVICE_NOT_AVAILABLE : hfcl_answer(b, n, room, to, size_ret);
	}
	hfcl_end(&c);
	return rc;
}

/* The bytes of an argument, its kind, and the object if it is one. */
struct value {
	uint32_t kind;
	const struct object *object;
	cl_int rc;
};

/* judge_handle judges an argument that the source says to be an image or a sampler. */
static struct value judge_handle(uint32_t takes, size_t size, const void *bytes) {
	const void *word = NULL;
	if (bytes == NULL || size != sizeof word) {
		return (struct value){ 0, NULL, bytes == NULL ? CL_INVALID_ARG_VALUE : CL_INVALID_ARG_SIZE };
	}
	memcpy(&word, bytes, sizeof word);
	if (takes == HFCL_TAKES_SAMPLER) {
		return hfcl_live(word, SAMPLER) ? (struct value){ HFCL_ARG_SAMPLER, word, CL_SUCCESS }
										: (struct value){ 0, NULL, CL_INVALID_SAMPLER };
	}
	const struct _cl_mem *m = word;
	if (!hfcl_live(word, MEM) || !hfcl_is_image(m)) {
		return (struct value){ 0, NULL, CL_INVALID_MEM_OBJECT };
	}
	cl_mem_flags wrong = takes == HFCL_TAKES_IMAGE_READ ? CL_MEM_WRITE_ONLY
		: takes == HFCL_TAKES_IMAGE_WRITE               ? CL_MEM_READ_ONLY
														: 0;
	return (struct value){ HFCL_ARG_MEM, word, (m->flags & wrong) != 0 ? CL_INVALID_ARG_VALUE : CL_SUCCESS };
}

/* judge finds the kind of an argument by its address space. If that is not enough, a word that is the handle of a
 * living object is one. */
static struct value judge(cl_kernel k, cl_uint i, size_t size, const void *bytes) {
	uint32_t address = k->args[i].address, takes = k->args[i].takes;
	if (takes >= HFCL_TAKES_SAMPLER) {
		return judge_handle(takes, size, bytes);
	}
	if (bytes == NULL && (address == CL_KERNEL_ARG_ADDRESS_LOCAL || address == 0)) {
		return (struct value){ HFCL_ARG_LOCAL, NULL, size == 0 ? CL_INVALID_ARG_SIZE : CL_SUCCESS };
	}
	if (address == CL_KERNEL_ARG_ADDRESS_LOCAL) {
		return (struct value){ 0, NULL, CL_INVALID_ARG_VALUE };
	}
	if (k->args[i].bytes != 0 && bytes != NULL && size != k->args[i].bytes) {
		return (struct value){ 0, NULL, CL_INVALID_ARG_SIZE };
	}
	const void *word = NULL;
	if (bytes != NULL && size == sizeof word) {
		memcpy(&word, bytes, sizeof word);
	}
	bool pointer = address == CL_KERNEL_ARG_ADDRESS_GLOBAL || address == CL_KERNEL_ARG_ADDRESS_CONSTANT;
	if (pointer && bytes != NULL && size != sizeof word) {
		return (struct value){ 0, NULL, CL_INVALID_ARG_SIZE };
	}
	bool mem = (pointer || address == 0) && hfcl_live(word, MEM);
	bool sampler = address == 0 && hfcl_live(word, SAMPLER);
	if (takes == HFCL_TAKES_BUFFER && mem && hfcl_is_image(word)) {
		return (struct value){ 0, NULL, CL_INVALID_MEM_OBJECT };
	}
	if (mem && ((const struct _cl_mem *)word)->context != k->program->context) {
		return (struct value){ 0, NULL, CL_INVALID_MEM_OBJECT };
	}
	if (sampler && ((const struct _cl_sampler *)word)->context != k->program->context) {
		return (struct value){ 0, NULL, CL_INVALID_SAMPLER };
	}
	if (mem || sampler) {
		return (struct value){ mem ? HFCL_ARG_MEM : HFCL_ARG_SAMPLER, word, CL_SUCCESS };
	}
	if (pointer && word != NULL) {
		return (struct value){ 0, NULL, CL_INVALID_MEM_OBJECT };
	}
	if (pointer) {
		return (struct value){ HFCL_ARG_NULL, NULL, CL_SUCCESS };
	}
	if (bytes == NULL || size == 0) {
		return (struct value){ 0, NULL, bytes == NULL ? CL_INVALID_ARG_VALUE : CL_INVALID_ARG_SIZE };
	}
	return (struct value){ HFCL_ARG_VALUE, NULL, CL_SUCCESS };
}

enum { ACCESS = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY };

static void kind_of(const struct value *v, cl_mem_object_type *type, cl_mem_flags *access) {
	const struct _cl_mem *m = v->kind == HFCL_ARG_MEM ? (const struct _cl_mem *)v->object : NULL;
	*type = m == NULL ? 0 : m->type;
	*access = m == NULL ? 0 : m->flags & ACCESS;
}

/* known reports that the device has taken such a value for the argument before, so that it takes this one. */
static bool known(cl_kernel k, cl_uint i, const struct value *v, size_t size) {
	cl_mem_object_type type;
	cl_mem_flags access;
	kind_of(v, &type, &access);
	pthread_mutex_lock(&k->lock);
	const struct argument *a = &k->args[i];
	bool is = a->set && a->kind == v->kind && a->size == size && a->type == type && a->access == access;
	pthread_mutex_unlock(&k->lock);
	return is;
}

static void learn(cl_kernel k, cl_uint i, const struct value *v, size_t size) {
	pthread_mutex_lock(&k->lock);
	struct argument *a = &k->args[i];
	kind_of(v, &a->type, &a->access);
	a->kind = v->kind;
	a->size = size;
	a->set = true;
	memset(k->shapes, 0, sizeof k->shapes); /* the device's limits may depend on it */
	pthread_mutex_unlock(&k->lock);
}

CL_API_ENTRY cl_int CL_API_CALL clSetKernelArg(cl_kernel k, cl_uint i, size_t size, const void *bytes) {
	if (!hfcl_is(k, KERNEL)) {
		return CL_INVALID_KERNEL;
	}
	if (i >= k->count) {
		return CL_INVALID_ARG_INDEX;
	}
	struct value v = judge(k, i, size, bytes);
	if (v.rc != CL_SUCCESS) {
		return v.rc;
	}
	struct call c;
	hfcl_begin(&c, HFCL_SET_ARG);
	hfcl_put64(&c, k->o.id);
	hfcl_put32(&c, i);
	hfcl_put32(&c, v.kind);
	hfcl_put64(&c, v.object != NULL ? v.object->id : v.kind == HFCL_ARG_LOCAL ? size : 0);
	if (v.kind == HFCL_ARG_VALUE) {
		hfcl_put_bytes(&c, bytes, size);
	} else {
		hfcl_put_bytes(&c, NULL, 0);
	}
	if (known(k, i, &v, size) && !hfcl_ring_device_lost()) {
		return hfcl_post(&c);
	}
	cl_int rc = hfcl_ask(&c);
	hfcl_end(&c);
	if (rc == CL_SUCCESS) {
		learn(k, i, &v, size);
	}
	return rc;
}

static bool all_set(cl_kernel k) {
	bool all = true;
	pthread_mutex_lock(&k->lock);
	for (cl_uint i = 0; i < k->count; i++) {
		all = all && k->args[i].set;
	}
	pthread_mutex_unlock(&k->lock);
	return all;
}

/* taken_before reports that the device has launched the kernel with these work-groups. */
static bool taken_before(cl_kernel k, const struct shape *s) {
	pthread_mutex_lock(&k->lock);
	bool is = false;
	for (int i = 0; i < SHAPES && !is; i++) {
		const struct shape *t = &k->shapes[i];
		is = t->queue == s->queue && t->dims == s->dims && t->chosen == s->chosen &&
			memcmp(t->local, s->local, sizeof s->local) == 0;
	}
	pthread_mutex_unlock(&k->lock);
	return is;
}

static cl_int launch(cl_command_queue q, cl_kernel k, cl_command_type type, cl_uint dims, const size_t *offset,
	const size_t *global, const size_t *local, cl_uint n, const cl_event *waits, cl_event *event) {
	if (hfcl_check_queue(q) != CL_SUCCESS) {
		return CL_INVALID_COMMAND_QUEUE;
	}
	if (!hfcl_is(k, KERNEL)) {
		return CL_INVALID_KERNEL;
	}
	if (k->program->context != q->context) {
		return CL_INVALID_CONTEXT;
	}
	if (!all_set(k)) {
		return CL_INVALID_KERNEL_ARGS;
	}
	if (dims < 1 || dims > 3) {
		return CL_INVALID_WORK_DIMENSION;
	}
	for (cl_uint i = 0; i < dims; i++) {
		if (global == NULL || global[i] == 0) {
			return CL_INVALID_GLOBAL_WORK_SIZE;
		}
		size_t end;
		if (__builtin_add_overflow(offset == NULL ? 0 : offset[i], global[i], &end)) {
			return CL_INVALID_GLOBAL_OFFSET;
		}
		if (end > HFCL_MAX_NUMBER) {
			return CL_OUT_OF_RESOURCES;
		}
		if (local != NULL && (local[i] == 0 || global[i] % local[i] != 0)) {
			return CL_INVALID_WORK_GROUP_SIZE;
		}
	}
	struct command m;
	cl_int rc = hfcl_command(&m, HFCL_LAUNCH, type, q, n, waits, event, false);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	hfcl_put64(&m.call, k->o.id);
	hfcl_put32(&m.call, dims);
	hfcl_put32(&m.call, local != NULL);
	for (cl_uint i = 0; i < dims; i++) {
		hfcl_put64(&m.call, offset == NULL ? 0 : offset[i]);
		hfcl_put64(&m.call, global[i]);
		hfcl_put64(&m.call, local == NULL ? 0 : local[i]);
	}
	struct shape shape = { q->o.id, dims, local != NULL, { 0 } };
	for (cl_uint i = 0; i < dims && local != NULL; i++) {
		shape.local[i] = local[i];
	}
	if (taken_before(k, &shape)) {
		return hfcl_submit(&m);
	}
	rc = hfcl_issue(&m, NULL, NULL);
	if (rc == CL_SUCCESS) {
		pthread_mutex_lock(&k->lock);
		k->shapes[k->next_shape++ % SHAPES] = shape;
		pthread_mutex_unlock(&k->lock);
	}
	return rc;
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dims,
	const size_t *offset, const size_t *global, const size_t *local, cl_uint n, const cl_event *waits,
	cl_event *event) {
	return launch(q, k, CL_COMMAND_NDRANGE_KERNEL, dims, offset, global, local, n, waits, event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueTask(
	cl_command_queue q, cl_kernel k, cl_uint n, const cl_event *waits, cl_event *event) {
	const size_t one = 1;
	return launch(q, k, CL_COMMAND_TASK, 1, NULL, &one, &one, n, waits, event);
}
