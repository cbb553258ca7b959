/* Kernels that take a while: one of them is seen at work, and none of them is at work when it is complete. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include "check.h"

static const char *source = "kernel void spin(global volatile int *n) { for (int i = 0; i < 100000000; i++) *n = i; }";

int main(void) {
	cl_int rc, state, seen = 0;
	cl_device_id device = first_device();
	cl_context context = context_of(device);
	cl_command_queue queue = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(program, 1, &device, NULL, NULL, NULL));
	cl_kernel spin = clCreateKernel(program, "spin", &rc);
	CHECK(rc);
	cl_mem n = clCreateBuffer(context, 0, sizeof(cl_int), NULL, &rc);
	CHECK(rc);
	CHECK(clSetKernelArg(spin, 0, sizeof n, &n));
	for (int i = 0; i < 100 && !seen; i++) { /* a busy machine may let this thread sleep through one */
		cl_event is;
		CHECK(clEnqueueNDRangeKernel(queue, spin, 1, NULL, &(size_t){ 1 }, NULL, 0, NULL, &is));
		CHECK(clFlush(queue));
		do {
			CHECK(clGetEventInfo(is, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
			seen |= state == CL_RUNNING;
		} while (state > CL_COMPLETE);
		CHECK(clReleaseEvent(is));
	}
	printf("running %d, then %d\n", seen, state);
	return 0;
}
