/* Cancels threads wherever they wait: other threads go on, and what the device holds is right. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <semaphore.h>
#include "check.h"

enum { WORDS = 1 << 17, BYTES = WORDS * 4, ROUNDS = 60 };

static cl_context context;
static cl_command_queue queue;
static sem_t began;
static cl_int bytes[2][WORDS];

static void *waits(void *arg) {
	size_t which = (size_t)arg;
	cl_int rc;
	cl_mem m = clCreateBuffer(context, CL_MEM_READ_WRITE, BYTES, NULL, &rc);
	CHECK(rc);
	for (sem_post(&began);; pthread_testcancel()) {
		cl_event e;
		CHECK(clEnqueueFillBuffer(queue, m, &(cl_int){ 1 }, 4, 0, BYTES, 0, NULL, NULL));
		if (which == 0) {
			CHECK(clFinish(queue));
			continue;
		}
		CHECK(clEnqueueReadBuffer(queue, m, CL_FALSE, 0, BYTES, bytes[which], 0, NULL, &e));
		CHECK(clWaitForEvents(1, &e));
		CHECK(clReleaseEvent(e));
		CHECK(clEnqueueWriteBuffer(queue, m, CL_TRUE, 0, BYTES, bytes[which], 0, NULL, NULL));
	}
	return NULL;
}

int main(void) {
	cl_int rc, sum = 0;
	cl_device_id device = first_device();
	context = context_of(device);
	queue = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	cl_mem mine = clCreateBuffer(context, CL_MEM_READ_WRITE, BYTES, NULL, &rc);
	CHECK(rc);
	sem_init(&began, 0, 0);
	for (cl_int i = 0; i < ROUNDS; i++) {
		pthread_t all[2];
		for (size_t t = 0; t < 2; t++) {
			if (pthread_create(&all[t], NULL, waits, (void *)t) != 0) {
				return 1;
			}
			sem_wait(&began);
		}
		CHECK(clEnqueueFillBuffer(queue, mine, &i, 4, 0, BYTES, 0, NULL, NULL));
		for (int t = 0; t < 2; t++) {
			pthread_cancel(all[t]);
		}
		for (int t = 0; t < 2; t++) {
			pthread_join(all[t], NULL);
		}
		CHECK(clEnqueueReadBuffer(queue, mine, CL_TRUE, 0, BYTES, bytes[0], 0, NULL, NULL));
		sum += bytes[0][0] + bytes[0][WORDS - 1];
	}
	printf("sum %d\n", sum);
	return 0;
}
