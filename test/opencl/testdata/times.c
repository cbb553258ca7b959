/* When commands ran, of all kinds, on queues in and out of order, gated and not. Prints whether the times of each are
   there, and in order. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdbool.h>
#include "check.h"

enum { SMALL = 4096, LARGE = 8 << 20, SIDE = 64, CHAIN = 200, LATER = 1000 };

static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_kernel add;
static cl_mem small, large, image, other;
static void *at;
static char host[LARGE];
static const size_t none[3], box[3] = { 64, 16, 4 }, pixels[3] = { SIDE, SIDE, 1 };
static const size_t items = SMALL / sizeof(cl_int), group = 64;
static const cl_int zero = 0;
static const float black[4] = { 0 };

/* a command is given with a wait list of n events, and an event */
#define NAMED(name, call) \
	static cl_int name(cl_uint n, const cl_event *w, cl_event *e) { return call; }

static cl_int mapped(cl_mem m, cl_map_flags flags, size_t size, cl_uint n, const cl_event *w, cl_event *e) {
	cl_int rc;
	at = clEnqueueMapBuffer(queue, m, CL_FALSE, flags, 0, size, n, w, e, &rc);
	return rc;
}

static cl_int mapped_image(cl_uint n, const cl_event *w, cl_event *e) {
	cl_int rc;
	size_t row, slice;
	at = clEnqueueMapImage(queue, image, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, none, pixels, &row, &slice, n, w, e,
		&rc);
	return rc;
}

NAMED(marker, clEnqueueMarkerWithWaitList(queue, n, w, e))
NAMED(barrier, clEnqueueBarrierWithWaitList(queue, n, w, e))
NAMED(migrate, clEnqueueMigrateMemObjects(queue, 1, &small, 0, n, w, e))
NAMED(map_read, mapped(small, CL_MAP_READ, SMALL, n, w, e))
NAMED(map_write, mapped(small, CL_MAP_WRITE_INVALIDATE_REGION, SMALL, n, w, e))
NAMED(unmap, clEnqueueUnmapMemObject(queue, small, at, n, w, e))
NAMED(map_large, mapped(large, CL_MAP_READ | CL_MAP_WRITE, LARGE, n, w, e))
NAMED(unmap_large, clEnqueueUnmapMemObject(queue, large, at, n, w, e))
NAMED(launch, clEnqueueNDRangeKernel(queue, add, 1, NULL, &items, &group, n, w, e))
NAMED(write, clEnqueueWriteBuffer(queue, small, CL_FALSE, 0, SMALL, host, n, w, e))
NAMED(write_large, clEnqueueWriteBuffer(queue, large, CL_FALSE, 0, LARGE, host, n, w, e))
NAMED(read, clEnqueueReadBuffer(queue, small, CL_FALSE, 0, SMALL, host, n, w, e))
NAMED(read_large, clEnqueueReadBuffer(queue, large, CL_FALSE, 0, LARGE, host, n, w, e))
NAMED(write_box, clEnqueueWriteBufferRect(queue, large, CL_FALSE, none, none, box, 128, 0, 96, 0, host, n, w, e))
NAMED(read_box, clEnqueueReadBufferRect(queue, large, CL_FALSE, none, none, box, 128, 0, 96, 0, host, n, w, e))
NAMED(copy_box, clEnqueueCopyBufferRect(queue, large, small, none, none, box, 128, 0, 64, 0, n, w, e))
NAMED(copy, clEnqueueCopyBuffer(queue, small, large, 0, 0, SMALL, n, w, e))
NAMED(fill, clEnqueueFillBuffer(queue, small, &zero, sizeof zero, 0, SMALL, n, w, e))
NAMED(write_image, clEnqueueWriteImage(queue, image, CL_FALSE, none, pixels, 0, 0, host, n, w, e))
NAMED(read_image, clEnqueueReadImage(queue, image, CL_FALSE, none, pixels, 0, 0, host, n, w, e))
NAMED(copy_image, clEnqueueCopyImage(queue, image, other, none, none, pixels, n, w, e))
NAMED(image_to_buffer, clEnqueueCopyImageToBuffer(queue, image, large, none, pixels, 0, n, w, e))
NAMED(buffer_to_image, clEnqueueCopyBufferToImage(queue, large, image, 0, none, pixels, n, w, e))
NAMED(fill_image, clEnqueueFillImage(queue, other, black, none, pixels, n, w, e))
NAMED(unmap_image, clEnqueueUnmapMemObject(queue, image, at, n, w, e))

static const struct {
	const char *name;
	cl_int (*call)(cl_uint, const cl_event *, cl_event *);
} commands[] = { { "marker", marker }, { "barrier", barrier }, { "migrate", migrate }, { "map to write", map_write },
	{ "its end", unmap }, { "map to read", map_read }, { "its end", unmap }, { "map of all", map_large },
	{ "its end", unmap_large }, { "launch", launch }, { "write", write }, { "large write", write_large },
	{ "read", read }, { "large read", read_large }, { "write of a box", write_box }, { "read of a box", read_box },
	{ "copy of a box", copy_box }, { "copy", copy }, { "fill", fill }, { "write of an image", write_image },
	{ "read of an image", read_image }, { "copy of an image", copy_image }, { "image to buffer", image_to_buffer },
	{ "buffer to image", buffer_to_image }, { "fill of an image", fill_image }, { "map of an image", mapped_image },
	{ "its end", unmap_image }, { "marker after all", marker }, { "launch after all", launch } };

/* times asks for the times of a command that is complete. */
static cl_int times(cl_event e, cl_ulong t[4]) {
	cl_int rc = CL_SUCCESS;
	for (cl_uint i = 0; i < 4 && rc == CL_SUCCESS; i++) {
		rc = clGetEventProfilingInfo(e, CL_PROFILING_COMMAND_QUEUED + i, sizeof *t, &t[i], NULL);
	}
	return rc;
}

/* tell says what the times of a command are, and releases it. */
static void tell(const char *which, const char *name, cl_event e) {
	cl_ulong t[4];
	cl_int rc = times(e, t);
	printf("%s, %s: %d", which, name, rc);
	if (rc == CL_SUCCESS) {
		printf(" %s", t[0] <= t[1] && t[1] <= t[2] && t[2] <= t[3] ? "in order" : "not in order");
	}
	printf("\n");
	CHECK(clReleaseEvent(e));
}

static cl_command_queue make_queue(bool ordered) {
	cl_int rc;
	cl_command_queue q = clCreateCommandQueue(context, device,
		CL_QUEUE_PROFILING_ENABLE | (ordered ? 0 : CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE), &rc);
	CHECK(rc);
	return q;
}

/* each gives all kinds of commands one by one, each behind a user event if they are gated. */
static void each(bool ordered, bool gated) {
	char which[32];
	snprintf(which, sizeof which, "%s%s", ordered ? "in order" : "out of order", gated ? " gated" : "");
	queue = make_queue(ordered);
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
		cl_int rc;
		cl_event e, gate = clCreateUserEvent(context, &rc);
		CHECK(rc);
		CHECK(commands[i].call(gated, gated ? &gate : NULL, &e));
		CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
		CHECK(clWaitForEvents(1, &e));
		tell(which, commands[i].name, e);
		CHECK(clReleaseEvent(gate));
	}
	CHECK(clReleaseCommandQueue(queue));
}

/* held asks when a command was queued that is held back until others, which came after it, are complete. Their many
   ways to the device and back take longer than its one way there, also on a busy machine. */
static void held(bool ordered) {
	cl_int rc;
	cl_event e, later = NULL, gate = clCreateUserEvent(context, &rc);
	cl_ulong t[4], u[4];
	CHECK(rc);
	cl_command_queue q = make_queue(true);
	queue = make_queue(ordered);
	CHECK(launch(1, &gate, &e));
	for (int i = 0; i < LATER; i++) {
		if (later) {
			CHECK(clReleaseEvent(later));
		}
		CHECK(clEnqueueMarkerWithWaitList(q, 0, NULL, &later));
		CHECK(clWaitForEvents(1, &later));
	}
	CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
	CHECK(clWaitForEvents(1, &e));
	CHECK(times(e, t));
	CHECK(times(later, u));
	printf("%s, held back: queued %s the later ones were complete\n", ordered ? "in order" : "out of order",
		t[0] <= u[3] ? "before" : "after");
	CHECK(clReleaseEvent(e));
	CHECK(clReleaseEvent(later));
	CHECK(clReleaseEvent(gate));
	CHECK(clReleaseCommandQueue(queue));
	CHECK(clReleaseCommandQueue(q));
}

/* chain asks for the times of commands when only the last one was waited for, on another queue. */
static void chain(bool ordered) {
	int bad = 0;
	cl_command_queue q = make_queue(ordered);
	queue = make_queue(!ordered);
	for (int i = 0; i < CHAIN; i++) {
		cl_event first, second, last;
		cl_ulong t[4];
		cl_int value;
		CHECK(launch(0, NULL, &first));
		CHECK(clEnqueueFillBuffer(q, large, &zero, sizeof zero, 0, SMALL, 1, &first, &second));
		CHECK(clFlush(q));
		CHECK(clEnqueueReadBuffer(queue, large, CL_TRUE, 0, sizeof value, &value, 1, &second, &last));
		bad += times(first, t) != CL_SUCCESS;
		bad += times(second, t) != CL_SUCCESS;
		bad += times(last, t) != CL_SUCCESS;
		CHECK(clReleaseEvent(first));
		CHECK(clReleaseEvent(second));
		CHECK(clReleaseEvent(last));
	}
	printf("%s, in a chain: %d without times\n", ordered ? "in order" : "out of order", bad);
	CHECK(clReleaseCommandQueue(queue));
	CHECK(clReleaseCommandQueue(q));
}

int main(void) {
	cl_int rc;
	device = first_device();
	context = context_of(device);
	const char *text = "__kernel void add(__global int *o, int v) { o[get_global_id(0)] += v; }";
	cl_program p = clCreateProgramWithSource(context, 1, &text, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(p, 1, &device, "", NULL, NULL));
	add = clCreateKernel(p, "add", &rc);
	CHECK(rc);
	small = clCreateBuffer(context, CL_MEM_READ_WRITE, SMALL, NULL, &rc);
	CHECK(rc);
	large = clCreateBuffer(context, CL_MEM_READ_WRITE, LARGE, NULL, &rc);
	CHECK(rc);
	const cl_image_format format = { CL_RGBA, CL_UNORM_INT8 };
	const cl_image_desc desc = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE };
	image = clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &rc);
	CHECK(rc);
	other = clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &rc);
	CHECK(rc);
	CHECK(clSetKernelArg(add, 0, sizeof small, &small));
	CHECK(clSetKernelArg(add, 1, sizeof zero, &zero));
	for (int i = 0; i < 4; i++) {
		each(i % 2 == 0, i >= 2);
	}
	held(true);
	held(false);
	chain(true);
	chain(false);
	return 0;
}
