/* Builds one program for each device of a context by itself, with options of its own, and again for some; loads the
   binaries of all; compiles and links for some devices alone. Prints what the kernels give. With a file name it stands
   still before the last launches until the file is there. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

enum { MOST = 2 };
static cl_device_id devices[MOST];
static cl_context context;
static cl_command_queue queues[MOST];
static const char *source = "__kernel void give(__global int *to) { to[0] = VALUE; }\n";
static const char *caller = "int value(void);\n__kernel void give(__global int *to) { to[0] = value() + MORE; }\n";
static const char *called = "int value(void) { return VALUE; }\n";

static cl_program program_of(const char *text) {
	cl_int rc;
	cl_program p = clCreateProgramWithSource(context, 1, &text, NULL, &rc);
	CHECK(rc);
	return p;
}

/* tell prints what each device has of a program. */
static void tell(const char *what, cl_program p) {
	size_t sizes[MOST] = { 0 };
	CHECK(clGetProgramInfo(p, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL));
	for (int i = 0; i < MOST; i++) {
		cl_build_status status;
		char options[64];
		CHECK(clGetProgramBuildInfo(p, devices[i], CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
		CHECK(clGetProgramBuildInfo(p, devices[i], CL_PROGRAM_BUILD_OPTIONS, sizeof options, options, NULL));
		printf("%s, device %d: status %d, options \"%s\", binary %d\n", what, i, status, options, sizes[i] > 0);
	}
}

/* launch prints what a kernel gives on each device. */
static void launch(const char *what, cl_program p) {
	cl_int rc, got;
	cl_kernel k = clCreateKernel(p, "give", &rc);
	if (rc != CL_SUCCESS) {
		printf("%s: no kernel, %d\n", what, rc);
		return;
	}
	cl_mem m = clCreateBuffer(context, CL_MEM_WRITE_ONLY, sizeof got, NULL, &rc);
	CHECK(rc);
	CHECK(clSetKernelArg(k, 0, sizeof m, &m));
	for (int i = 0; i < MOST; i++) {
		rc = clEnqueueTask(queues[i], k, 0, NULL, NULL);
		if (rc != CL_SUCCESS) {
			printf("%s, device %d: %d\n", what, i, rc);
			continue;
		}
		CHECK(clEnqueueReadBuffer(queues[i], m, CL_TRUE, 0, sizeof got, &got, 0, NULL, NULL));
		printf("%s, device %d: gives %d\n", what, i, got);
	}
	CHECK(clReleaseKernel(k));
	CHECK(clReleaseMemObject(m));
}

/* reload makes a program of the binaries of another one. */
static cl_program reload(cl_program p) {
	size_t sizes[MOST];
	unsigned char *bytes[MOST];
	cl_int rc;
	CHECK(clGetProgramInfo(p, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL));
	for (int i = 0; i < MOST; i++) {
		bytes[i] = malloc(sizes[i]);
	}
	CHECK(clGetProgramInfo(p, CL_PROGRAM_BINARIES, sizeof bytes, bytes, NULL));
	const unsigned char **list = (const unsigned char **)bytes;
	cl_program loaded = clCreateProgramWithBinary(context, MOST, devices, sizes, list, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(loaded, 0, NULL, NULL, NULL, NULL));
	for (int i = 0; i < MOST; i++) {
		free(bytes[i]);
	}
	return loaded;
}

/* declare_apart builds a kernel that has more arguments on the first device. */
static void declare_apart(void) {
	cl_program p = program_of("#ifdef MORE\n"
		"__kernel void give(__global int *to, int more) { to[0] = more; }\n"
		"#else\n"
		"__kernel void give(__global int *to) { to[0] = 1; }\n"
		"#endif\n");
	CHECK(clBuildProgram(p, 1, &devices[0], "-DMORE", NULL, NULL));
	CHECK(clBuildProgram(p, 1, &devices[1], "", NULL, NULL));
	cl_int rc;
	cl_kernel k = clCreateKernel(p, "give", &rc);
	printf("declared apart: %d\n", rc);
	if (rc == CL_SUCCESS) {
		printf("declared apart, argument 1: %d\n", clSetKernelArg(k, 1, sizeof rc, &rc));
	}
	CHECK(clReleaseProgram(p));
}

/* compile_one compiles for the first device what both have kernels of. */
static void compile_one(void) {
	cl_program p = program_of(source);
	CHECK(clBuildProgram(p, 0, NULL, "-DVALUE=7", NULL, NULL));
	CHECK(clCompileProgram(p, 1, &devices[0], "-DVALUE=8", 0, NULL, NULL, NULL, NULL));
	launch("compiled for the first", p);
	CHECK(clReleaseProgram(p));
}

static void link_some(void) {
	cl_int rc;
	cl_program p[2] = { program_of(caller), program_of(called) };
	CHECK(clCompileProgram(p[0], 1, &devices[0], "-DMORE=100", 0, NULL, NULL, NULL, NULL));
	CHECK(clCompileProgram(p[1], 1, &devices[0], "-DVALUE=5", 0, NULL, NULL, NULL, NULL));
	cl_program one = clLinkProgram(context, 1, devices, "", 2, p, NULL, NULL, &rc);
	CHECK(rc);
	launch("linked for the first", one);
	CHECK(clCompileProgram(p[0], 1, &devices[1], "-DMORE=200", 0, NULL, NULL, NULL, NULL));
	clLinkProgram(context, MOST, devices, "", 2, p, NULL, NULL, &rc);
	printf("linked with a part for one device: %d\n", rc);
	CHECK(clCompileProgram(p[1], 1, &devices[1], "-DVALUE=6", 0, NULL, NULL, NULL, NULL));
	cl_program both = clLinkProgram(context, 0, NULL, "", 2, p, NULL, NULL, &rc);
	CHECK(rc);
	launch("linked for both", both);
	cl_program library = clLinkProgram(context, 0, NULL, "-create-library", 1, &p[1], NULL, NULL, &rc);
	CHECK(rc);
	cl_program parts[2] = { p[0], library }, with = clLinkProgram(context, 0, NULL, "", 2, parts, NULL, NULL, &rc);
	CHECK(rc);
	launch("linked with a library", with);
	cl_program all[] = { one, both, library, with, p[0], p[1] };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		CHECK(clReleaseProgram(all[i]));
	}
}

int main(int argc, char **argv) {
	cl_platform_id platform;
	cl_int rc;
	cl_uint n;
	CHECK(clGetPlatformIDs(1, &platform, NULL));
	CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MOST, devices, &n));
	if (n < MOST) {
		printf("%u devices\n", n);
		return 1;
	}
	context = clCreateContext(NULL, MOST, devices, NULL, NULL, &rc);
	CHECK(rc);
	for (int i = 0; i < MOST; i++) {
		queues[i] = clCreateCommandQueue(context, devices[i], 0, &rc);
		CHECK(rc);
	}
	cl_program p = program_of(source);
	CHECK(clBuildProgram(p, 1, &devices[0], "-DVALUE=1", NULL, NULL));
	launch("built for the first", p);
	CHECK(clBuildProgram(p, 1, &devices[1], "-DVALUE=2", NULL, NULL));
	tell("built for both", p);
	launch("built for both", p);
	CHECK(clBuildProgram(p, 1, &devices[0], "-DVALUE=3", NULL, NULL));
	launch("built again for the first", p);
	printf("fails for the second: %d\n", clBuildProgram(p, 1, &devices[1], "-DVALUE=none", NULL, NULL));
	tell("failed for the second", p);
	launch("failed for the second", p);
	CHECK(clBuildProgram(p, 1, &devices[1], "-DVALUE=4", NULL, NULL));
	cl_program loaded = reload(p);
	launch("of binaries", loaded);
	link_some();
	compile_one();
	declare_apart();
	if (argc > 1) {
		printf("half\n");
		fflush(stdout);
		while (access(argv[1], F_OK) != 0) {
			usleep(10000);
		}
	}
	launch("later", p);
	launch("of binaries, later", loaded);
	CHECK(clBuildProgram(p, 0, NULL, "-DVALUE=9", NULL, NULL));
	launch("built for all", p);
	CHECK(clReleaseProgram(loaded));
	CHECK(clReleaseProgram(p));
	return 0;
}
