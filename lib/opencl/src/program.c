/* Programs: sources, queries, release. */
#define _GNU_SOURCE
#include "hfcl.h"

cl_program hfcl_new_program(cl_context context, cl_int *rc) {
	cl_program p = calloc(1, sizeof *p);
	struct build *builds = calloc(context->count, sizeof *builds);
	if (p == NULL || builds == NULL) {
		free(p);
		free(builds);
		*rc = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	hfcl_init(&p->o, PROGRAM);
	pthread_mutex_init(&p->lock, NULL);
	p->context = context;
	p->builds = builds;
	for (cl_uint i = 0; i < context->count; i++) {
		builds[i].status = CL_BUILD_NONE;
	}
	hfcl_retain(context);
	*rc = CL_SUCCESS;
	return p;
}

struct recipe *hfcl_new_recipe(const char *link) {
	struct recipe *r = calloc(1, sizeof *r);
	if (r != NULL && link != NULL && (r->link = strdup(link)) == NULL) {
		free(r);
		return NULL;
	}
	if (r != NULL) {
		r->refs = 1;
	}
	return r;
}

bool hfcl_add_unit(struct recipe *r, const char *text, size_t size, const char *options) {
	struct unit *list = realloc(r->units, (r->count + 1) * sizeof *list);
	if (list == NULL) {
		return false;
	}
	r->units = list;
	struct unit u = { malloc(size + 1), size, strdup(options) };
	if (u.text == NULL || u.options == NULL) {
		free(u.text);
		free(u.options);
		return false;
	}
	if (size > 0) {
		memcpy(u.text, text, size);
	}
	u.text[size] = 0;
	list[r->count++] = u;
	return true;
}

void hfcl_drop_recipe(struct recipe *r) {
	if (r == NULL || --r->refs > 0) {
		return;
	}
	for (cl_uint i = 0; i < r->count; i++) {
		free(r->units[i].text);
		free(r->units[i].options);
	}
	free(r->units);
	free(r->link);
	free(r);
}

/* hfcl_built reports whether some device has a program to make kernels of. */
bool hfcl_built(const struct _cl_program *p) {
	for (cl_uint i = 0; i < p->context->count; i++) {
		const struct build *b = &p->builds[i];
		if (p->served && b->status == CL_BUILD_SUCCESS && b->type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE) {
			return true;
		}
	}
	return false;
}

CL_API_ENTRY cl_program CL_API_CALL clCreateProgramWithSource(
	cl_context context, cl_uint count, const char **texts, const size_t *lengths, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	if (!hfcl_is(context, CONTEXT)) {
		*rc = CL_INVALID_CONTEXT;
		return NULL;
	}
	size_t all = 0;
	*rc = count == 0 || texts == NULL ? CL_INVALID_VALUE : CL_SUCCESS;
	for (cl_uint i = 0; i < count && *rc == CL_SUCCESS; i++) {
		if (texts[i] == NULL) {
			*rc = CL_INVALID_VALUE;
		} else {
			all += lengths != NULL && lengths[i] != 0 ? lengths[i] : strlen(texts[i]);
		}
	}
	cl_program p = *rc == CL_SUCCESS ? hfcl_new_program(context, rc) : NULL;
	char *at = p == NULL ? NULL : malloc(all + 1);
	if (at == NULL) {
		if (p != NULL) {
			clReleaseProgram(p);
			*rc = CL_OUT_OF_HOST_MEMORY;
		}
		return NULL;
	}
	p->source = at; /* some programs count the NUL at the end: the text ends at the first one */
	at[all] = 0;
	for (cl_uint i = 0; i < count; i++) {
		size_t n = lengths != NULL && lengths[i] != 0 ? lengths[i] : strlen(texts[i]);
		memcpy(at, texts[i], n);
		at += n;
	}
	return p;
}

CL_API_ENTRY cl_int CL_API_CALL clRetainProgram(cl_program p) {
	if (!hfcl_is(p, PROGRAM)) {
		return CL_INVALID_PROGRAM;
	}
	hfcl_retain(p);
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clReleaseProgram(cl_program p) {
	if (!hfcl_is(p, PROGRAM)) {
		return CL_INVALID_PROGRAM;
	}
	if (!hfcl_drop(p)) {
		return CL_SUCCESS;
	}
	hfcl_say_goodbye(p->goodbyes, p);
	if (p->served) {
		hfcl_release(p->o.id);
	}
	for (cl_uint i = 0; i < p->context->count; i++) {
		free(p->builds[i].options);
		free(p->builds[i].log);
		hfcl_drop_recipe(p->builds[i].recipe);
	}
	clReleaseContext(p->context);
	pthread_mutex_destroy(&p->lock);
	free(p->builds);
	free(p->source);
	free(p->names);
	free(p);
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clSetProgramReleaseCallback(
	cl_program p, void(CL_CALLBACK *call)(cl_program, void *), void *data) {
	if (!hfcl_is(p, PROGRAM)) {
		return CL_INVALID_PROGRAM;
	}
	if (call == NULL) {
		return CL_INVALID_VALUE;
	}
	return hfcl_goodbye(&p->lock, &p->goodbyes, (void(CL_CALLBACK *)(void *, void *))call, data)
		? CL_SUCCESS
		: CL_OUT_OF_HOST_MEMORY;
}

/* sizes answers CL_PROGRAM_BINARY_SIZES; the lock is held. */
static cl_int sizes(cl_program p, size_t room, void *to, size_t *size_ret) {
	size_t n = p->context->count, list[n];
	for (cl_uint i = 0; i < n; i++) {
		list[i] = hfcl_binary_size(p, i);
	}
	return hfcl_answer(list, n * sizeof *list, room, to, size_ret);
}

/* binaries answers CL_PROGRAM_BINARIES; the lock is held. */
static cl_int binaries(cl_program p, size_t room, void *to, size_t *size_ret) {
	size_t n = p->context->count * sizeof(unsigned char *);
	if (size_ret != NULL) {
		*size_ret = n;
	}
	if (to == NULL) {
		return CL_SUCCESS;
	}
	if (room < n) {
		return CL_INVALID_VALUE;
	}
	for (cl_uint i = 0; i < p->context->count; i++) {
		unsigned char *b = ((unsigned char **)to)[i];
		if (b != NULL) {
			hfcl_binary(p, i, b);
		}
	}
	return CL_SUCCESS;
}

static cl_int info(cl_program p, cl_program_info what, size_t room, void *to, size_t *size_ret) {
	cl_context c = p->context;
	switch (what) {
	case CL_PROGRAM_REFERENCE_COUNT:
		return ANSWER(cl_uint, atomic_load(&p->o.refs));
	case CL_PROGRAM_CONTEXT:
		return ANSWER(cl_context, c);
	case CL_PROGRAM_NUM_DEVICES:
		return ANSWER(cl_uint, c->count);
	case CL_PROGRAM_DEVICES:
		return hfcl_answer(c->devices, c->count * sizeof *c->devices, room, to, size_ret);
	case CL_PROGRAM_SOURCE:
		return hfcl_answer_text(p->source, room, to, size_ret);
	case CL_PROGRAM_BINARY_SIZES:
		return sizes(p, room, to, size_ret);
	case CL_PROGRAM_BINARIES:
		return binaries(p, room, to, size_ret);
	case CL_PROGRAM_NUM_KERNELS:
		return hfcl_built(p) ? ANSWER(size_t, p->kernels) : CL_INVALID_PROGRAM_EXECUTABLE;
	case CL_PROGRAM_KERNEL_NAMES:
		return hfcl_built(p) ? hfcl_answer_text(p->names, room, to, size_ret) : CL_INVALID_PROGRAM_EXECUTABLE;
	default:
		return CL_INVALID_VALUE;
	}
}

CL_API_ENTRY cl_int CL_API_CALL clGetProgramInfo(
	cl_program p, cl_program_info what, size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(p, PROGRAM)) {
		return CL_INVALID_PROGRAM;
	}
	pthread_mutex_lock(&p->lock);
	cl_int rc = info(p, what, room, to, size_ret);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

CL_API_ENTRY cl_int CL_API_CALL clGetProgramBuildInfo(
	cl_program p, cl_device_id d, cl_program_build_info what, size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(p, PROGRAM)) {
		return CL_INVALID_PROGRAM;
	}
	cl_uint i = hfcl_device_index(p->context, d);
	if (i == p->context->count) {
		return CL_INVALID_DEVICE;
	}
	pthread_mutex_lock(&p->lock);
	const struct build *b = &p->builds[i];
	cl_int rc;
	switch (what) {
	case CL_PROGRAM_BUILD_STATUS:
		rc = ANSWER(cl_build_status, b->status);
		break;
	case CL_PROGRAM_BUILD_OPTIONS:
		rc = hfcl_answer_text(b->options, room, to, size_ret);
		break;
	case CL_PROGRAM_BUILD_LOG:
		rc = hfcl_answer_text(b->log, room, to, size_ret);
		break;
	case CL_PROGRAM_BINARY_TYPE:
		rc = ANSWER(cl_program_binary_type, b->type);
		break;
	default:
		rc = CL_INVALID_VALUE;
	}
	pthread_mutex_unlock(&p->lock);
	return rc;
}

CL_API_ENTRY cl_int CL_API_CALL clUnloadCompiler(void) { return CL_SUCCESS; }

CL_API_ENTRY cl_int CL_API_CALL clUnloadPlatformCompiler(cl_platform_id p) {
	return hfcl_is(p, PLATFORM) ? CL_SUCCESS : CL_INVALID_PLATFORM;
}
