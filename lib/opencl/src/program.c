/* Programs: sources, builds, binaries. A binary is the source and the options, in a form of the library's own, so
   that it builds on whatever device the program is moved to. */
#define _GNU_SOURCE
#include "hfcl.h"

#include <stdio.h>

/* A binary: magic, u32 version, u32 bytes of the options, options, source. */
static const char magic[8] = { 'H', 'F', 'C', 'L', 'P', 'R', 'O', 'G' };
enum { BINARY_HEAD = 16, BINARY_VERSION = 1 };

/* hfcl_new_program makes a program whose source the caller fills in. */
cl_program hfcl_new_program(cl_context context, size_t size, cl_int *rc) {
	cl_program p = calloc(1, sizeof *p);
	char *source = malloc(size + 1);
	if (p == NULL || source == NULL) {
		free(p);
		free(source);
		*rc = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	hfcl_init(&p->o, PROGRAM);
	pthread_mutex_init(&p->lock, NULL);
	p->context = context;
	p->source = source;
	p->source_size = size;
	source[size] = 0;
	p->status = CL_BUILD_NONE;
	hfcl_retain(context);
	*rc = CL_SUCCESS;
	return p;
}

CL_API_ENTRY cl_program CL_API_CALL clCreateProgramWithSource(cl_context context, cl_uint count, const char **texts,
	const size_t *lengths, cl_int *rc_ret) {
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
	cl_program p = *rc == CL_SUCCESS ? hfcl_new_program(context, all, rc) : NULL;
	if (p == NULL) {
		return NULL;
	}
	char *at = p->source;
	for (cl_uint i = 0; i < count; i++) {
		size_t n = lengths != NULL && lengths[i] != 0 ? lengths[i] : strlen(texts[i]);
		memcpy(at, texts[i], n);
		at += n;
	}
	p->source_size = strlen(p->source); /* some programs count the NUL at the end */
	return p;
}

CL_API_ENTRY cl_program CL_API_CALL clCreateProgramWithBinary(cl_context context, cl_uint n, const cl_device_id *list,
	const size_t *lengths, const unsigned char **binaries, cl_int *statuses, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	if (!hfcl_is(context, CONTEXT)) {
		*rc = CL_INVALID_CONTEXT;
		return NULL;
	}
	if (n != 1 || list == NULL || lengths == NULL || binaries == NULL || lengths[0] == 0 || binaries[0] == NULL) {
		*rc = CL_INVALID_VALUE;
		return NULL;
	}
	if (list[0] != context->device) {
		*rc = CL_INVALID_DEVICE;
		return NULL;
	}
	const unsigned char *b = binaries[0];
	uint32_t version = 0, options = 0;
	bool good = lengths[0] >= BINARY_HEAD && memcmp(b, magic, sizeof magic) == 0;
	if (good) {
		memcpy(&version, b + 8, 4);
		memcpy(&options, b + 12, 4);
		good = version == BINARY_VERSION && options <= lengths[0] - BINARY_HEAD;
	}
	if (statuses != NULL) {
		statuses[0] = good ? CL_SUCCESS : CL_INVALID_BINARY;
	}
	*rc = good ? CL_SUCCESS : CL_INVALID_BINARY;
	cl_program p = good ? hfcl_new_program(context, lengths[0] - BINARY_HEAD - options, rc) : NULL;
	if (p == NULL) {
		return NULL;
	}
	memcpy(p->source, b + BINARY_HEAD + options, p->source_size);
	p->options = strndup((const char *)b + BINARY_HEAD, options);
	p->from_binary = true;
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
	if (p->status == CL_BUILD_SUCCESS) {
		hfcl_release(p->o.id);
	}
	clReleaseContext(p->context);
	pthread_mutex_destroy(&p->lock);
	free(p->source);
	free(p->text);
	free(p->options);
	free(p->log);
	free(p->names);
	free(p);
	return CL_SUCCESS;
}

/* hfcl_text is what is built. */
const char *hfcl_text(const struct _cl_program *p, size_t *size) {
	*size = p->text != NULL ? p->text_size : p->source_size;
	return p->text != NULL ? p->text : p->source;
}

/* hfcl_build builds; the lock is held. */
cl_int hfcl_build(cl_program p, const char *options, cl_program_binary_type type) {
	char *kept = strdup(options);
	if (kept == NULL) {
		return CL_OUT_OF_HOST_MEMORY;
	}
	if (p->status == CL_BUILD_SUCCESS) {
		hfcl_release(p->o.id);
		p->o.id = hfcl_number();
	}
	size_t size;
	const char *text = hfcl_text(p, &size);
	struct call c;
	hfcl_begin(&c, HFCL_BUILD);
	hfcl_put64(&c, p->o.id);
	hfcl_put64(&c, p->context->device->o.id);
	hfcl_put_bytes(&c, text, size);
	hfcl_put_bytes(&c, options, strlen(options));
	p->status = CL_BUILD_IN_PROGRESS;
	cl_int rc = hfcl_run(&c, NULL, NULL);
	free(p->options);
	free(p->log);
	free(p->names);
	p->options = kept;
	p->log = c.failed ? NULL : hfcl_get_text(&c);
	p->kernels = c.failed || rc != CL_SUCCESS ? 0 : hfcl_get32(&c);
	p->names = c.failed || rc != CL_SUCCESS ? NULL : hfcl_get_text(&c);
	hfcl_end(&c);
	p->status = rc == CL_SUCCESS ? CL_BUILD_SUCCESS : CL_BUILD_ERROR;
	p->type = rc == CL_SUCCESS ? type : CL_PROGRAM_BINARY_TYPE_NONE;
	return rc;
}

CL_API_ENTRY cl_int CL_API_CALL clBuildProgram(cl_program p, cl_uint n, const cl_device_id *list, const char *options,
	void(CL_CALLBACK *notify)(cl_program, void *), void *data) {
	if (!hfcl_is(p, PROGRAM)) {
		return CL_INVALID_PROGRAM;
	}
	if ((n == 0) != (list == NULL) || (notify == NULL && data != NULL)) {
		return CL_INVALID_VALUE;
	}
	for (cl_uint i = 0; i < n; i++) {
		if (list[i] != p->context->device) {
			return CL_INVALID_DEVICE;
		}
	}
	pthread_mutex_lock(&p->lock);
	cl_int rc = CL_INVALID_OPERATION; /* kernels of the last build live */
	if (p->live == 0) {
		free(p->text); /* headers are for compiling */
		p->text = NULL;
		char *before = p->from_binary && p->options != NULL ? strdup(p->options) : NULL;
		rc = hfcl_build(p, before != NULL ? before : options == NULL ? "" : options,
			CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
		free(before);
	}
	pthread_mutex_unlock(&p->lock);
	if (notify != NULL && rc != CL_INVALID_OPERATION) {
		notify(p, data); /* the build is over: it may be told before the call returns */
	}
	return rc;
}

/* binary answers CL_PROGRAM_BINARIES; the lock is held. */
static cl_int binary(cl_program p, size_t room, void *to, size_t *size_ret) {
	if (size_ret != NULL) {
		*size_ret = sizeof(unsigned char *);
	}
	if (to == NULL) {
		return CL_SUCCESS;
	}
	if (room < sizeof(unsigned char *)) {
		return CL_INVALID_VALUE;
	}
	unsigned char *b = *(unsigned char **)to;
	if (b == NULL || p->status != CL_BUILD_SUCCESS) {
		return CL_SUCCESS;
	}
	uint32_t version = BINARY_VERSION, options = (uint32_t)strlen(p->options);
	memcpy(b, magic, sizeof magic);
	memcpy(b + 8, &version, 4);
	memcpy(b + 12, &options, 4);
	memcpy(b + BINARY_HEAD, p->options, options);
	size_t size;
	const char *text = hfcl_text(p, &size);
	memcpy(b + BINARY_HEAD + options, text, size);
	return CL_SUCCESS;
}

static cl_int info(cl_program p, cl_program_info what, size_t room, void *to, size_t *size_ret) {
	bool built = p->status == CL_BUILD_SUCCESS;
	switch (what) {
	case CL_PROGRAM_REFERENCE_COUNT:
		return ANSWER(cl_uint, atomic_load(&p->o.refs));
	case CL_PROGRAM_CONTEXT:
		return ANSWER(cl_context, p->context);
	case CL_PROGRAM_NUM_DEVICES:
		return ANSWER(cl_uint, 1);
	case CL_PROGRAM_DEVICES:
		return ANSWER(cl_device_id, p->context->device);
	case CL_PROGRAM_SOURCE:
		return hfcl_answer_text(p->from_binary ? "" : p->source, room, to, size_ret);
	case CL_PROGRAM_BINARY_SIZES: {
		size_t size;
		hfcl_text(p, &size);
		return ANSWER(size_t, built ? BINARY_HEAD + strlen(p->options) + size : 0);
	}
	case CL_PROGRAM_BINARIES:
		return binary(p, room, to, size_ret);
	case CL_PROGRAM_NUM_KERNELS:
		return built ? ANSWER(size_t, p->kernels) : CL_INVALID_PROGRAM_EXECUTABLE;
	case CL_PROGRAM_KERNEL_NAMES:
		return built ? hfcl_answer_text(p->names, room, to, size_ret) : CL_INVALID_PROGRAM_EXECUTABLE;
	default:
		return CL_INVALID_VALUE;
	}
}

CL_API_ENTRY cl_int CL_API_CALL clGetProgramInfo(cl_program p, cl_program_info what, size_t room, void *to,
	size_t *size_ret) {
	if (!hfcl_is(p, PROGRAM)) {
		return CL_INVALID_PROGRAM;
	}
	pthread_mutex_lock(&p->lock);
	cl_int rc = info(p, what, room, to, size_ret);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

CL_API_ENTRY cl_int CL_API_CALL clGetProgramBuildInfo(cl_program p, cl_device_id d, cl_program_build_info what,
	size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(p, PROGRAM)) {
		return CL_INVALID_PROGRAM;
	}
	if (d != p->context->device) {
		return CL_INVALID_DEVICE;
	}
	pthread_mutex_lock(&p->lock);
	cl_int rc;
	switch (what) {
	case CL_PROGRAM_BUILD_STATUS:
		rc = ANSWER(cl_build_status, p->status);
		break;
	case CL_PROGRAM_BUILD_OPTIONS:
		rc = hfcl_answer_text(p->options, room, to, size_ret);
		break;
	case CL_PROGRAM_BUILD_LOG:
		rc = hfcl_answer_text(p->log, room, to, size_ret);
		break;
	case CL_PROGRAM_BINARY_TYPE:
		rc = ANSWER(cl_program_binary_type, p->type);
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
