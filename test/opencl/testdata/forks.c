/* Forks: the child has no device and stays, the parent has one and waits to be killed. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <unistd.h>
#include "check.h"

int main(void) {
	cl_int rc;
	cl_device_id device = first_device();
	cl_context context = context_of(device);
	cl_command_queue queue = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	int ends[2];
	char c;
	if (pipe(ends) != 0) {
		return 1;
	}
	if (fork() == 0) {
		printf("child %d\n", clFinish(queue));
		fflush(stdout);
		if (write(ends[1], "", 1) != 1) {
			return 1;
		}
		for (;;) {
			pause();
		}
	}
	if (read(ends[0], &c, 1) != 1) {
		return 1;
	}
	CHECK(clFinish(queue));
	printf("forked\n");
	fflush(stdout);
	for (;;) {
		pause();
	}
}
