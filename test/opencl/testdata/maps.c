/* Threads that make buffers, map each twice, check and change what it shows, until FILE is there: new memory is often
   on its way to the helper. Prints "going" when all threads are under way, and "over" at the end.

   usage: maps FILE */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include "check.h"

enum { THREADS = 6, BUFFERS = 16, WORDS = 4096 };
static cl_context context;
static cl_device_id device;
static const char *file;
static atomic_int begun;

/* change maps a buffer whose words have a value, and adds 1 to each. */
static void change(cl_command_queue q, cl_mem m, cl_uint value) {
	cl_int rc;
	cl_uint *at = clEnqueueMapBuffer(q, m, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, WORDS * 4, 0, NULL, NULL, &rc);
	CHECK(rc);
	for (cl_uint i = 0; i < WORDS; i++) {
		if (at[i] != value) {
			printf("wrong: word %u is %u, want %u\n", i, at[i], value);
			exit(3);
		}
		at[i] = value + 1;
	}
	CHECK(clEnqueueUnmapMemObject(q, m, at, 0, NULL, NULL));
}

static void *work(void *unused) {
	cl_int rc;
	(void)unused;
	cl_command_queue q = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	for (cl_uint n = 0; access(file, F_OK) != 0; n++) {
		cl_mem list[BUFFERS]; /* each gets memory of its own when it is mapped for the first time */
		for (cl_uint k = 0; k < BUFFERS; k++) {
			cl_uint value = n + k;
			list[k] = clCreateBuffer(context, 0, WORDS * 4, NULL, &rc);
			CHECK(rc);
			CHECK(clEnqueueFillBuffer(q, list[k], &value, 4, 0, WORDS * 4, 0, NULL, NULL));
		}
		for (cl_uint k = 0; k < 2 * BUFFERS; k++) {
			change(q, list[k % BUFFERS], n + k % BUFFERS + k / BUFFERS);
		}
		for (cl_uint k = 0; k < BUFFERS; k++) {
			CHECK(clReleaseMemObject(list[k]));
		}
		if (n == 0) {
			atomic_fetch_add(&begun, 1);
		}
	}
	CHECK(clFinish(q));
	return NULL;
}

int main(int argc, char **argv) {
	pthread_t threads[THREADS];
	if (argc < 2) {
		fprintf(stderr, "usage: maps FILE\n");
		return 2;
	}
	file = argv[1];
	device = first_device();
	context = context_of(device);
	for (int i = 0; i < THREADS; i++) {
		pthread_create(&threads[i], NULL, work, NULL);
	}
	while (atomic_load(&begun) < THREADS) {
		usleep(1000);
	}
	printf("going\n");
	fflush(stdout);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
	}
	printf("over\n");
	return 0;
}
