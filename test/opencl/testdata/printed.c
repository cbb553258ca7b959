/* Launches kernels that read a constant table and print it, which the process with the device does. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include "check.h"

static const char *source =
	"__constant int table[4] = { 5, 6, 7, 8 };\n"
	"__kernel void look(__global int *to, int at) { to[0] = table[at]; printf(\"kernel: %d\\n\", table[at]); }\n";

int main(void) {
	cl_int rc, got;
	cl_device_id device = first_device();
	cl_context context = context_of(device);
	cl_command_queue queue = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	cl_program p = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(p, 1, &device, "", NULL, NULL));
	cl_kernel k = clCreateKernel(p, "look", &rc);
	CHECK(rc);
	cl_mem m = clCreateBuffer(context, CL_MEM_WRITE_ONLY, sizeof got, NULL, &rc);
	CHECK(rc);
	CHECK(clSetKernelArg(k, 0, sizeof m, &m));
	for (int at = 0; at < 4; at++) {
		CHECK(clSetKernelArg(k, 1, sizeof at, &at));
		CHECK(clEnqueueTask(queue, k, 0, NULL, NULL));
		CHECK(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, sizeof got, &got, 0, NULL, NULL));
		fprintf(stderr, "got %d\n", got);
	}
	return 0;
}
