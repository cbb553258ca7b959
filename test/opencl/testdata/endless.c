/* A kernel that ends when somebody writes to its buffer, and nobody does. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <unistd.h>
#include "check.h"

static const char *source = "kernel void wait(global volatile int *stop) { while (*stop == 0) { } }";

int main(int argc, char **argv) {
	cl_int rc;
	cl_device_id device = first_device();
	cl_context context = context_of(device);
	cl_command_queue queue = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	cl_int zero = 0;
	cl_mem stop = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof zero, &zero, &rc);
	CHECK(rc);
	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
	cl_kernel kernel = clCreateKernel(program, "wait", &rc);
	CHECK(rc);
	CHECK(clSetKernelArg(kernel, 0, sizeof stop, &stop));
	cl_event launched;
	CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &(size_t){ 1 }, NULL, 0, NULL, &launched));
	CHECK(clFlush(queue));
	do {
		CHECK(clGetEventInfo(launched, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof rc, &rc, NULL));
	} while (rc == CL_QUEUED);
	printf("launched\n");
	fflush(stdout);
	if (argc > 1) {
		CHECK(clFinish(queue));
	}
	pause();
	return argv[0] == NULL;
}
