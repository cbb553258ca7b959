/* Compiling and linking. An object is a source that builds by itself, with the headers put into its text; a program is
   linked from one. So it has a source, from which it builds on another device. */
#define _GNU_SOURCE
#include "hfcl.h"

struct text {
	char *b;
	size_t n, room;
	bool failed;
};

static void add(struct text *t, const char *b, size_t n) {
	if (!t->failed && t->n + n + 1 > t->room) {
		size_t room = 2 * (t->n + n + 1);
		char *grown = realloc(t->b, room);
		t->failed = grown == NULL;
		t->b = grown == NULL ? t->b : grown;
		t->room = room;
	}
	if (!t->failed) {
		memcpy(t->b + t->n, b, n);
		t->n += n;
		t->b[t->n] = 0;
	}
}

/* The headers of a compilation. */
struct headers {
	cl_uint n;
	const cl_program *list;
	const char **names;
};

/* included finds the header that a line includes, n for none. */
static cl_uint included(const struct headers *h, const char *line, size_t size) {
	const char *end = line + size;
	while (line < end && (*line == ' ' || *line == '\t')) {
		line++;
	}
	if (line == end || *line++ != '#') {
		return h->n;
	}
	while (line < end && (*line == ' ' || *line == '\t')) {
		line++;
	}
	if ((size_t)(end - line) < 8 || strncmp(line, "include", 7) != 0) {
		return h->n;
	}
	line += 7;
	while (line < end && (*line == ' ' || *line == '\t')) {
		line++;
	}
	if (line == end || (*line != '"' && *line != '<')) {
		return h->n;
	}
	char close = *line++ == '"' ? '"' : '>';
	for (cl_uint i = 0; i < h->n; i++) {
		size_t n = strlen(h->names[i]);
		if ((size_t)(end - line) > n && strncmp(line, h->names[i], n) == 0 && line[n] == close) {
			return i;
		}
	}
	return h->n;
}

/* How deep headers include headers. */
enum { DEPTH = 32 };

/* expand copies a source with the headers in place of their names. */
static void expand(struct text *to, const struct headers *h, const char *source, int depth) {
	while (*source != 0) {
		const char *end = strchrnul(source, '\n');
		size_t size = (size_t)(end - source);
		cl_uint i = included(h, source, size);
		if (i < h->n && depth < DEPTH) {
			expand(to, h, h->list[i]->source, depth + 1);
			add(to, "\n", 1);
		} else {
			add(to, source, size + (*end != 0));
		}
		source = *end == 0 ? end : end + 1;
	}
}

static cl_int check_devices(cl_context context, cl_uint n, const cl_device_id *list) {
	if ((n == 0) != (list == NULL)) {
		return CL_INVALID_VALUE;
	}
	for (cl_uint i = 0; i < n; i++) {
		if (list[i] != context->device) {
			return CL_INVALID_DEVICE;
		}
	}
	return CL_SUCCESS;
}

static cl_int check_headers(const struct headers *h) {
	if ((h->n == 0) != (h->list == NULL) || (h->n == 0) != (h->names == NULL)) {
		return CL_INVALID_VALUE;
	}
	for (cl_uint i = 0; i < h->n; i++) {
		if (!hfcl_is(h->list[i], PROGRAM) || h->list[i]->from_binary || h->names[i] == NULL) {
			return CL_INVALID_PROGRAM;
		}
	}
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clCompileProgram(cl_program p, cl_uint n, const cl_device_id *list,
	const char *options, cl_uint headers, const cl_program *header_list, const char **header_names,
	void(CL_CALLBACK *notify)(cl_program, void *), void *data) {
	struct headers h = { headers, header_list, header_names };
	if (!hfcl_is(p, PROGRAM)) {
		return CL_INVALID_PROGRAM;
	}
	cl_int rc = notify == NULL && data != NULL ? CL_INVALID_VALUE : check_devices(p->context, n, list);
	if (rc == CL_SUCCESS) {
		rc = check_headers(&h);
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	pthread_mutex_lock(&p->lock);
	struct text text = { 0 };
	rc = p->live > 0 || p->from_binary ? CL_INVALID_OPERATION : CL_SUCCESS;
	if (rc == CL_SUCCESS) {
		expand(&text, &h, p->source, 0);
		rc = text.failed ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS;
	}
	if (rc == CL_SUCCESS) {
		free(p->text);
		p->text = text.b;
		p->text_size = text.n;
		rc = hfcl_build(p, options == NULL ? "" : options, CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT);
		rc = rc == CL_BUILD_PROGRAM_FAILURE ? CL_COMPILE_PROGRAM_FAILURE : rc;
	}
	if (p->text != text.b) {
		free(text.b);
	}
	pthread_mutex_unlock(&p->lock);
	if (notify != NULL && (rc == CL_SUCCESS || rc == CL_COMPILE_PROGRAM_FAILURE)) {
		notify(p, data);
	}
	return rc;
}

CL_API_ENTRY cl_program CL_API_CALL clLinkProgram(cl_context context, cl_uint n, const cl_device_id *list,
	const char *options, cl_uint count, const cl_program *inputs, void(CL_CALLBACK *notify)(cl_program, void *),
	void *data, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	(void)options; /* those for linking several objects, and the compiler's once more */
	if (!hfcl_is(context, CONTEXT)) {
		*rc = CL_INVALID_CONTEXT;
		return NULL;
	}
	*rc = count == 0 || inputs == NULL || (notify == NULL && data != NULL) ? CL_INVALID_VALUE
																		: check_devices(context, n, list);
	if (*rc == CL_SUCCESS && (!hfcl_is(inputs[0], PROGRAM) || inputs[0]->context != context)) {
		*rc = CL_INVALID_PROGRAM;
	}
	if (*rc == CL_SUCCESS && count > 1) {
		*rc = CL_LINKER_NOT_AVAILABLE;
	}
	cl_program object = *rc == CL_SUCCESS ? inputs[0] : NULL;
	if (object == NULL) {
		return NULL;
	}
	pthread_mutex_lock(&object->lock);
	*rc = object->status == CL_BUILD_SUCCESS && object->type != CL_PROGRAM_BINARY_TYPE_EXECUTABLE ? CL_SUCCESS
																								 : CL_INVALID_OPERATION;
	size_t size;
	const char *text = hfcl_text(object, &size);
	cl_program p = *rc == CL_SUCCESS ? hfcl_new_program(context, size, rc) : NULL;
	char *same = p == NULL ? NULL : strdup(object->options);
	if (p != NULL) {
		memcpy(p->source, text, size);
		p->from_binary = true; /* it was not made from a source, for clGetProgramInfo */
	}
	pthread_mutex_unlock(&object->lock);
	if (p == NULL) {
		return NULL;
	}
	*rc = same == NULL ? CL_OUT_OF_HOST_MEMORY : hfcl_build(p, same, CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
	*rc = *rc == CL_BUILD_PROGRAM_FAILURE ? CL_LINK_PROGRAM_FAILURE : *rc;
	free(same);
	if (*rc != CL_SUCCESS) {
		clReleaseProgram(p);
		return NULL;
	}
	if (notify != NULL) {
		notify(p, data);
	}
	return p;
}
