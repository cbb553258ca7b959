/* Threads that call at the same time, more mappings than a process may have files, and more threads that wait than the
   server answers at once. Prints what came out wrong.

   usage: few THREADS-THAT-WAIT */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <string.h>
#include "check.h"

enum { CALLERS = 40, MAPPINGS = 100, INTS = 16384 };
static cl_context context;
static cl_command_queue queue;
static cl_event gate;
static pthread_barrier_t together;

static void create_and_read(int mine) {
	int host[256];
	for (int round = 0; round < 20; round++) {
		cl_int rc;
		for (int i = 0; i < 256; i++) {
			host[i] = mine * 100 + round;
		}
		cl_mem m = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof host, host, &rc);
		CHECK(rc);
		memset(host, 0, sizeof host);
		CHECK(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, sizeof host, host, 0, NULL, NULL));
		if (host[255] != mine * 100 + round) {
			printf("thread %d, round %d: %d\n", mine, round, host[255]);
		}
		CHECK(clReleaseMemObject(m));
	}
}

static void *call(void *arg) {
	pthread_barrier_wait(&together);
	create_and_read((int)(size_t)arg);
	return NULL;
}

static void *wait_for_gate(void *unused) {
	(void)unused;
	pthread_barrier_wait(&together);
	CHECK(clWaitForEvents(1, &gate));
	return NULL;
}

/* in_threads runs a function in so many threads; then is called when all have begun. */
static void in_threads(int n, void *(*run)(void *), void (*then)(void)) {
	pthread_t list[n];
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 18);
	pthread_barrier_init(&together, NULL, (unsigned)n + 1);
	for (int i = 0; i < n; i++) {
		if (pthread_create(&list[i], &small, run, (void *)(size_t)i) != 0) {
			printf("no thread %d\n", i);
			exit(1);
		}
	}
	pthread_barrier_wait(&together);
	if (then != NULL) {
		then();
	}
	for (int i = 0; i < n; i++) {
		pthread_join(list[i], NULL);
	}
}

static void open_gate(void) {
	create_and_read(0); /* calls of other threads go on */
	CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
}

static void map(void) {
	cl_mem list[MAPPINGS];
	int *at[MAPPINGS];
	cl_int rc;
	for (int i = 0; i < MAPPINGS; i++) {
		list[i] = clCreateBuffer(context, CL_MEM_ALLOC_HOST_PTR, INTS * sizeof(int), NULL, &rc);
		CHECK(rc);
		at[i] = clEnqueueMapBuffer(queue, list[i], CL_TRUE, CL_MAP_WRITE, 0, INTS * sizeof(int), 0, NULL, NULL, &rc);
		CHECK(rc);
		for (int k = 0; k < INTS; k++) {
			at[i][k] = i;
		}
	}
	for (int i = 0; i < MAPPINGS; i++) {
		int last;
		CHECK(clEnqueueUnmapMemObject(queue, list[i], at[i], 0, NULL, NULL));
		CHECK(clEnqueueReadBuffer(queue, list[i], CL_TRUE, (INTS - 1) * sizeof last, sizeof last, &last, 0, NULL,
			NULL));
		if (last != i) {
			printf("mapping %d: %d\n", i, last);
		}
		CHECK(clReleaseMemObject(list[i]));
	}
}

int main(int argc, char **argv) {
	cl_int rc;
	cl_device_id device = first_device();
	context = context_of(device);
	queue = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	gate = clCreateUserEvent(context, &rc);
	CHECK(rc);
	in_threads(CALLERS, call, NULL);
	map();
	in_threads(argc > 1 ? atoi(argv[1]) : 1, wait_for_gate, open_gate);
	printf("over\n");
	return 0;
}
