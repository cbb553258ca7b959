/* A thread for each way to wait, each for something that only the server can end, or that a user event holds back
   which nobody sets. Prints "waiting" when all are under way; then its server is killed, and each wait has to end with
   an error. Prints these, the call-backs that were called with an error, and what the context was told. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

enum { WORDS = 4 << 20, SIDE = 32 }; /* a transfer of more than all slots */

static cl_context context;
static cl_device_id device;
static cl_program program;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int begun, called, failed_calls, told, told_again, other_told;
static char text[400];

struct waiter {
	pthread_t thread;
	const char *name;
	cl_int (*wait)(struct waiter *);
	cl_command_queue_properties properties;
	cl_command_queue queue;
	cl_mem buffer, image;
	cl_kernel kernel;
	cl_event gate, event;
	char *host;
	cl_int got;
};

static void count(int *n) {
	pthread_mutex_lock(&lock);
	++*n;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void until(const int *n, int want) {
	pthread_mutex_lock(&lock);
	while (*n < want) {
		pthread_cond_wait(&changed, &lock);
	}
	pthread_mutex_unlock(&lock);
}

static void CL_CALLBACK called_back(cl_event e, cl_int status, void *data) {
	(void)e, (void)data;
	if (status < 0) {
		count(&failed_calls);
	}
	count(&called);
}

static void CL_CALLBACK lost(const char *why, const void *info, size_t n, void *data) {
	(void)info, (void)n;
	pthread_mutex_lock(&lock);
	snprintf(text, sizeof text, "%s", why);
	pthread_mutex_unlock(&lock);
	cl_uint refs;
	clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof refs, &refs, NULL); /* it may call the API */
	count(data == &told ? (told == 0 ? &told : &told_again) : &other_told);
}

/* fill_gated gives a command that waits for the gate. */
static void fill_gated(struct waiter *w) {
	const cl_uint word = 7;
	CHECK(clEnqueueFillBuffer(w->queue, w->buffer, &word, 4, 0, 4 * WORDS, 1, &w->gate, &w->event));
}

/* Each way gives what the program waits for, tells that it is under way, and waits. */
static cl_int finish(struct waiter *w) {
	fill_gated(w);
	count(&begun);
	return clFinish(w->queue);
}

static cl_int wait_for_command(struct waiter *w) {
	fill_gated(w);
	count(&begun);
	return clWaitForEvents(1, &w->event);
}

static cl_int wait_for_gate(struct waiter *w) {
	count(&begun);
	return clWaitForEvents(1, &w->gate);
}

static cl_int wait_for_marker(struct waiter *w) {
	cl_event e;
	fill_gated(w);
	CHECK(clEnqueueMarkerWithWaitList(w->queue, 0, NULL, &e));
	count(&begun);
	return clWaitForEvents(1, &e);
}

static cl_int wait_for_launch(struct waiter *w) {
	const size_t all = 64;
	CHECK(clEnqueueNDRangeKernel(w->queue, w->kernel, 1, NULL, &all, NULL, 1, &w->gate, &w->event));
	count(&begun);
	return clWaitForEvents(1, &w->event);
}

static cl_int read_gated(struct waiter *w) {
	count(&begun);
	return clEnqueueReadBuffer(w->queue, w->buffer, CL_TRUE, 0, 4 * WORDS, w->host, 1, &w->gate, NULL);
}

static cl_int read_behind(struct waiter *w) {
	fill_gated(w);
	count(&begun);
	return clEnqueueReadBuffer(w->queue, w->buffer, CL_TRUE, 0, 64, w->host, 0, NULL, NULL);
}

static cl_int read_later(struct waiter *w) {
	CHECK(clEnqueueReadBuffer(w->queue, w->buffer, CL_FALSE, 0, 4 * WORDS, w->host, 1, &w->gate, &w->event));
	count(&begun);
	return clWaitForEvents(1, &w->event);
}

static cl_int write_gated(struct waiter *w) {
	count(&begun);
	return clEnqueueWriteBuffer(w->queue, w->buffer, CL_TRUE, 0, 4 * WORDS, w->host, 1, &w->gate, NULL);
}

static cl_int read_box(struct waiter *w) {
	const size_t at[3] = { 0 }, box[3] = { 64, 64, 1 };
	count(&begun);
	return clEnqueueReadBufferRect(w->queue, w->buffer, CL_TRUE, at, at, box, 128, 0, 64, 0, w->host, 1, &w->gate,
		NULL);
}

static cl_int map_gated(struct waiter *w) {
	cl_int rc;
	count(&begun);
	clEnqueueMapBuffer(w->queue, w->buffer, CL_TRUE, CL_MAP_READ, 0, 4 * WORDS, 1, &w->gate, NULL, &rc);
	return rc;
}

static cl_int map_new(struct waiter *w) {
	cl_int rc;
	count(&begun);
	clEnqueueMapBuffer(w->queue, w->buffer, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, 4 * WORDS, 1, &w->gate, NULL,
		&rc);
	return rc;
}

static cl_int map_image(struct waiter *w) {
	const size_t at[3] = { 0 }, all[3] = { SIDE, SIDE, 1 };
	size_t pitch;
	cl_int rc;
	count(&begun);
	clEnqueueMapImage(w->queue, w->image, CL_TRUE, CL_MAP_READ, at, all, &pitch, NULL, 1, &w->gate, NULL, &rc);
	return rc;
}

static cl_int read_image(struct waiter *w) {
	const size_t at[3] = { 0 }, all[3] = { SIDE, SIDE, 1 };
	count(&begun);
	return clEnqueueReadImage(w->queue, w->image, CL_TRUE, at, all, 0, 0, w->host, 1, &w->gate, NULL);
}

/* wait_for_call waits for call-backs, of a command in each of its states and of the gate. */
static cl_int wait_for_call(struct waiter *w) {
	fill_gated(w);
	CHECK(clSetEventCallback(w->event, CL_COMPLETE, called_back, NULL));
	CHECK(clSetEventCallback(w->event, CL_SUBMITTED, called_back, NULL));
	CHECK(clSetEventCallback(w->event, CL_RUNNING, called_back, NULL));
	CHECK(clSetEventCallback(w->gate, CL_COMPLETE, called_back, NULL));
	count(&begun);
	until(&called, 4);
	cl_int status = 1;
	clGetEventInfo(w->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
	return failed_calls == 4 ? status : 1;
}

/* out_of_order waits in clFinish of a queue out of order, behind a barrier. */
static cl_int out_of_order(struct waiter *w) {
	fill_gated(w);
	CHECK(clEnqueueBarrierWithWaitList(w->queue, 0, NULL, NULL));
	CHECK(clEnqueueMarkerWithWaitList(w->queue, 0, NULL, NULL));
	count(&begun);
	return clFinish(w->queue);
}

static struct waiter waiters[] = {
	{ .name = "clFinish", .wait = finish },
	{ .name = "clWaitForEvents, a command", .wait = wait_for_command },
	{ .name = "clWaitForEvents, a user event", .wait = wait_for_gate },
	{ .name = "clWaitForEvents, a marker", .wait = wait_for_marker },
	{ .name = "clWaitForEvents, a launch", .wait = wait_for_launch },
	{ .name = "read", .wait = read_gated },
	{ .name = "read behind a command", .wait = read_behind },
	{ .name = "read that does not block", .wait = read_later },
	{ .name = "write", .wait = write_gated },
	{ .name = "read of a box", .wait = read_box },
	{ .name = "map", .wait = map_gated },
	{ .name = "map without contents", .wait = map_new },
	{ .name = "map of an image", .wait = map_image },
	{ .name = "read of an image", .wait = read_image },
	{ .name = "call-backs", .wait = wait_for_call },
	{ .name = "clFinish, out of order", .wait = out_of_order, .properties = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE },
};
enum { WAITERS = sizeof waiters / sizeof *waiters };

static void prepare(struct waiter *w) {
	const cl_image_format f = { CL_RGBA, CL_UNSIGNED_INT8 };
	const cl_image_desc d = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE };
	cl_int rc;
	w->queue = clCreateCommandQueue(context, device, w->properties, &rc);
	CHECK(rc);
	w->buffer = clCreateBuffer(context, 0, 4 * WORDS, NULL, &rc);
	CHECK(rc);
	w->image = clCreateImage(context, 0, &f, &d, NULL, &rc);
	CHECK(rc);
	w->kernel = clCreateKernel(program, "set", &rc);
	CHECK(rc);
	CHECK(clSetKernelArg(w->kernel, 0, sizeof w->buffer, &w->buffer));
	w->gate = clCreateUserEvent(context, &rc);
	CHECK(rc);
	w->host = calloc(WORDS, 4);
}

static void *run(void *arg) {
	struct waiter *w = arg;
	w->got = w->wait(w);
	return NULL;
}

int main(void) {
	static const char *source = "__kernel void set(__global uint *to) { to[get_global_id(0)] = 1; }\n";
	cl_int rc;
	cl_bool there;
	device = first_device();
	context = clCreateContext(NULL, 1, &device, lost, &told, &rc);
	CHECK(rc);
	cl_context other = clCreateContext(NULL, 1, &device, lost, NULL, &rc), gone;
	CHECK(rc);
	gone = clCreateContext(NULL, 1, &device, lost, &told, &rc); /* released: nobody is told */
	CHECK(rc);
	CHECK(clReleaseContext(gone));
	program = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
	for (int i = 0; i < WAITERS; i++) {
		prepare(&waiters[i]);
	}
	for (int i = 0; i < WAITERS; i++) {
		pthread_create(&waiters[i].thread, NULL, run, &waiters[i]);
	}
	until(&begun, WAITERS);
	puts("waiting");
	fflush(stdout);
	for (int i = 0; i < WAITERS; i++) {
		pthread_join(waiters[i].thread, NULL);
		printf("%s: %d\n", waiters[i].name, waiters[i].got);
		fflush(stdout);
	}
	until(&told, 1);
	until(&other_told, 1);
	CHECK(clGetDeviceInfo(device, CL_DEVICE_AVAILABLE, sizeof there, &there, NULL));
	printf("available: %u\ntold: %s\n", there, text);
	for (int i = 0; i < WAITERS; i++) {
		clReleaseMemObject(waiters[i].buffer);
		clReleaseMemObject(waiters[i].image);
		clReleaseKernel(waiters[i].kernel);
		clReleaseCommandQueue(waiters[i].queue);
		clReleaseEvent(waiters[i].gate);
	}
	clReleaseContext(other);
	clReleaseContext(context);
	printf("told again: %d\nover\n", told_again);
	return 0;
}
