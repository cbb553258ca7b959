/* Builds, one request each: of a program, of an object that is compiled alone, of what is linked. */
#define _GNU_SOURCE
#include "hfcl.h"

static void put_text(struct call *c, const char *text) { hfcl_put_bytes(c, text, text == NULL ? 0 : strlen(text)); }

/* ask begins a build at the server. */
static cl_int ask(cl_program p, struct call *c, uint32_t form, cl_uint n, const cl_device_id *list) {
	hfcl_begin(c, HFCL_BUILD);
	hfcl_put64(c, p->o.id);
	hfcl_put64(c, p->context->o.id);
	hfcl_put32(c, form);
	hfcl_put32(c, n);
	for (cl_uint i = 0; i < n; i++) {
		hfcl_put64(c, list[i]->o.id);
	}
	put_text(c, p->link);
	hfcl_put32(c, p->unit_count);
	for (cl_uint i = 0; i < p->unit_count; i++) {
		hfcl_put_bytes(c, p->units[i].text, p->units[i].size);
		put_text(c, p->units[i].options);
	}
	return hfcl_run(c, NULL, NULL);
}

/* wanted tells whether a build is for a device. */
static bool wanted(cl_device_id d, cl_uint n, const cl_device_id *list) {
	for (cl_uint i = 0; i < n; i++) {
		if (list[i] == d) {
			return true;
		}
	}
	return false;
}

/* note takes what became of each device that was built for. */
static void note(cl_program p, struct call *c, cl_int rc, cl_program_binary_type type, const char *options, cl_uint n,
	const cl_device_id *list) {
	cl_uint told = c->failed ? 0 : hfcl_get32(c);
	for (cl_uint i = 0; i < p->context->count; i++) {
		cl_int status = i < told ? (cl_int)hfcl_get32(c) : rc;
		char *log = i < told ? hfcl_get_text(c) : NULL;
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

cl_int hfcl_build(cl_program p, uint32_t form, cl_program_binary_type type, const char *options, cl_uint n,
	const cl_device_id *list) {
	if (n == 0) {
		n = p->context->count;
		list = p->context->devices;
	}
	if (p->served) {
		hfcl_release(p->o.id);
		p->o.id = hfcl_number();
		p->served = false;
	}
	free(p->names);
	p->names = NULL;
	p->kernels = 0;
	for (cl_uint i = 0; i < p->context->count; i++) { /* the others have the build of before no more */
		p->builds[i].status = CL_BUILD_NONE;
		p->builds[i].type = CL_PROGRAM_BINARY_TYPE_NONE;
	}
	struct call c;
	cl_int rc = ask(p, &c, form, n, list);
	note(p, &c, rc, type, options, n, list);
	if (rc == CL_SUCCESS && form != HFCL_OBJECT) {
		p->kernels = hfcl_get32(&c);
		p->names = hfcl_get_text(&c);
		p->served = true;
	}
	hfcl_end(&c);
	return rc;
}

/* again lets a program have its source with these options as what is built. */
static bool again(cl_program p, const char *options) {
	hfcl_free_units(p);
	free(p->link);
	p->link = NULL;
	return hfcl_add_source(p, p->source, strlen(p->source), options);
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
	options = options == NULL ? "" : options;
	pthread_mutex_lock(&p->lock);
	if (p->live > 0 || (p->source == NULL && p->unit_count == 0)) {
		rc = CL_INVALID_OPERATION; /* kernels of the last build live */
	} else if (p->source != NULL) {
		rc = again(p, options)
			? hfcl_build(p, HFCL_PROGRAM, CL_PROGRAM_BINARY_TYPE_EXECUTABLE, options, n, list)
			: CL_OUT_OF_HOST_MEMORY;
	} else { /* a binary has its options */
		rc = hfcl_build(p, HFCL_LINKED, CL_PROGRAM_BINARY_TYPE_EXECUTABLE, options, n, list);
		rc = rc == CL_LINK_PROGRAM_FAILURE ? CL_BUILD_PROGRAM_FAILURE
			: rc == CL_INVALID_LINKER_OPTIONS ? CL_INVALID_BUILD_OPTIONS
											  : rc;
	}
	pthread_mutex_unlock(&p->lock);
	if (notify != NULL && rc != CL_INVALID_OPERATION) {
		notify(p, data); /* the build is over: it may be told before the call returns */
	}
	return rc;
}
