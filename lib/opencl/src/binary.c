/* Binaries of programs. One holds the sources and their options, in a form of the library's own, so that it builds on
   whatever device the program is moved to. Numbers are u32, little-endian: magic of 8 bytes, version, type
   (CL_PROGRAM_BINARY_TYPE_...), number of sources; then texts, each behind its length: options of the linker, and of
   each source its options and itself. */
#define _GNU_SOURCE
#include "hfcl.h"

static const char magic[8] = { 'H', 'F', 'C', 'L', 'P', 'R', 'O', 'G' };
enum { BINARY_VERSION = 2, MAX_UNITS = 4096 };

static size_t text_size(const char *text) { return 4 + (text == NULL ? 0 : strlen(text)); }

/* has reports whether a device has something to give. */
static bool has(const struct _cl_program *p, cl_uint device) {
	return p->builds[device].type != CL_PROGRAM_BINARY_TYPE_NONE && p->builds[device].recipe != NULL;
}

size_t hfcl_binary_size(const struct _cl_program *p, cl_uint device) {
	if (!has(p, device)) {
		return 0;
	}
	const struct recipe *r = p->builds[device].recipe;
	size_t n = sizeof magic + 12 + text_size(r->link);
	for (cl_uint i = 0; i < r->count; i++) {
		n += text_size(r->units[i].options) + 4 + r->units[i].size;
	}
	return n;
}

static unsigned char *put(unsigned char *to, const void *from, size_t n) {
	if (n > 0) {
		memcpy(to, from, n);
	}
	return to + n;
}

static unsigned char *put_text(unsigned char *to, const char *text, size_t n) {
	uint32_t size = (uint32_t)n;
	return put(put(to, &size, 4), text, n);
}

/* hfcl_binary fills in as many bytes as hfcl_binary_size says. */
void hfcl_binary(const struct _cl_program *p, cl_uint device, unsigned char *to) {
	if (!has(p, device)) {
		return;
	}
	const struct recipe *r = p->builds[device].recipe;
	const uint32_t head[3] = { BINARY_VERSION, p->builds[device].type, r->count };
	to = put(put(to, magic, sizeof magic), head, sizeof head);
	to = put_text(to, r->link, text_size(r->link) - 4);
	for (cl_uint i = 0; i < r->count; i++) {
		const struct unit *u = &r->units[i];
		to = put_text(put_text(to, u->options, strlen(u->options)), u->text, u->size);
	}
}

/* A binary that is read. */
struct reader {
	const unsigned char *at, *end;
	bool bad;
};

static uint32_t number(struct reader *r) {
	uint32_t n = 0;
	if (r->end - r->at < 4) {
		r->bad = true;
		return 0;
	}
	memcpy(&n, r->at, 4);
	r->at += 4;
	return n;
}

/* text gives a text, not ended by a NUL. */
static const char *text(struct reader *r, size_t *n) {
	*n = number(r);
	if (r->bad || *n > (size_t)(r->end - r->at)) {
		r->bad = true;
		*n = 0;
	}
	const char *at = (const char *)r->at;
	r->at += *n;
	return at;
}

/* fill reads a binary into a new recipe, and tells its type; CL_INVALID_BINARY where it is none. */
static cl_int fill(struct recipe *to, const unsigned char *b, size_t size, cl_program_binary_type *type) {
	struct reader r = { b + sizeof magic, b + size, size < sizeof magic || memcmp(b, magic, sizeof magic) != 0 };
	if (r.bad || number(&r) != BINARY_VERSION) {
		return CL_INVALID_BINARY;
	}
	*type = number(&r);
	uint32_t units = number(&r);
	if (units == 0 || units > MAX_UNITS || *type == CL_PROGRAM_BINARY_TYPE_NONE ||
		*type > CL_PROGRAM_BINARY_TYPE_EXECUTABLE) {
		return CL_INVALID_BINARY;
	}
	size_t n;
	const char *at = text(&r, &n);
	to->link = strndup(at, n);
	for (uint32_t i = 0; i < units && !r.bad; i++) {
		size_t m;
		at = text(&r, &n);
		char *options = strndup(at, n);
		at = text(&r, &m);
		bool ok = options != NULL && (r.bad || hfcl_add_unit(to, at, m, options));
		free(options);
		if (!ok) {
			return CL_OUT_OF_HOST_MEMORY;
		}
	}
	if (to->link == NULL) {
		return CL_OUT_OF_HOST_MEMORY;
	}
	return r.bad || r.at != r.end ? CL_INVALID_BINARY : CL_SUCCESS;
}

/* same reports whether two recipes are alike. */
static bool same(const struct recipe *a, const struct recipe *b) {
	if (a == b || a->count != b->count || strcmp(a->link, b->link) != 0) {
		return a == b;
	}
	for (cl_uint i = 0; i < a->count; i++) {
		const struct unit *u = &a->units[i], *v = &b->units[i];
		if (u->size != v->size || memcmp(u->text, v->text, u->size) != 0 || strcmp(u->options, v->options) != 0) {
			return false;
		}
	}
	return true;
}

/* load gives a device of a new program its binary. Devices that have the same one are built together. */
static cl_int load(cl_program p, cl_uint device, const unsigned char *bytes, size_t size) {
	struct recipe *r = hfcl_new_recipe(NULL);
	cl_program_binary_type type = CL_PROGRAM_BINARY_TYPE_NONE;
	cl_int rc = r == NULL ? CL_OUT_OF_HOST_MEMORY : fill(r, bytes, size, &type);
	for (cl_uint i = 0; i < p->context->count && rc == CL_SUCCESS; i++) {
		struct build *b = &p->builds[i];
		if (b->recipe != NULL && b->type == type && same(b->recipe, r)) {
			hfcl_drop_recipe(r);
			r = b->recipe;
			r->refs++;
		}
	}
	if (rc != CL_SUCCESS) {
		hfcl_drop_recipe(r);
		return rc;
	}
	hfcl_drop_recipe(p->builds[device].recipe);
	p->builds[device].recipe = r;
	p->builds[device].type = type;
	return CL_SUCCESS;
}

static cl_int check(
	cl_context context, cl_uint n, const cl_device_id *list, const size_t *lengths, const unsigned char **binaries) {
	if (n == 0 || list == NULL || lengths == NULL || binaries == NULL) {
		return CL_INVALID_VALUE;
	}
	for (cl_uint i = 0; i < n; i++) {
		if (hfcl_device_index(context, list[i]) == context->count) {
			return CL_INVALID_DEVICE;
		}
		if (lengths[i] == 0 || binaries[i] == NULL) {
			return CL_INVALID_VALUE;
		}
	}
	return CL_SUCCESS;
}

CL_API_ENTRY cl_program CL_API_CALL clCreateProgramWithBinary(cl_context context, cl_uint n, const cl_device_id *list,
	const size_t *lengths, const unsigned char **binaries, cl_int *statuses, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	*rc = hfcl_is(context, CONTEXT) ? check(context, n, list, lengths, binaries) : CL_INVALID_CONTEXT;
	cl_program p = *rc == CL_SUCCESS ? hfcl_new_program(context, rc) : NULL;
	if (p == NULL) {
		return NULL;
	}
	for (cl_uint i = 0; i < n; i++) {
		cl_int one = load(p, hfcl_device_index(context, list[i]), binaries[i], lengths[i]);
		if (statuses != NULL) {
			statuses[i] = one;
		}
		*rc = *rc == CL_SUCCESS ? one : *rc;
	}
	if (*rc != CL_SUCCESS) {
		clReleaseProgram(p);
		return NULL;
	}
	return p;
}
