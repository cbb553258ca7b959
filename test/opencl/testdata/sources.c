// Sources without a kernel, in many pieces, of more than a megabyte, with hundreds of kernels, and with words that
// mean something elsewhere; prints what comes of each.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include "check.h"
#include <string.h>

static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_mem out;

/* try builds a source, and launches the last of its kernels. */
static void try(const char *what, cl_uint count, const char **texts, const size_t *lengths) {
	cl_int rc;
	cl_program p = clCreateProgramWithSource(context, count, texts, lengths, &rc);
	CHECK(rc);
	printf("%s: %d", what, clBuildProgram(p, 1, &device, "-DFOUR=4", NULL, NULL));
	cl_build_status status;
	CHECK(clGetProgramBuildInfo(p, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
	size_t n = 99;
	rc = clGetProgramInfo(p, CL_PROGRAM_NUM_KERNELS, sizeof n, &n, NULL);
	cl_uint made = 99;
	printf(", status %d, kernels %d: %zu, %d", status, rc, n, clCreateKernelsInProgram(p, 0, NULL, &made));
	printf(": %u", made);
	if (n == made && n > 0) {
		cl_kernel *list = calloc(n, sizeof *list);
		const size_t one = 1;
		cl_int value = 1;
		CHECK(clCreateKernelsInProgram(p, made, list, NULL));
		CHECK(clEnqueueWriteBuffer(queue, out, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
		CHECK(clSetKernelArg(list[n - 1], 0, sizeof out, &out));
		CHECK(clEnqueueNDRangeKernel(queue, list[n - 1], 1, NULL, &one, NULL, 0, NULL, NULL));
		CHECK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
		printf(", gives %d", value);
		for (size_t i = 0; i < n; i++) {
			CHECK(clReleaseKernel(list[i]));
		}
		free(list);
	}
	printf("\n");
	CHECK(clReleaseProgram(p));
}

static void try_text(const char *what, const char *text) { try(what, 1, &text, NULL); }

enum { PIECES = 3000, KERNELS = 300, LONG = 1500000 };

static void try_pieces(void) {
	static const char *texts[PIECES];
	static size_t lengths[PIECES];
	texts[0] = "__kernel void f(__global int *o) {\r\n int s = 0; NOT OF IT";
	lengths[0] = strlen(texts[0]) - strlen("NOT OF IT");
	for (int i = 1; i < PIECES; i++) {
		texts[i] = i == PIECES - 1 ? "o[0] = s; }\r\n" : "s += FOUR;\r\n";
		lengths[i] = i % 3 == 0 ? strlen(texts[i]) : 0;
	}
	try("in pieces", PIECES, texts, lengths);
}

static void try_long(void) {
	char *text = malloc(LONG + 100);
	memset(text, ' ', LONG);
	memcpy(text, "// ", 3);
	for (int i = 100; i < LONG; i += 100) {
		memcpy(text + i, "\r\n// ", 5);
	}
	strcpy(text + LONG, "\r\n__kernel void f(__global int *o) { o[0] += FOUR; }");
	try_text("long", text);
	free(text);
}

static void try_many(void) {
	static char text[KERNELS * 80];
	char *at = text;
	for (int i = 0; i < KERNELS; i++) {
		at += sprintf(at, "__kernel void k%03d(__global int *o) { o[0] += FOUR; }\n", i);
	}
	try_text("many", text);
}

int main(void) {
	cl_int rc;
	device = first_device();
	context = context_of(device);
	queue = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	out = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof(cl_int), NULL, &rc);
	CHECK(rc);
	try_text("empty", "");
	try_text("a function", "int twice(int x) { return 2 * x; }");
	try_text("a comment", "// nothing");
	try_text("double in a text",
		"__kernel void f(__global int *o) {\n"
		"	if (o[0] == 7) printf(\"\\\"double\\\": %d // or not\\n\", o[0]);\n"
		"	o[0] = 3;\n"
		"}");
	try_text("double in a macro", "#define WIDE(x) \\\n ((double)(x))\n__kernel void f(__global int *o) { o[0] = 5; }");
	try_pieces();
	try_long();
	try_many();
	CHECK(clReleaseMemObject(out));
	CHECK(clReleaseCommandQueue(queue));
	CHECK(clReleaseContext(context));
	return 0;
}
