/* Waits for a marker behind two kernels, 20 times. Prints how often the state of one of them was then not complete. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include "check.h"

static const char *source = "kernel void work(global int *a) { for (int i = 0; i < 100000; i++) a[0] += i ^ a[0]; }";

int main(void) {
	cl_int rc, state;
	cl_device_id device = first_device();
	cl_context context = context_of(device);
	cl_command_queue queue = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(program, 1, &device, NULL, NULL, NULL));
	cl_kernel work = clCreateKernel(program, "work", &rc);
	CHECK(rc);
	cl_mem a = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof(cl_int), NULL, &rc);
	CHECK(rc);
	CHECK(clSetKernelArg(work, 0, sizeof a, &a));
	int early = 0;
	for (int i = 0; i < 20; i++) {
		cl_event events[3];
		for (int k = 0; k < 2; k++) {
			CHECK(clEnqueueNDRangeKernel(queue, work, 1, NULL, &(size_t){ 1 }, NULL, 0, NULL, &events[k]));
		}
		CHECK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &events[2]));
		CHECK(clWaitForEvents(1, &events[2]));
		for (int k = 0; k < 3; k++) {
			CHECK(clGetEventInfo(events[k], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
			early += state != CL_COMPLETE;
			CHECK(clReleaseEvent(events[k]));
		}
	}
	printf("%d not complete\n", early);
	return 0;
}
