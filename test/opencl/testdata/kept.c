/* An OpenCL program whose objects are part of its checkpoints by libholdfast. Takes a checkpoint after each step; kills
   itself after step KILL of a first start. Prints the step that it goes on from, and at the end what all objects hold.
   usage: kept STEPS KILL */
#define CL_TARGET_OPENCL_VERSION 120
#include <holdfast_opencl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(call) check(call, #call, __LINE__)
static void check(cl_int rc, const char *call, int line) {
	if (rc < 0) {
		fprintf(stderr, "line %d: %s: %d, OpenCL %d, %s\n", line, call, rc, hf_opencl_error(), hf_error());
		exit(1);
	}
}

static const char *source =
	"__kernel void step1(__global uint *a, __global const uint *b, __write_only image2d_t to, uint f) {\n"
	"	size_t i = get_global_id(0);\n"
	"	a[i] = a[i] * 1664525u + b[i & 1023] + f;\n"
	"	write_imageui(to, (int2)(i & 31, i >> 5 & 31), (uint4)(a[i] & 255, f & 255, i & 255, 1));\n"
	"}\n";

enum { N = 4096 };
static cl_uint words[N];
static cl_context context;
static cl_command_queue queue, other;
static cl_kernel kernel;
static cl_mem a, whole, b, picture;

static cl_mem buffer(size_t n, void *p) {
	cl_int rc;
	cl_mem m = clCreateBuffer(context, p == NULL ? 0 : CL_MEM_COPY_HOST_PTR, n, p, &rc);
	CHECK(rc);
	return m;
}

static void make(cl_platform_id platform) {
	cl_device_id d;
	cl_int rc;
	CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &d, NULL));
	context = clCreateContext(NULL, 1, &d, NULL, NULL, &rc);
	CHECK(rc);
	queue = clCreateCommandQueue(context, d, 0, &rc);
	CHECK(rc);
	other = clCreateCommandQueue(context, d, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &rc);
	CHECK(rc);
	for (cl_uint i = 0; i < N; i++) {
		words[i] = i * 2654435761u;
	}
	a = buffer(sizeof words, words);
	CHECK(clReleaseMemObject(buffer(64, NULL))); /* counts in the order */
	whole = buffer(sizeof words, words);
	b = clCreateSubBuffer(whole, CL_MEM_READ_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &(cl_buffer_region){ 8192, 4096 },
		&rc);
	CHECK(rc);
	cl_image_format f = { CL_RGBA, CL_UNSIGNED_INT8 };
	cl_image_desc desc = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 32, .image_height = 32 };
	picture = clCreateImage(context, CL_MEM_READ_WRITE, &f, &desc, NULL, &rc);
	CHECK(rc);
	cl_program p = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(p, 1, &d, "", NULL, NULL));
	kernel = clCreateKernel(p, "step1", &rc);
	CHECK(rc);
}

static void work(cl_uint step) {
	const size_t n = N, origin[3] = { 0, 0, 0 }, region[3] = { 32, 32, 1 };
	cl_event e;
	CHECK(clSetKernelArg(kernel, 0, sizeof a, &a));
	CHECK(clSetKernelArg(kernel, 1, sizeof b, &b));
	CHECK(clSetKernelArg(kernel, 2, sizeof picture, &picture));
	CHECK(clSetKernelArg(kernel, 3, sizeof step, &step));
	CHECK(clEnqueueNDRangeKernel(other, kernel, 1, NULL, &n, NULL, 0, NULL, &e));
	CHECK(clEnqueueCopyImageToBuffer(queue, picture, whole, origin, region, 4096 * (step & 3), 1, &e, NULL));
	CHECK(clReleaseEvent(e)); /* nothing waits: the checkpoint drains the queues */
}

static void show(const char *what, cl_mem m) {
	unsigned long long h = 14695981039346656037ull;
	CHECK(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
	for (size_t i = 0; i < sizeof words; i++) {
		h = (h ^ ((unsigned char *)words)[i]) * 1099511628211ull;
	}
	printf("%s %016llx\n", what, h);
}

int main(int argc, char **argv) {
	cl_platform_id platform;
	cl_uint step = 0, steps = argc > 1 ? (cl_uint)atoi(argv[1]) : 0, deadly = argc > 2 ? (cl_uint)atoi(argv[2]) : 0;
	CHECK(clGetPlatformIDs(1, &platform, NULL));
	CHECK(hf_init(NULL));
	CHECK(hf_protect("step", &step, 1, HF_UINT32));
	CHECK(hf_protect_opencl(platform));
	make(platform);
	int restored = hf_restore();
	CHECK(restored);
	if (restored == HF_RESTORED) {
		CHECK(hf_restore_opencl(platform));
		const size_t n = N; /* the page says: arguments of kernels do not come back */
		if (clEnqueueNDRangeKernel(other, kernel, 1, NULL, &n, NULL, 0, NULL, NULL) != CL_INVALID_KERNEL_ARGS) {
			return 2;
		}
	}
	printf("from %u\n", step);
	fflush(stdout);
	while (step < steps) {
		work(step++);
		if (step == 2 && deadly != 0) { /* a mapping is refused, and so is a gate; then it goes on */
			cl_int rc;
			void *p = clEnqueueMapBuffer(queue, a, CL_TRUE, CL_MAP_READ, 0, 64, 0, NULL, NULL, &rc);
			CHECK(rc);
			int refused = hf_checkpoint("other", 1) < 0;
			printf("mapped: %d %d\n", refused, hf_opencl_error());
			CHECK(clEnqueueUnmapMemObject(queue, a, p, 0, NULL, NULL));
			cl_event gate = clCreateUserEvent(context, &rc);
			CHECK(rc);
			CHECK(clEnqueueMarkerWithWaitList(other, 1, &gate, NULL));
			refused = hf_checkpoint("other", 1) < 0;
			printf("gated: %d %d\n", refused, hf_opencl_error());
			CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
			CHECK(clReleaseEvent(gate));
		}
		CHECK(hf_checkpoint(NULL, 0));
		if (step == deadly && restored != HF_RESTORED) {
			CHECK(hf_wait(NULL));
			work(steps + 1); /* what no epoch has */
			CHECK(clFinish(queue));
			fflush(stdout);
			kill(getpid(), SIGKILL);
		}
	}
	show("a", a);
	show("whole", whole);
	CHECK(hf_finalize());
	return 0;
}
