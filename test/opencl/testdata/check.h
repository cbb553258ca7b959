/* What all programs begin with. Include it after CL/cl.h. CHECK ends a program whose OpenCL call fails, and says which. */
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call) check(call, #call, __LINE__)
static void check(cl_int rc, const char *call, int line) {
	if (rc != CL_SUCCESS) {
		fprintf(stderr, "line %d: %s: %d\n", line, call, rc);
		exit(1);
	}
}

/* first_device is the first device of the first platform. */
static inline cl_device_id first_device(void) {
	cl_platform_id platform;
	cl_device_id device;
	CHECK(clGetPlatformIDs(1, &platform, NULL));
	CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
	return device;
}

/* context_of is a context of one device. */
static inline cl_context context_of(cl_device_id device) {
	cl_int rc;
	cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &rc);
	CHECK(rc);
	return context;
}
