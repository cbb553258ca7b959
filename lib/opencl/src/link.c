/* Compiling and linking. An object is a source that compiles by itself, with the headers put into its text, and a
   library some of them; what is linked keeps all their sources, so that it is built again on any other device. */
#define _GNU_SOURCE
#include "hfcl.h"

#include <stdio.h>

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

/* once tells whether a line says `#pragma once`. */
static bool once(const char *line, size_t size) {
	char b[64], hash, word[8], what[8], more;
	if (size >= sizeof b) {
		return false;
	}
	memcpy(b, line, size);
	b[size] = 0;
	return sscanf(b, " %c %7s %7s %c", &hash, word, what, &more) == 3 && hash == '#' && strcmp(word, "pragma") == 0 &&
		strcmp(what, "once") == 0;
}

/* A header that is being copied, and those around it. */
struct around {
	const struct around *next;
	cl_uint header;
	bool once; /* it has said so */
};

static const struct around *inside(const struct around *a, cl_uint header) {
	while (a != NULL && a->header != header) {
		a = a->next;
	}
	return a;
}

/* expand copies a source with the headers in place of their names. Where a header includes itself, by others or not,
   the name stays: the compiler never comes there, or says that it has no such file. What stands behind `#pragma once`
   is there once. */
static void expand(struct text *to, const struct headers *h, const char *source, struct around *a) {
	while (*source != 0 && !to->failed) {
		const char *end = strchrnul(source, '\n');
		size_t size = (size_t)(end - source);
		cl_uint i = included(h, source, size);
		const struct around *same = i < h->n ? inside(a, i) : NULL;
		if (i < h->n && same == NULL) {
			expand(to, h, h->list[i]->source, &(struct around){ a, i, false });
			add(to, "\n", 1);
		} else if (same != NULL && same->once) {
			add(to, "\n", 1);
		} else if (a != NULL && !a->once && once(source, size)) {
			char guard[96];
			int n = snprintf(guard, sizeof guard, "#ifndef HOLDFAST_ONCE_%u\n#define HOLDFAST_ONCE_%u\n", a->header,
				a->header);
			add(to, guard, (size_t)n);
			a->once = true;
		} else {
			add(to, source, size + (*end != 0));
		}
		source = *end == 0 ? end : end + 1;
	}
	if (a != NULL && a->once) {
		add(to, "\n#endif", 7);
	}
}

static cl_int check_headers(const struct headers *h) {
	if ((h->n == 0) != (h->list == NULL) || (h->n == 0) != (h->names == NULL)) {
		return CL_INVALID_VALUE;
	}
	for (cl_uint i = 0; i < h->n; i++) {
		if (!hfcl_is(h->list[i], PROGRAM) || h->list[i]->source == NULL || h->names[i] == NULL) {
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
	cl_int rc = notify == NULL && data != NULL ? CL_INVALID_VALUE : hfcl_check_devices(p->context, n, list);
	if (rc == CL_SUCCESS) {
		rc = check_headers(&h);
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	options = options == NULL ? "" : options;
	pthread_mutex_lock(&p->lock);
	struct text text = { 0 };
	rc = p->live > 0 || p->source == NULL ? CL_INVALID_OPERATION : CL_SUCCESS;
	if (rc == CL_SUCCESS) {
		expand(&text, &h, p->source, NULL);
		hfcl_free_units(p);
		free(p->link);
		p->link = NULL;
		rc = text.failed || !hfcl_add_source(p, text.b, text.n, options) ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS;
	}
	if (rc == CL_SUCCESS) {
		rc = hfcl_build(p, HFCL_OBJECT, CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, options, n, list);
	}
	free(text.b);
	pthread_mutex_unlock(&p->lock);
	if (notify != NULL && (rc == CL_SUCCESS || rc == CL_COMPILE_PROGRAM_FAILURE)) {
		notify(p, data);
	}
	return rc;
}

/* has_word tells whether options have one. */
static bool has_word(const char *options, const char *word) {
	size_t n = strlen(word);
	for (const char *at = strstr(options, word); at != NULL; at = strstr(at + n, word)) {
		if ((at == options || at[-1] == ' ') && (at[n] == 0 || at[n] == ' ')) {
			return true;
		}
	}
	return false;
}

/* join adds the sources of an object or a library to a program. */
static cl_int join(cl_program to, cl_program from) {
	cl_int rc = CL_SUCCESS;
	pthread_mutex_lock(&from->lock);
	for (cl_uint i = 0; i < to->context->count && rc == CL_SUCCESS; i++) {
		cl_program_binary_type type = from->builds[i].type;
		if (type != CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT && type != CL_PROGRAM_BINARY_TYPE_LIBRARY) {
			rc = CL_INVALID_OPERATION;
		}
	}
	for (cl_uint i = 0; i < from->unit_count && rc == CL_SUCCESS; i++) {
		const struct unit *u = &from->units[i];
		rc = hfcl_add_unit(to, u->text, u->size, u->options) ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
	}
	pthread_mutex_unlock(&from->lock);
	return rc;
}

static cl_int check_inputs(cl_context context, cl_uint count, const cl_program *inputs) {
	if (count == 0 || inputs == NULL) {
		return CL_INVALID_VALUE;
	}
	for (cl_uint i = 0; i < count; i++) {
		if (!hfcl_is(inputs[i], PROGRAM) || inputs[i]->context != context) {
			return CL_INVALID_PROGRAM;
		}
	}
	return CL_SUCCESS;
}

CL_API_ENTRY cl_program CL_API_CALL clLinkProgram(cl_context context, cl_uint n, const cl_device_id *list,
	const char *options, cl_uint count, const cl_program *inputs, void(CL_CALLBACK *notify)(cl_program, void *),
	void *data, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	if (!hfcl_is(context, CONTEXT)) {
		*rc = CL_INVALID_CONTEXT;
		return NULL;
	}
	*rc = notify == NULL && data != NULL ? CL_INVALID_VALUE : hfcl_check_devices(context, n, list);
	if (*rc == CL_SUCCESS) {
		*rc = check_inputs(context, count, inputs);
	}
	cl_program p = *rc == CL_SUCCESS ? hfcl_new_program(context, rc) : NULL;
	for (cl_uint i = 0; i < count && p != NULL && *rc == CL_SUCCESS; i++) {
		*rc = join(p, inputs[i]);
	}
	options = options == NULL ? "" : options;
	if (p != NULL && *rc == CL_SUCCESS && (p->link = strdup(options)) == NULL) {
		*rc = CL_OUT_OF_HOST_MEMORY;
	}
	if (p == NULL || *rc != CL_SUCCESS) {
		if (p != NULL) {
			clReleaseProgram(p);
		}
		return NULL;
	}
	bool library = has_word(options, "-create-library");
	cl_program_binary_type type = library ? CL_PROGRAM_BINARY_TYPE_LIBRARY : CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
	*rc = hfcl_build(p, HFCL_LINKED, type, options, n, list);
	if (library && *rc == CL_SUCCESS) { /* it is linked again with what it becomes part of */
		hfcl_release(p->o.id);
		p->served = false;
		free(p->link);
		p->link = NULL;
	}
	if (*rc != CL_SUCCESS && *rc != CL_LINK_PROGRAM_FAILURE) {
		clReleaseProgram(p);
		return NULL;
	}
	if (notify != NULL) {
		notify(p, data);
	}
	return p; /* also with a failure: the log is the program's */
}
