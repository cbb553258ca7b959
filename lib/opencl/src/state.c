/* The state of all objects as bytes, for checkpoints of the program: lib/holdfast_opencl.h. */
#include "hfcl.h"

_Atomic int hfcl_mapped;

/* hfcl_capture completes all commands and gives the bytes of the state to a function, which returns 0 when it has them.
   Objects that are mapped have bytes that the device does not know: CL_MAP_FAILURE. */
cl_int hfcl_capture(int (*take)(const void *, size_t, void *), void *data) {
	if (take == NULL) {
		return CL_INVALID_VALUE;
	}
	if (atomic_load(&hfcl_mapped) > 0) {
		return CL_MAP_FAILURE;
	}
	if (!hfcl_connect()) {
		return CL_DEVICE_NOT_AVAILABLE;
	}
	struct call c;
	hfcl_begin(&c, HFCL_CAPTURE);
	cl_int rc = hfcl_run(&c, NULL, NULL);
	size_t size = rc == CL_SUCCESS ? (size_t)hfcl_get64(&c) : 0;
	hfcl_end(&c);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	void *state = malloc(size);
	if (state == NULL) {
		return CL_OUT_OF_HOST_MEMORY;
	}
	struct rows all = hfcl_linear(state, size);
	hfcl_begin(&c, HFCL_STATE);
	rc = hfcl_run(&c, NULL, &all);
	hfcl_end(&c);
	if (rc == CL_SUCCESS && take(state, size, data) != 0) {
		rc = CL_OUT_OF_RESOURCES;
	}
	free(state);
	return rc;
}

/* hfcl_restore brings a state into the objects that the program has made, and into those that it makes in the same
   order later. */
cl_int hfcl_restore(const void *state, size_t bytes) {
	if (state == NULL || bytes == 0) {
		return CL_INVALID_VALUE;
	}
	if (atomic_load(&hfcl_mapped) > 0) {
		return CL_MAP_FAILURE;
	}
	if (!hfcl_connect()) {
		return CL_DEVICE_NOT_AVAILABLE;
	}
	struct rows all = hfcl_linear((void *)(uintptr_t)state, bytes);
	struct call c;
	hfcl_begin(&c, HFCL_RESTORE);
	cl_int rc = hfcl_run(&c, &all, NULL);
	hfcl_end(&c);
	return rc;
}
