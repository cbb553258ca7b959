/* Builds, one request each: of a program, of an object that is compiled alone, of a linked program. */
#define _GNU_SOURCE
#include "hfcl.h"

static void put_text(struct call *c, const char *text) { hfcl_put_bytes(c, text, text == NULL ? 0 : strlen(text)); }

/* ask begins a build at the server, under a number. Devices of the list lose their builds of program kept, 0: none;
 * others keep them. */
static cl_int ask(cl_program p, struct call *c, uint64_t number, uint64_t kept, const struct recipe *r, uint32_t form,
	cl_uint n, const cl_device_id *list) {
	hfcl_begin(c, HFCL_BUILD);
	hfcl_put64(c, number);
	hfcl_put64(c, p->context->o.id);
	hfcl_put64(c, kept);
	hfcl_put32(c, form);
	hfcl_put32(c, n);
	for (cl_uint i = 0; i < n; i++) {
		hfcl_put64(c, list[i]->o.id);
	}
	put_text(c, r->link);
	hfcl_put32(c, r->count);
	for (cl_uint i = 0; i < r->count; i++) {
		hfcl_put_bytes(c, r->units[i].text, r->units[i].size);
		put_text(c, r->units[i].options);
	}
	return hfcl_run(c, NULL, NULL);
}

/* wanted reports whether a build is for a device. */
static bool wanted(cl_device_id d, cl_uint n, const cl_device_id *list) {
	for (cl_uint i = 0; i < n; i++) {
		if (list[i] == d) {
			return true;
		}
	}
	return false;
}

/* begin sets the sources of the devices of a build, and reports whether others have kernels. */
static bool begin(cl_program p, struct recipe *r, cl_uint n, const cl_device_id *list) {
	bool others = false;
	for (cl_uint i = 0; i < p->context->count; i++) {
		struct build *b = &p->builds[i];
		if (!wanted(p->context->devices[i], n, list)) {
			others = others || (b->status == CL_BUILD_SUCCESS && b->type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
			continue;
		}
		r->refs++;
		hfcl_drop_recipe(b->recipe);
		b->recipe = r;
		b->status = CL_BUILD_NONE;
		b->type = CL_PROGRAM_BINARY_TYPE_NONE;
	}
	return others;
}

/* note takes the result of each device of the build. */
static void note(cl_program p, struct call *c, cl_int rc, cl_program_binary_type type, const char *options, cl_uint n,
	const cl_device_id *list) {
	cl_uint reported = c->failed ? 0 : hfcl_get32(c);
	for (cl_uint i = 0; i < p->context->count; i++) {
		cl_int status = i < reported ? (cl_int)hfcl_get32(c) : rc;
		char *log = i < reported ? hfcl_get_text(c) : NULL;
		struct build *b = &p->builds[i];
		if (!wanted(p->context->devices[i], n, list)) {
			free(log);
			continue;
		}
		free(b->options);
		free(b->log);
		b->options = strdup(options);
		b->log = log;
		b->status = rc == CL_SUCCESS && status == CL_SUCCESS ? CL_BUILD_SUCCESS : CL_BUILD_ERROR;
		b->type = b->status == CL_BUILD_SUCCESS ? type : CL_PROGRAM_BINARY_TYPE_NONE;
	}
}

/* leave lets the server release its builds of a program. */
static void leave(cl_program p) {
	if (p->served) {
		hfcl_release(p->o.id);
	}
	free(p->names);
	p->names = NULL;
	p->kernels = 0;
	p->served = false;
}

cl_int hfcl_build(cl_program p, struct recipe *r, uint32_t form, cl_program_binary_type type, const char *options,
	cl_uint n, const cl_device_id *list) {
	if (!begin(p, r, n, list)) {
		leave(p);
	}
	struct call c;
	uint64_t number = hfcl_number();
	cl_int rc = ask(p, &c, number, p->served ? p->o.id : 0, r, form, n, list);
	note(p, &c, rc, type, options, n, list);
	if (rc == CL_SUCCESS && form != HFCL_OBJECT) {
		leave(p);
		p->o.id = number;
		p->kernels = hfcl_get32(&c);
		p->names = hfcl_get_text(&c);
		p->served = true;
	}
	hfcl_end(&c);
	return rc;
}

/* build_source builds the program's source for devices. */
static cl_int build_source(cl_program p, const char *options, cl_uint n, const cl_device_id *list) {
	struct recipe *r = hfcl_new_recipe(NULL);
	cl_int rc = r != NULL && hfcl_add_source(r, p->source, strlen(p->source), options)
		? hfcl_build(p, r, HFCL_PROGRAM, CL_PROGRAM_BINARY_TYPE_EXECUTABLE, options, n, list)
		: CL_OUT_OF_HOST_MEMORY;
	hfcl_drop_recipe(r);
	return rc;
}

static struct recipe *recipe_of(cl_program p, cl_device_id d) {
	return p->builds[hfcl_device_index(p->context, d)].recipe;
}

/* build_again builds devices' binaries, which have their options; those that have the same one together. */
static cl_int build_again(cl_program p, const char *options, cl_uint n, const cl_device_id *list) {
	cl_int rc = CL_SUCCESS;
	for (cl_uint i = 0; i < n; i++) {
		struct recipe *r = recipe_of(p, list[i]);
		cl_device_id same[n];
		cl_uint count = 0, before = 0;
		for (cl_uint k = 0; k < n; k++) {
			if (recipe_of(p, list[k]) == r) {
				before += k < i;
				same[count++] = list[k];
			}
		}
		if (r == NULL || before > 0) {
			continue;
		}
		cl_int one = hfcl_build(p, r, HFCL_LINKED, CL_PROGRAM_BINARY_TYPE_EXECUTABLE, options, count, same);
		rc = rc == CL_SUCCESS ? one : rc;
	}
	return rc == CL_LINK_PROGRAM_FAILURE  ? CL_BUILD_PROGRAM_FAILURE
		: rc == CL_INVALID_LINKER_OPTIONS ? CL_INVALID_BUILD_OPTIONS
										  : rc;
}

/* has_binary reports whether some device has one. */
static bool has_binary(cl_program p, cl_uint n, const cl_device_id *list) {
	for (cl_uint i = 0; i < n; i++) {
		if (recipe_of(p, list[i]) != NULL) {
			return true;
		}
	}
	return false;
}

CL_API_ENTRY cl_int CL_API_CALL clBuildProgram(cl_program p, cl_uint n, const cl_device_id *list, const char *options,
	void(CL_CALLBACK *notify)(cl_program, void *), void *data) {
	if (!hfcl_is(p, PROGRAM)) {
		return CL_INVALID_PROGRAM;
	}
	cl_int rc = notify == NULL && data != NULL ? CL_INVALID_VALUE : hfcl_check_devices(p->context, n, list);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	if (n == 0) {
		n = p->context->count;
		list = p->context->devices;
	}
	options = options == NULL ? "" : options;
	pthread_mutex_lock(&p->lock);
	if (p->live > 0 || (p->source == NULL && !has_binary(p, n, list))) {
		rc = CL_INVALID_OPERATION; /* kernels of the last build live */
	} else {
		rc = p->source != NULL ? build_source(p, options, n, list) : build_again(p, options, n, list);
	}
	pthread_mutex_unlock(&p->lock);
	if (notify != NULL && rc != CL_INVALID_OPERATION) {
		notify(p, data); /* the build is over: it may be reported before the call returns */
	}
	return rc;
}
