/* Short kernels, and behind them on the same queue one that never ends. Each way to learn that a short one is complete
   learns it. With an argument no other queue is used. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <unistd.h>
#include "check.h"

static const char *source = "kernel void wait(global volatile int *stop) { while (*stop == 0) { } }";

static struct {
	pthread_mutex_t lock;
	pthread_cond_t told;
	int done;
} call_back = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 };

static void CL_CALLBACK tell(cl_event event, cl_int state, void *data) {
	pthread_mutex_lock(&call_back.lock);
	call_back.done = 1;
	pthread_cond_signal(&call_back.told);
	pthread_mutex_unlock(&call_back.lock);
}

static void say(const char *what) {
	printf("%s\n", what);
	fflush(stdout);
}

int main(int argc, char **argv) {
	alarm(120); /* a way that hangs is to be seen before the test gives up */
	cl_int rc, state, values[2] = { 1, 0 };
	cl_device_id device = first_device();
	cl_context context = context_of(device);
	cl_command_queue queue = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	cl_command_queue other = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(program, 1, &device, NULL, NULL, NULL));
	cl_kernel wait = clCreateKernel(program, "wait", &rc);
	CHECK(rc);
	cl_mem stop[2];
	for (int i = 0; i < 2; i++) {
		stop[i] = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(cl_int), &values[i], &rc);
		CHECK(rc);
	}
	CHECK(clSetKernelArg(wait, 0, sizeof stop[0], &stop[0]));
	cl_event is[4], gate = clCreateUserEvent(context, &rc);
	CHECK(rc);
	for (int i = 0; i < 4; i++) {
		CHECK(clEnqueueNDRangeKernel(queue, wait, 1, NULL, &(size_t){ 1 }, NULL, 0, NULL, &is[i]));
		if (i == 1) {
			CHECK(clSetEventCallback(is[1], CL_COMPLETE, tell, NULL));
			CHECK(clReleaseEvent(is[1]));
		}
		if (i == 2 && argc == 1) { /* what waits for it is issued later */
			CHECK(clEnqueueMarkerWithWaitList(other, 2, (cl_event[]){ is[2], gate }, NULL));
			CHECK(clReleaseEvent(is[2]));
		}
	}
	CHECK(clSetKernelArg(wait, 0, sizeof stop[1], &stop[1]));
	CHECK(clEnqueueNDRangeKernel(queue, wait, 1, NULL, &(size_t){ 1 }, NULL, 0, NULL, NULL));
	CHECK(clFlush(queue));
	CHECK(clWaitForEvents(1, &is[0]));
	say("waited");
	pthread_mutex_lock(&call_back.lock);
	while (!call_back.done) {
		pthread_cond_wait(&call_back.told, &call_back.lock);
	}
	pthread_mutex_unlock(&call_back.lock);
	say("called");
	if (argc == 1) {
		CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
		CHECK(clFinish(other));
		say("went on");
	}
	do {
		CHECK(clGetEventInfo(is[3], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
	} while (state > CL_COMPLETE);
	say("polled");
	_exit(state != CL_COMPLETE);
}
