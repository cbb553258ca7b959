/* holdfast_opencl.h - the OpenCL objects of a process in its checkpoints.
 *
 * For a program that uses OpenCL through libholdfast-opencl.so (docs/OPENCL.md) and takes checkpoints with libholdfast.
 * Link it with -lholdfast -lOpenCL.
 *
 *     hf_init(NULL);
 *     hf_protect("step", &step, 1, HF_INT32);
 *     hf_protect_opencl(platform);                  // in place of one hf_protect for each buffer
 *     ... create contexts, buffers, images, programs, kernels; fill them ...
 *     if (hf_restore() == HF_RESTORED)
 *         hf_restore_opencl(platform);              // they have the bytes of the checkpoint
 *     while (step < steps && hf_point() != HF_STOP) // drains the queues when a checkpoint is taken
 *         ...
 *
 * A restarted program makes its objects in the same order as before, which identifies them. The device may be of
 * another platform or vendor. Contents of buffers and images come back; arguments of kernels, events and mappings do
 * not, so end mappings before hf_point and set arguments before launches. A checkpoint fails while something is
 * mapped, and while a command waits for a user event that is not set. Take none while other threads use OpenCL.
 *
 * Calls return HF_OK or a negative HF_E_ code. If a call of OpenCL fails it is HF_E_FAILED, and hf_opencl_error returns
 * OpenCL's number.
 */
#ifndef HOLDFAST_OPENCL_H
#define HOLDFAST_OPENCL_H

#include <CL/cl.h>
#include <stdlib.h>

#include "holdfast.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef cl_int (*hf_opencl_capture_fn)(int (*take)(const void *, size_t, void *), void *data);
typedef cl_int (*hf_opencl_restore_fn)(const void *state, size_t bytes);

static cl_int hf_opencl_error_code;

/* Returns the last error of OpenCL; 0: none. Local. CL_INVALID_PLATFORM: the platform is not Holdfast's. */
static inline cl_int hf_opencl_error(void) { return hf_opencl_error_code; }

static inline int hf_opencl_note_(cl_int rc) {
	hf_opencl_error_code = rc;
	return rc == CL_SUCCESS ? HF_OK : HF_E_FAILED;
}

static inline int hf_opencl_take_(const void *state, size_t bytes, void *file) {
	return fwrite(state, 1, bytes, (FILE *)file) == bytes ? 0 : 1;
}

/* Writes the state of all OpenCL objects to the stream "opencl". Local. hf_protect_opencl registers it with hf_before;
 * a program with a hf_before function of its own calls it there. arg is the platform. */
static inline int hf_save_opencl(void *arg) {
	hf_opencl_capture_fn capture =
		(hf_opencl_capture_fn)clGetExtensionFunctionAddressForPlatform((cl_platform_id)arg, "holdfastCapture");
	if (capture == NULL) {
		return hf_opencl_note_(CL_INVALID_PLATFORM);
	}
	FILE *f = hf_fopen("opencl", "w");
	if (f == NULL) {
		return HF_E_FAILED;
	}
	int code = hf_opencl_note_(capture(hf_opencl_take_, f));
	if (fclose(f) != 0 && code == HF_OK) {
		code = HF_E_FAILED;
	}
	return code;
}

/* Makes the state of all OpenCL objects part of every checkpoint. Local, after hf_init and before hf_restore. It
 * replaces the function of hf_before, of which there is one. */
static inline int hf_protect_opencl(cl_platform_id platform) {
	if (clGetExtensionFunctionAddressForPlatform(platform, "holdfastCapture") == NULL) {
		return hf_opencl_note_(CL_INVALID_PLATFORM);
	}
	int code = hf_protect_stream("opencl");
	return code == HF_OK ? hf_before(hf_save_opencl, platform) : code;
}

/* Restores the contents of the objects made so far, and of those that the program makes later in the same order.
 * Local, after hf_restore has returned HF_RESTORED, before commands. */
static inline int hf_restore_opencl(cl_platform_id platform) {
	hf_opencl_restore_fn restore =
		(hf_opencl_restore_fn)clGetExtensionFunctionAddressForPlatform(platform, "holdfastRestore");
	if (restore == NULL) {
		return hf_opencl_note_(CL_INVALID_PLATFORM);
	}
	FILE *f = hf_fopen("opencl", "r");
	if (f == NULL) {
		return HF_E_FAILED;
	}
	char *state = NULL;
	size_t n = 0, room = 0, got = 0;
	do {
		n += got;
		if (n == room) {
			room = room == 0 ? 1 << 20 : 2 * room;
			char *more = (char *)realloc(state, room);
			if (more == NULL) {
				free(state);
				fclose(f);
				return HF_E_MEMORY;
			}
			state = more;
		}
		got = fread(state + n, 1, room - n, f);
	} while (got > 0);
	fclose(f);
	int code = hf_opencl_note_(restore(state, n));
	free(state);
	return code;
}

#ifdef __cplusplus
}
#endif
#endif
