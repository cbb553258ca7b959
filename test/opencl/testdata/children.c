/* Forks again and again while other threads call. A child has no device: what it asks ends, also where a thread that it
   has not had a lock of the library's. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

enum { CALLERS = 4, CHILDREN = 400, LONG = 60 };
static cl_event gate;
static cl_context context;
static atomic_bool over;

static void *look(void *unused) {
	(void)unused;
	while (!atomic_load(&over)) {
		cl_int status;
		CHECK(clGetEventInfo(gate, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
	}
	return NULL;
}

/* child is what a child does. A lock that nobody gives back lets the alarm end it. */
static int child(void) {
	alarm(LONG);
	return clWaitForEvents(1, &gate) == CL_DEVICE_NOT_AVAILABLE ? 0 : 1;
}

int main(void) {
	cl_platform_id platform;
	cl_device_id device;
	cl_int rc;
	CHECK(clGetPlatformIDs(1, &platform, NULL));
	CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &rc);
	CHECK(rc);
	gate = clCreateUserEvent(context, &rc);
	CHECK(rc);
	pthread_t list[CALLERS];
	for (int i = 0; i < CALLERS; i++) {
		if (pthread_create(&list[i], NULL, look, NULL) != 0) {
			return 1;
		}
	}
	int bad = 0;
	for (int i = 0; i < CHILDREN && bad == 0; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			_exit(child());
		}
		if (pid < 0 || waitpid(pid, &bad, 0) != pid || bad != 0) {
			printf("child %d: %#x\n", i, bad);
		}
	}
	atomic_store(&over, true);
	for (int i = 0; i < CALLERS; i++) {
		pthread_join(list[i], NULL);
	}
	printf("over\n");
	return 0;
}
