/* Uses most of OpenCL 1.2 and prints what came of it: the same lines on every device and through every layer. With a
   file name it stands still in the middle, with everything in use, until the file is there. */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#include <CL/cl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

static const char *source =
	"__kernel void scale(__global uint *b, uint f, __local uint *tmp) {\n"
	"	size_t i = get_global_id(0), l = get_local_id(0);\n"
	"	tmp[l] = b[i] * f + 1;\n"
	"	barrier(CLK_LOCAL_MEM_FENCE);\n"
	"	b[i] = tmp[l];\n"
	"}\n"
	"__kernel void mix2(__global uint *to, __constant uint *from, __global uint *maybe) {\n"
	"	size_t i = get_global_id(0);\n"
	"	to[i] = to[i] * 31 + from[i & 63] + (maybe ? maybe[i] : 7);\n"
	"}\n"
	"struct pair { uint a; uint b; };\n"
	"__kernel void structs(__global uint *to, struct pair p, uchar c, ulong big) {\n"
	"	to[get_global_id(0)] += p.a * p.b + c + (uint)(big >> 32);\n"
	"}\n"
	"__kernel void turn(__read_only image2d_t from, __write_only image2d_t to, sampler_t s) {\n"
	"	int2 p = (int2)(get_global_id(0), get_global_id(1));\n"
	"	write_imageui(to, p, read_imageui(from, s, (int2)(p.x + 1, p.y)) + (uint4)(p.x, p.y, 1, 0));\n"
	"}\n";

static int ours; /* the platform is Holdfast */
static cl_context context;
static cl_device_id device;
static cl_command_queue queue, other;
static cl_program program;

static void sum(const char *what, const void *p, size_t n) {
	unsigned long long h = 14695981039346656037ull;
	for (size_t i = 0; i < n; i++) {
		h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211ull;
	}
	printf("%s %016llx\n", what, h);
}

static void show(const char *what, cl_mem m, size_t n) {
	void *p = malloc(n);
	CHECK(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, n, p, 0, NULL, NULL));
	sum(what, p, n);
	free(p);
}

enum { N = 16384 };
static cl_uint numbers[N];
static cl_mem plain, used, copied, part, pinned, picture, canvas;
static cl_sampler sampler;
static cl_uint *host;

static cl_mem buffer(cl_mem_flags flags, size_t n, void *p) {
	cl_int rc;
	cl_mem m = clCreateBuffer(context, flags, n, p, &rc);
	CHECK(rc);
	return m;
}

static cl_kernel kernel(const char *name) {
	cl_int rc;
	cl_kernel k = clCreateKernel(program, name, &rc);
	CHECK(rc);
	return k;
}

static void make(void) {
	cl_int rc;
	for (cl_uint i = 0; i < N; i++) {
		numbers[i] = i * 2654435761u;
	}
	host = aligned_alloc(4096, sizeof numbers);
	memcpy(host, numbers, sizeof numbers);
	plain = buffer(CL_MEM_READ_WRITE, sizeof numbers, NULL);
	used = buffer(CL_MEM_USE_HOST_PTR, sizeof numbers, host);
	copied = buffer(CL_MEM_COPY_HOST_PTR, sizeof numbers, numbers);
	pinned = buffer(CL_MEM_ALLOC_HOST_PTR | CL_MEM_READ_WRITE, sizeof numbers, NULL);
	part = clCreateSubBuffer(plain, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
		&(cl_buffer_region){ 8192, 8192 }, &rc);
	CHECK(rc);
	CHECK(clEnqueueWriteBuffer(queue, plain, CL_FALSE, 0, sizeof numbers, numbers, 0, NULL, NULL));
	CHECK(clEnqueueWriteBuffer(queue, pinned, CL_FALSE, 0, sizeof numbers, numbers, 0, NULL, NULL));
	CHECK(clFinish(queue));
	cl_image_format format = { CL_RGBA, CL_UNSIGNED_INT8 };
	cl_image_desc desc = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 61, .image_height = 37,
		.image_row_pitch = 256 };
	picture = clCreateImage(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &format, &desc, numbers, &rc);
	CHECK(rc);
	desc.image_row_pitch = 0;
	canvas = clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &rc);
	CHECK(rc);
	sampler = clCreateSampler(context, CL_FALSE, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST, &rc);
	CHECK(rc);
}

static void kernels(cl_uint f) {
	cl_kernel k = kernel("scale"), m = kernel("mix2"), s = kernel("structs");
	const size_t n = N, l = 64;
	CHECK(clSetKernelArg(k, 0, sizeof plain, &plain));
	CHECK(clSetKernelArg(k, 1, sizeof f, &f));
	CHECK(clSetKernelArg(k, 2, l * sizeof f, NULL));
	CHECK(clEnqueueNDRangeKernel(queue, k, 1, NULL, &n, &l, 0, NULL, NULL));
	f++;
	CHECK(clSetKernelArg(k, 0, sizeof part, &part)); /* the launch before keeps its arguments */
	CHECK(clSetKernelArg(k, 1, sizeof f, &f));
	const size_t some = 2048;
	CHECK(clEnqueueNDRangeKernel(queue, k, 1, NULL, &some, &l, 0, NULL, NULL));
	show("scaled", plain, sizeof numbers);
	CHECK(clSetKernelArg(m, 0, sizeof used, &used));
	CHECK(clSetKernelArg(m, 1, sizeof copied, &copied));
	cl_mem none = NULL;
	CHECK(clSetKernelArg(m, 2, sizeof none, &none));
	CHECK(clEnqueueNDRangeKernel(queue, m, 1, NULL, &n, NULL, 0, NULL, NULL));
	CHECK(clSetKernelArg(m, 2, sizeof plain, &plain));
	const size_t from = 128, rest = N - 128;
	CHECK(clEnqueueNDRangeKernel(queue, m, 1, &from, &rest, NULL, 0, NULL, NULL));
	struct { cl_uint a, b; } pair = { 3, f };
	cl_uchar c = 9;
	cl_ulong big = 0x500000000ull;
	CHECK(clSetKernelArg(s, 0, sizeof used, &used));
	CHECK(clSetKernelArg(s, 1, sizeof pair, &pair));
	CHECK(clSetKernelArg(s, 2, sizeof c, &c));
	CHECK(clSetKernelArg(s, 3, sizeof big, &big));
	CHECK(clEnqueueNDRangeKernel(queue, s, 1, NULL, &n, NULL, 0, NULL, NULL));
	show("mixed", used, sizeof numbers);
	CHECK(clReleaseKernel(k));
	CHECK(clReleaseKernel(m));
	CHECK(clReleaseKernel(s));
}

static void boxes(void) {
	static unsigned char bytes[65536], to[65536];
	for (size_t i = 0; i < sizeof bytes; i++) {
		bytes[i] = (unsigned char)(i * 7 + i / 251);
	}
	const size_t origin[3] = { 5, 3, 1 }, there[3] = { 2, 4, 2 }, region[3] = { 33, 7, 4 };
	CHECK(clEnqueueWriteBufferRect(queue, plain, CL_FALSE, origin, there, region, 64, 64 * 16, 50, 50 * 20, bytes, 0,
		NULL, NULL));
	CHECK(clEnqueueCopyBufferRect(queue, plain, copied, origin, there, region, 64, 1024, 80, 80 * 12, 0, NULL, NULL));
	memset(to, 1, sizeof to);
	CHECK(clEnqueueReadBufferRect(queue, copied, CL_FALSE, there, origin, region, 80, 80 * 12, 100, 2000, to, 0, NULL,
		NULL));
	CHECK(clFinish(queue));
	sum("boxes", to, sizeof to);
	show("boxed", copied, sizeof numbers);
	const cl_uchar pattern[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	CHECK(clEnqueueFillBuffer(queue, copied, pattern, 8, 1024, 4096, 0, NULL, NULL));
	CHECK(clEnqueueFillBuffer(queue, part, pattern, 1, 3, 77, 0, NULL, NULL));
	CHECK(clEnqueueCopyBuffer(queue, copied, plain, 512, 30000, 5000, 0, NULL, NULL));
	show("filled", copied, sizeof numbers);
	show("copied", plain, sizeof numbers);
}

static void mappings(void) {
	cl_int rc;
	cl_event e;
	cl_uint *p = clEnqueueMapBuffer(queue, pinned, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, sizeof numbers, 0, NULL,
		NULL, &rc);
	CHECK(rc);
	memcpy(p, numbers, sizeof numbers);
	CHECK(clEnqueueUnmapMemObject(queue, pinned, p, 0, NULL, NULL));
	show("pinned", pinned, sizeof numbers);
	p = clEnqueueMapBuffer(queue, used, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 4096, 8192, 0, NULL, &e, &rc);
	CHECK(rc);
	CHECK(clWaitForEvents(1, &e));
	CHECK(clReleaseEvent(e));
	printf("same address %d\n", p == host + 1024);
	sum("mapped", p, 8192);
	for (int i = 0; i < 2048; i += 3) {
		p[i] += 5;
	}
	cl_uint maps;
	CHECK(clGetMemObjectInfo(used, CL_MEM_MAP_COUNT, sizeof maps, &maps, NULL));
	CHECK(clEnqueueUnmapMemObject(queue, used, p, 0, NULL, &e));
	CHECK(clWaitForEvents(1, &e));
	CHECK(clReleaseEvent(e));
	printf("maps %u\n", maps);
	show("unmapped", used, sizeof numbers);
	size_t row, slice = 9;
	const size_t origin[3] = { 3, 2, 0 }, region[3] = { 20, 10, 1 };
	unsigned char *q = clEnqueueMapImage(queue, canvas, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, origin, region, &row,
		&slice, 0, NULL, NULL, &rc);
	CHECK(rc);
	for (size_t y = 0; y < 10; y++) {
		for (size_t x = 0; x < 80; x++) {
			q[y * row + x] = (unsigned char)(q[y * row + x] + x + y);
		}
	}
	CHECK(clEnqueueUnmapMemObject(queue, canvas, q, 0, NULL, NULL));
}

static void images(void) {
	static unsigned char bytes[61 * 37 * 4], pitched[300 * 37];
	const size_t zero[3] = { 0 }, all[3] = { 61, 37, 1 }, some[3] = { 10, 11, 1 }, at[3] = { 30, 20, 0 };
	const cl_uint color[4] = { 300, 2, 3, 4 };
	CHECK(clEnqueueFillImage(queue, canvas, color, zero, all, 0, NULL, NULL));
	cl_kernel k = kernel("turn");
	const size_t n[2] = { 60, 36 };
	CHECK(clSetKernelArg(k, 0, sizeof picture, &picture));
	CHECK(clSetKernelArg(k, 1, sizeof canvas, &canvas));
	CHECK(clSetKernelArg(k, 2, sizeof sampler, &sampler));
	CHECK(clEnqueueNDRangeKernel(queue, k, 2, NULL, n, NULL, 0, NULL, NULL));
	CHECK(clEnqueueCopyImage(queue, picture, canvas, zero, at, some, 0, NULL, NULL));
	CHECK(clEnqueueCopyImageToBuffer(queue, canvas, pinned, at, some, 64, 0, NULL, NULL));
	CHECK(clEnqueueCopyBufferToImage(queue, pinned, canvas, 4096, zero, some, 0, NULL, NULL));
	CHECK(clEnqueueReadImage(queue, canvas, CL_TRUE, zero, all, 0, 0, bytes, 0, NULL, NULL));
	sum("canvas", bytes, sizeof bytes);
	CHECK(clEnqueueReadImage(queue, canvas, CL_FALSE, zero, all, 300, 0, pitched, 0, NULL, NULL));
	CHECK(clFinish(queue));
	sum("pitched", pitched, sizeof pitched);
	CHECK(clEnqueueWriteImage(queue, canvas, CL_FALSE, at, some, 100, 0, numbers, 0, NULL, NULL));
	CHECK(clReleaseKernel(k));
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int called;

static void CL_CALLBACK done(cl_event e, cl_int status, void *data) {
	(void)e;
	pthread_mutex_lock(&lock);
	called += status == CL_COMPLETE ? 1 : status < 0 ? *(int *)data : 100000;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
}

static void await_calls(int n) {
	pthread_mutex_lock(&lock);
	while (called < n) {
		pthread_cond_wait(&changed, &lock);
	}
	pthread_mutex_unlock(&lock);
}

static cl_int status_of(cl_event e) {
	cl_int status;
	CHECK(clGetEventInfo(e, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
	return status;
}

static void events(void) {
	static int failure = 1000;
	cl_int rc;
	cl_event gate = clCreateUserEvent(context, &rc), wrote, copy, read, mark;
	CHECK(rc);
	static cl_uint got[1024], again[1024];
	memset(got, 0, sizeof got);
	/* over two queues, one out of order, all behind the gate */
	CHECK(clEnqueueWriteBuffer(other, pinned, CL_FALSE, 0, sizeof got, numbers + 77, 1, &gate, &wrote));
	CHECK(clEnqueueCopyBuffer(queue, pinned, copied, 0, 0, sizeof got, 1, &wrote, &copy));
	CHECK(clEnqueueReadBuffer(other, copied, CL_FALSE, 0, sizeof got, got, 1, &copy, &read));
	CHECK(clEnqueueMarkerWithWaitList(other, 1, &read, &mark));
	CHECK(clSetEventCallback(mark, CL_COMPLETE, done, &failure));
	CHECK(clSetEventCallback(read, CL_COMPLETE, done, &failure));
	CHECK(clFlush(queue));
	CHECK(clFlush(other));
	printf("before %d %d %d\n", status_of(gate), status_of(wrote) > CL_COMPLETE, status_of(mark) > CL_COMPLETE);
	CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
	CHECK(clWaitForEvents(1, &mark));
	sum("through the gate", got, sizeof got);
	await_calls(2);
	printf("after %d %d calls %d again %d\n", status_of(gate), status_of(mark), called,
		clSetUserEventStatus(gate, CL_COMPLETE) != CL_SUCCESS);
	cl_ulong t[4];
	for (cl_uint i = 0; i < 4; i++) {
		CHECK(clGetEventProfilingInfo(wrote, CL_PROFILING_COMMAND_QUEUED + i, sizeof t[i], &t[i], NULL));
	}
	printf("times %d\n", t[0] <= t[1] && t[1] <= t[2] && t[2] <= t[3]);
	CHECK(clReleaseEvent(gate));
	CHECK(clReleaseEvent(wrote));
	CHECK(clReleaseEvent(copy));
	CHECK(clReleaseEvent(read));
	CHECK(clReleaseEvent(mark));
	/* out of order behind a barrier */
	CHECK(clEnqueueWriteBuffer(other, pinned, CL_FALSE, 0, sizeof got, numbers + 200, 0, NULL, NULL));
	CHECK(clEnqueueBarrierWithWaitList(other, 0, NULL, NULL));
	CHECK(clEnqueueReadBuffer(other, pinned, CL_FALSE, 0, sizeof got, got, 0, NULL, NULL));
	CHECK(clEnqueueBarrierWithWaitList(other, 0, NULL, NULL));
	CHECK(clEnqueueWriteBuffer(other, copied, CL_FALSE, 0, sizeof got, got, 0, NULL, NULL));
	CHECK(clFinish(other));
	CHECK(clEnqueueReadBuffer(queue, copied, CL_TRUE, 0, sizeof again, again, 0, NULL, NULL));
	sum("behind barriers", again, sizeof again);
	/* a gate that fails takes with it what waits for it */
	gate = clCreateUserEvent(context, &rc);
	CHECK(rc);
	CHECK(clEnqueueWriteBuffer(other, pinned, CL_FALSE, 0, sizeof got, numbers, 1, &gate, &wrote));
	CHECK(clSetEventCallback(wrote, CL_COMPLETE, done, &failure));
	CHECK(clSetUserEventStatus(gate, -5));
	printf("wait fails %d\n", clWaitForEvents(1, &wrote) == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
	if (ours) { /* PoCL 3.1 does not call it */
		await_calls(1002);
	}
	printf("failed %d %d\n", status_of(gate), status_of(wrote) < 0);
	CHECK(clReleaseEvent(gate));
	CHECK(clReleaseEvent(wrote));
}

static void *worker(void *arg) {
	cl_int rc;
	cl_uint me = (cl_uint)(size_t)arg, b[256];
	cl_command_queue q = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	cl_mem m = buffer(CL_MEM_READ_WRITE, sizeof b, NULL);
	cl_kernel k = kernel("scale");
	for (cl_uint i = 0; i < 256; i++) {
		b[i] = i + me;
	}
	const size_t n = 256, l = 16;
	CHECK(clEnqueueWriteBuffer(q, m, CL_TRUE, 0, sizeof b, b, 0, NULL, NULL));
	CHECK(clSetKernelArg(k, 0, sizeof m, &m));
	CHECK(clSetKernelArg(k, 2, l * sizeof me, NULL));
	for (cl_uint i = 0; i < 20; i++) {
		cl_event e;
		cl_uint f = me + i;
		CHECK(clSetKernelArg(k, 1, sizeof f, &f));
		CHECK(clEnqueueNDRangeKernel(q, k, 1, NULL, &n, &l, 0, NULL, &e));
		CHECK(clReleaseEvent(e));
	}
	CHECK(clEnqueueReadBuffer(q, m, CL_TRUE, 0, sizeof b, b, 0, NULL, NULL));
	cl_uint *sum_of = malloc(sizeof *sum_of);
	*sum_of = 0;
	for (cl_uint i = 0; i < 256; i++) {
		*sum_of = *sum_of * 31 + b[i];
	}
	CHECK(clReleaseKernel(k));
	CHECK(clReleaseMemObject(m));
	CHECK(clReleaseCommandQueue(q));
	return sum_of;
}

static void threads(void) {
	pthread_t list[6];
	for (size_t i = 0; i < 6; i++) {
		pthread_create(&list[i], NULL, worker, (void *)(i + 2));
	}
	for (size_t i = 0; i < 6; i++) {
		void *p;
		pthread_join(list[i], &p);
		printf("thread %u\n", *(cl_uint *)p);
		free(p);
	}
}

static void CL_CALLBACK gone(cl_mem m, void *data) {
	(void)m;
	printf("gone %s\n", (const char *)data);
}

static void CL_CALLBACK was_built(cl_program p, void *data) {
	(void)p;
	*(volatile int *)data = 1;
}

static void programs(void) {
	cl_int rc;
	size_t n;
	const char *wrong = "__kernel void f(__global int *p) { p[0] = nothing; }";
	cl_program bad = clCreateProgramWithSource(context, 1, &wrong, NULL, &rc);
	CHECK(rc);
	rc = clBuildProgram(bad, 1, &device, NULL, NULL, NULL);
	CHECK(clGetProgramBuildInfo(bad, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &n));
	char *log = malloc(n);
	CHECK(clGetProgramBuildInfo(bad, device, CL_PROGRAM_BUILD_LOG, n, log, NULL));
	printf("bad %d log %d\n", rc, strstr(log, "nothing") != NULL);
	free(log);
	CHECK(clReleaseProgram(bad));
	CHECK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof n, &n, NULL));
	unsigned char *binary = malloc(n);
	CHECK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
	cl_program again = clCreateProgramWithBinary(context, 1, &device, &n, (const unsigned char **)&binary, NULL, &rc);
	CHECK(rc);
	volatile int built = 0;
	CHECK(clBuildProgram(again, 1, &device, NULL, was_built, (void *)&built));
	for (int i = 0; !built && i < 1000; i++) {
		usleep(10000);
	}
	cl_kernel list[8];
	cl_uint count;
	CHECK(clCreateKernelsInProgram(again, 8, list, &count));
	printf("kernels %u\n", count);
	for (cl_uint i = 0; i < count; i++) {
		CHECK(clReleaseKernel(list[i]));
	}
	CHECK(clReleaseProgram(again));
	free(binary);
	const char *parts[3] = { "#include \"one.h\"\n__kernel void f(__global int *p) { p[0] = ONE + two(); }",
		"# include <deep/two.h>\n#define ONE 1\n", "int two(void);\nint two(void) { return 2; }" };
	const char *names[2] = { "one.h", "deep/two.h" };
	cl_program made[3];
	for (int i = 0; i < 3; i++) {
		made[i] = clCreateProgramWithSource(context, 1, &parts[i], NULL, &rc);
		CHECK(rc);
	}
	CHECK(clCompileProgram(made[0], 1, &device, NULL, 2, made + 1, names, NULL, NULL));
	cl_program linked = clLinkProgram(context, 1, &device, NULL, 1, made, NULL, NULL, &rc);
	CHECK(rc);
	cl_kernel f = clCreateKernel(linked, "f", &rc);
	CHECK(rc);
	const size_t single = 1;
	cl_int three;
	CHECK(clSetKernelArg(f, 0, sizeof pinned, &pinned));
	CHECK(clEnqueueNDRangeKernel(queue, f, 1, NULL, &single, NULL, 0, NULL, NULL));
	CHECK(clEnqueueReadBuffer(queue, pinned, CL_TRUE, 0, sizeof three, &three, 0, NULL, NULL));
	printf("linked %d\n", three);
	CHECK(clReleaseKernel(f));
	CHECK(clReleaseProgram(linked));
	for (int i = 0; i < 3; i++) {
		CHECK(clReleaseProgram(made[i]));
	}
	cl_kernel k = kernel("turn");
	for (cl_uint i = 0; i < 3; i++) {
		char name[64], type[64];
		cl_kernel_arg_access_qualifier access;
		CHECK(clGetKernelArgInfo(k, i, CL_KERNEL_ARG_NAME, sizeof name, name, NULL));
		CHECK(clGetKernelArgInfo(k, i, CL_KERNEL_ARG_TYPE_NAME, sizeof type, type, NULL));
		CHECK(clGetKernelArgInfo(k, i, CL_KERNEL_ARG_ACCESS_QUALIFIER, sizeof access, &access, NULL));
		printf("argument %s %s %x\n", name, type, access);
	}
	CHECK(clGetKernelWorkGroupInfo(k, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof n, &n, NULL));
	printf("group %d\n", n > 0);
	CHECK(clReleaseKernel(k));
}

static void errors(void) {
	cl_int rc;
	char b[16];
	cl_event e;
	const size_t n = 64, big = 1 << 20;
	printf("range %d\n", clEnqueueReadBuffer(queue, plain, CL_TRUE, sizeof numbers - 8, 16, b, 0, NULL, NULL));
	printf("null %d\n", clEnqueueReadBuffer(queue, NULL, CL_TRUE, 0, 16, b, 0, NULL, NULL));
	clCreateBuffer(context, CL_MEM_READ_WRITE, 0, NULL, &rc);
	printf("size %d\n", rc);
	clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, 16, NULL, &rc);
	printf("host %d\n", rc);
	clCreateKernel(program, "no such", &rc);
	printf("kernel %d\n", rc);
	cl_kernel k = kernel("scale");
	printf("index %d\n", clSetKernelArg(k, 3, 4, b));
	printf("unset %d\n", clEnqueueNDRangeKernel(queue, k, 1, NULL, &n, NULL, 0, NULL, &e));
	CHECK(clSetKernelArg(k, 0, sizeof plain, &plain));
	CHECK(clSetKernelArg(k, 1, 4, b));
	CHECK(clSetKernelArg(k, 2, 64, NULL));
	printf("dimensions %d\n", clEnqueueNDRangeKernel(queue, k, 4, NULL, &n, NULL, 0, NULL, NULL));
	printf("group %d\n", clEnqueueNDRangeKernel(queue, k, 1, NULL, &big, &big, 0, NULL, NULL));
	rc = CL_INVALID_EVENT_WAIT_LIST;
	if (ours) { /* PoCL 3.1 looks at the list that is not there */
		rc = clEnqueueNDRangeKernel(queue, k, 1, NULL, &n, NULL, 1, NULL, NULL);
	}
	printf("list %d\n", rc);
	printf("overlap %d\n", clEnqueueCopyBuffer(queue, plain, plain, 0, 8, 16, 0, NULL, NULL));
	printf("room %d\n", clGetDeviceInfo(device, CL_DEVICE_NAME, 1, b, NULL));
	CHECK(clReleaseKernel(k));
}

int main(int argc, char **argv) {
	cl_platform_id platform;
	cl_int rc;
	CHECK(clGetPlatformIDs(1, &platform, NULL));
	CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
	char name[64];
	CHECK(clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL));
	ours = strcmp(name, "Holdfast") == 0;
	context = context_of(device);
	queue = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	other = clCreateCommandQueue(context, device,
		CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE, &rc);
	CHECK(rc);
	program = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(program, 1, &device, "-cl-kernel-arg-info", NULL, NULL));
	make();
	kernels(3);
	images();
	boxes();
	if (argc > 1) {
		printf("half\n");
		fflush(stdout);
		while (access(argv[1], F_OK) != 0) {
			usleep(10000);
		}
	}
	images();
	mappings();
	kernels(5);
	images();
	boxes();
	events();
	threads();
	programs();
	errors();
	CHECK(clSetMemObjectDestructorCallback(plain, gone, "first"));
	CHECK(clSetMemObjectDestructorCallback(plain, gone, "second"));
	CHECK(clReleaseMemObject(part));
	CHECK(clReleaseMemObject(plain));
	CHECK(clReleaseMemObject(used));
	CHECK(clReleaseMemObject(copied));
	CHECK(clReleaseMemObject(pinned));
	CHECK(clReleaseMemObject(picture));
	CHECK(clReleaseMemObject(canvas));
	CHECK(clReleaseSampler(sampler));
	CHECK(clReleaseProgram(program));
	CHECK(clReleaseCommandQueue(queue));
	CHECK(clReleaseCommandQueue(other));
	CHECK(clReleaseContext(context));
	free(host);
	return 0;
}
