/* Compiling and linking. An object is a source that compiles by itself, with the headers put into its text, and a
   library some of them; a linked program keeps all their sources, so that it is built again on any other device. */
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

/* once reports whether a line says `#pragma once`. */
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

/* expand copies a source with the headers in place of their names. If a header includes itself, by others or not,
   the name stays: the compiler never comes there, or says that it has no such file. Text after `#pragma once` is there
   once. */
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
			int n = snprintf(
				guard, sizeof guard, "#ifndef HOLDFAST_ONCE_%u\n#define HOLDFAST_ONCE_%u\n", a->header, a->header);
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

CL_API_ENTRY cl_int CL_API_CALL clCompileProgram(cl_program p, cl_uint n, const cl_device_id *list, const char *options,
	cl_uint headers, const cl_program *header_list, const char **header_names,
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
	if (n == 0) {
		n = p->context->count;
		list = p->context->devices;
	}
	options = options == NULL ? "" : options;
	pthread_mutex_lock(&p->lock);
	struct text text = { 0 };
	struct recipe *r = NULL;
	rc = p->live > 0 || p->source == NULL ? CL_INVALID_OPERATION : CL_SUCCESS;
	if (rc == CL_SUCCESS) {
		expand(&text, &h, p->source, NULL);
		r = hfcl_new_recipe(NULL);
		bool made = r != NULL && !text.failed && hfcl_add_source(r, text.b, text.n, options);
		rc = made ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
	}
	if (rc == CL_SUCCESS) {
		rc = hfcl_build(p, r, HFCL_OBJECT, CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, options, n, list);
	}
	free(text.b);
	hfcl_drop_recipe(r);
	pthread_mutex_unlock(&p->lock);
	if (notify != NULL && (rc == CL_SUCCESS || rc == CL_COMPILE_PROGRAM_FAILURE)) {
		notify(p, data);
	}
	return rc;
}

/* has_word reports whether options have one. */
static bool has_word(const char *options, const char *word) {
	size_t n = strlen(word);
	for (const char *at = strstr(options, word); at != NULL; at = strstr(at + n, word)) {
		if ((at == options || at[-1] == ' ') && (at[n] == 0 || at[n] == ' ')) {
			return true;
		}
	}
	return false;
}

/* join adds the sources that a device has of an object or a library. */
static bool join(struct recipe *to, cl_program from, cl_uint device) {
	bool ok = true;
	pthread_mutex_lock(&from->lock);
	const struct recipe *r = from->builds[device].recipe;
	for (cl_uint i = 0; r != NULL && i < r->count && ok; i++) {
		const struct unit *u = &r->units[i];
		ok = hfcl_add_unit(to, u->text, u->size, u->options);
	}
	pthread_mutex_unlock(&from->lock);
	return ok;
}

/* The input of a link. */
struct inputs {
	cl_uint n;
	const cl_program *list;
};

/* has_object reports whether a device has a program to link. */
static bool has_object(cl_program p, cl_uint device) {
	pthread_mutex_lock(&p->lock);
	cl_program_binary_type type = p->builds[device].type;
	pthread_mutex_unlock(&p->lock);
	return type == CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT || type == CL_PROGRAM_BINARY_TYPE_LIBRARY;
}

/* linkable reports whether a device has all inputs; *rc is an error where it has only some of them. */
static bool linkable(const struct inputs *in, cl_uint device, cl_int *rc) {
	cl_uint has = 0;
	for (cl_uint i = 0; i < in->n; i++) {
		has += has_object(in->list[i], device);
	}
	if (has > 0 && has < in->n) {
		*rc = CL_INVALID_OPERATION;
	}
	return has == in->n;
}

/* alike reports whether two devices have the same of all inputs. */
static bool alike(const struct inputs *in, cl_uint a, cl_uint b) {
	for (cl_uint i = 0; i < in->n; i++) {
		pthread_mutex_lock(&in->list[i]->lock);
		bool same = in->list[i]->builds[a].recipe == in->list[i]->builds[b].recipe;
		pthread_mutex_unlock(&in->list[i]->lock);
		if (!same) {
			return false;
		}
	}
	return true;
}

/* link_alike links for devices that have the same of all inputs. */
static cl_int link_alike(
	cl_program p, const struct inputs *in, const char *options, bool library, cl_uint n, const cl_device_id *list) {
	struct recipe *r = hfcl_new_recipe(options);
	bool made = r != NULL;
	for (cl_uint i = 0; i < in->n && made; i++) {
		made = join(r, in->list[i], hfcl_device_index(p->context, list[0]));
	}
	cl_int rc = CL_OUT_OF_HOST_MEMORY;
	if (made) {
		rc = hfcl_build(p, r, HFCL_LINKED, library ? CL_PROGRAM_BINARY_TYPE_LIBRARY : CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
			options, n, list);
	}
	if (made && library) { /* it is linked again with the program that it becomes part of */
		free(r->link);
		r->link = NULL;
	}
	hfcl_drop_recipe(r);
	return rc;
}

/* link_all links for all devices of a list, at once for those that have the same of all inputs. */
static cl_int link_all(
	cl_program p, const struct inputs *in, const char *options, bool library, cl_uint n, const cl_device_id *list) {
	cl_uint left = 0;
	cl_device_id todo[n];
	cl_int rc = CL_SUCCESS;
	for (cl_uint i = 0; i < n; i++) {
		if (linkable(in, hfcl_device_index(p->context, list[i]), &rc)) {
			todo[left++] = list[i];
		}
	}
	if (left == 0 || rc != CL_SUCCESS) {
		return CL_INVALID_OPERATION;
	}
	while (left > 0) {
		cl_uint now = 0, later = 0, first = hfcl_device_index(p->context, todo[0]);
		cl_device_id same[n];
		for (cl_uint i = 0; i < left; i++) {
			cl_device_id d = todo[i];
			if (i == 0 || alike(in, first, hfcl_device_index(p->context, d))) {
				same[now++] = d;
			} else {
				todo[later++] = d;
			}
		}
		cl_int one = link_alike(p, in, options, library, now, same);
		rc = rc == CL_SUCCESS ? one : rc;
		left = later;
	}
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
	if (p == NULL) {
		return NULL;
	}
	if (n == 0) {
		n = context->count;
		list = context->devices;
	}
	options = options == NULL ? "" : options;
	bool library = has_word(options, "-create-library");
	*rc = link_all(p, &(struct inputs){ count, inputs }, options, library, n, list);
	if (library && p->served) {
		hfcl_release(p->o.id);
		p->served = false;
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
