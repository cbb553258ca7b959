/* Counts in rounds on a device. All the time a launch with arguments of its own waits for a user event, a buffer is
   mapped, a thread waits for an event, and a call-back is due. Every few rounds these are ended, checked and begun
   again. It counts until ROUNDS are over or FILE is there. With "forget" as the third argument it has a planted bug:
   an argument of the counting kernel changes behind the program's back, and the count is wrong. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

static const char *text =
	"__kernel void count(__global uint *at, uint by) { at[get_global_id(0)] += by; }\n"
	"__kernel void late(__global uint *to, __global const uint *from, uint plus) {\n"
	"	size_t i = get_global_id(0); to[i] = from[i] + plus;\n"
	"}\n";

enum { N = 4096 };
static cl_context context;
static cl_command_queue q, side;
static atomic_int told, waited;

static void CL_CALLBACK tell(cl_event e, cl_int status, void *data) {
	(void)e;
	(void)data;
	atomic_fetch_add(&told, status == CL_COMPLETE ? 1 : 1 << 20);
}

static void *wait_for(void *e) {
	cl_event event = e;
	atomic_fetch_add(&waited, clWaitForEvents(1, &event) == CL_SUCCESS ? 1 : 1 << 20);
	return NULL;
}

static cl_mem buffer(cl_mem_flags flags) {
	cl_int rc;
	cl_mem m = clCreateBuffer(context, flags, N * 4, NULL, &rc);
	CHECK(rc);
	return m;
}

/* lost ends the program if the state of an event is that of a lost device. */
static void lost(cl_int state) {
	if (state == CL_DEVICE_NOT_AVAILABLE) {
		CHECK(state);
	}
}

static void wrong(const char *what, cl_uint round, cl_uint have, cl_uint want) {
	printf("wrong: %s in round %u: %u, want %u\n", what, round, have, want);
	exit(3);
}

int main(int argc, char **argv) {
	cl_int rc;
	const size_t all = N;
	const cl_uint zero = 0, by = 3;
	static cl_uint got[N];
	if (argc < 3) {
		fprintf(stderr, "usage: held ROUNDS FILE\n");
		return 2;
	}
	cl_uint rounds = (cl_uint)atoi(argv[1]), r = 0;
	cl_device_id d = first_device();
	context = context_of(d);
	q = clCreateCommandQueue(context, d, 0, &rc);
	CHECK(rc);
	side = clCreateCommandQueue(context, d, 0, &rc);
	CHECK(rc);
	cl_program p = clCreateProgramWithSource(context, 1, &text, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(p, 1, &d, "", NULL, NULL));
	cl_kernel count = clCreateKernel(p, "count", &rc), late = clCreateKernel(p, "late", &rc);
	CHECK(rc);
	cl_mem counter = buffer(0), to = buffer(0), seen = buffer(CL_MEM_ALLOC_HOST_PTR);
	CHECK(clEnqueueFillBuffer(q, counter, &zero, 4, 0, N * 4, 0, NULL, NULL));
	CHECK(clEnqueueFillBuffer(q, to, &zero, 4, 0, N * 4, 0, NULL, NULL));
	CHECK(clSetKernelArg(count, 0, sizeof counter, &counter)); /* once: a pause must keep it */
	CHECK(clSetKernelArg(count, 1, sizeof by, &by));
	printf("round 0\n");
	fflush(stdout);
	while (r < rounds && access(argv[2], F_OK) != 0) {
		cl_event gate = clCreateUserEvent(context, &rc), done, mapped;
		CHECK(rc);
		cl_uint plus = r * 7, begun = r;
		cl_mem from = buffer(CL_MEM_READ_ONLY);
		CHECK(clEnqueueFillBuffer(side, from, &r, 4, 0, N * 4, 0, NULL, NULL));
		CHECK(clSetKernelArg(late, 0, sizeof to, &to));
		CHECK(clSetKernelArg(late, 1, sizeof from, &from));
		CHECK(clSetKernelArg(late, 2, sizeof plus, &plus));
		CHECK(clEnqueueNDRangeKernel(side, late, 1, NULL, &all, NULL, 1, &gate, &done));
		plus = 1000000;
		CHECK(clSetKernelArg(late, 2, sizeof plus, &plus)); /* the launch has the one of before */
		CHECK(clReleaseMemObject(from));                    /* it keeps that */
		CHECK(clSetEventCallback(done, CL_COMPLETE, tell, NULL));
		pthread_t waiter;
		pthread_create(&waiter, NULL, wait_for, done);
		cl_uint *at = clEnqueueMapBuffer(q, seen, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, N * 4, 0, NULL, &mapped, &rc);
		CHECK(rc);
		for (cl_uint i = 0; i < N; i++) {
			at[i] = begun + i;
		}
		for (int i = 0; i < 5; i++, r++) {
			if (argc > 3 && r == 7) {
				CHECK(clSetKernelArg(count, 1, sizeof zero, &zero));
			}
			CHECK(clEnqueueNDRangeKernel(q, count, 1, NULL, &all, NULL, 0, NULL, NULL));
			CHECK(clEnqueueReadBuffer(q, counter, CL_TRUE, 0, N * 4, got, 0, NULL, NULL));
			for (cl_uint k = 0; k < N; k++) {
				if (got[k] != 3 * (r + 1)) {
					wrong("the count", r, got[k], 3 * (r + 1));
				}
				if (at[k] != begun + k) {
					wrong("mapped bytes", r, at[k], begun + k);
				}
			}
		}
		cl_int state;
		CHECK(clGetEventInfo(mapped, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
		lost(state);
		if (state != CL_COMPLETE) {
			wrong("the event of the mapping", r, (cl_uint)state, CL_COMPLETE);
		}
		CHECK(clReleaseEvent(mapped));
		CHECK(clEnqueueUnmapMemObject(q, seen, at, 0, NULL, NULL));
		CHECK(clEnqueueReadBuffer(q, seen, CL_TRUE, 0, N * 4, got, 0, NULL, NULL));
		if (got[N - 1] != begun + N - 1) {
			wrong("what was mapped", r, got[N - 1], begun + N - 1);
		}
		CHECK(clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
		lost(state);
		if (state <= CL_COMPLETE) {
			wrong("a launch whose user event is not set", r, (cl_uint)state, CL_QUEUED);
		}
		CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
		pthread_join(waiter, NULL);
		CHECK(clEnqueueReadBuffer(side, to, CL_TRUE, 0, N * 4, got, 0, NULL, NULL));
		if (got[5] != begun * 8) {
			wrong("the late launch", r, got[5], begun * 8);
		}
		CHECK(clReleaseEvent(gate));
		CHECK(clReleaseEvent(done));
		printf("round %u\n", r);
		fflush(stdout);
	}
	while (atomic_load(&told) < atomic_load(&waited)) {
		usleep(1000);
	}
	if (atomic_load(&told) * 5 != (int)r || atomic_load(&waited) * 5 != (int)r) {
		wrong("call-backs", r, (cl_uint)atomic_load(&told), r / 5);
	}
	printf("counted %u\n", r);
	return 0;
}
