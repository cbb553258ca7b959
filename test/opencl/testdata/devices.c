/* Uses all devices of the first platform in one context, in turn: buffers, ranges of them, images, arrays of images, an
   image on a buffer, a program linked from two, events across queues. What it prints does not depend on how many
   devices there are. With a file name it stands still in the middle until the file is there, and then runs as many
   rounds as a second argument says. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

static const char *first =
	"#include \"shared.h\"\n"
	"#define SALT 7\n"
	"__kernel void step1(__global uint *to, __global const uint *from, __global const uint *maybe, uint f) {\n"
	"	size_t i = get_global_id(0);\n"
	"	to[i] = blend(to[i], from[i & 1023]) * f + (maybe ? maybe[i] : SALT);\n"
	"}\n"
	"__kernel void paint(__write_only image2d_t to, __read_only image2d_array_t from, __read_only image1d_array_t\n"
	"	lines, __read_only image1d_buffer_t flat, uint f) {\n"
	"	const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;\n"
	"	int2 p = (int2)(get_global_id(0), get_global_id(1));\n"
	"	uint4 v = read_imageui(from, s, (int4)(p, f & 3, 0)) + read_imageui(lines, s, (int2)(p.x, f % 5)) +\n"
	"		read_imageui(flat, p.y * 16 + p.x);\n"
	"	write_imageui(to, p, (v + f) & 255);\n"
	"}\n";
static const char *second =
	"#include \"shared.h\"\n"
	"#ifdef SALT\n#error both sources are one\n#endif\n"
	"uint blend(uint a, uint b) { return (a << 5 | a >> 27) ^ b * FACTOR; }\n"
	/* Mesa 22.3 links no source with images to one without */
	"__kernel void spare(__read_only image2d_array_t from, __read_only image1d_array_t lines,\n"
	"	__read_only image1d_buffer_t flat, __global uint *to) {\n"
	"	const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;\n"
	"	to[0] = read_imageui(from, s, (int4)(0)).x + read_imageui(lines, s, (int2)(0)).x + read_imageui(flat, 0).x;\n"
	"}\n";
static const char *header = "uint blend(uint a, uint b);\n";

enum { N = 4096, SIDE = 16, HALF = 12 };
static cl_context context;
static cl_uint count;
static cl_command_queue queues[16];
static int told;

static void CL_CALLBACK tell(cl_program p, void *data) {
	(void)p;
	told += *(int *)data;
}

static cl_program built(cl_device_id *devices) {
	cl_int rc;
	cl_program h = clCreateProgramWithSource(context, 1, &header, NULL, &rc), p[2];
	CHECK(rc);
	int one = 1;
	for (int i = 0; i < 2; i++) {
		p[i] = clCreateProgramWithSource(context, 1, i == 0 ? &first : &second, NULL, &rc);
		CHECK(rc);
		CHECK(clCompileProgram(p[i], count, devices, i == 0 ? "" : "-DFACTOR=2654435761u", 1, &h,
			(const char *[]){ "shared.h" }, tell, &one));
	}
	cl_program library = clLinkProgram(context, 0, NULL, "-create-library", 1, p + 1, NULL, NULL, &rc);
	CHECK(rc);
	cl_program whole = clLinkProgram(context, 0, NULL, "", 2, (cl_program[]){ p[0], library }, tell, &one, &rc);
	CHECK(rc);
	cl_program alone = clLinkProgram(context, 0, NULL, "", 1, p, NULL, NULL, &rc);
	printf("without the other: %d, ", rc < 0);
	if (alone != NULL) {
		CHECK(clReleaseProgram(alone));
	}
	cl_program_binary_type types[3];
	CHECK(clGetProgramBuildInfo(p[0], devices[0], CL_PROGRAM_BINARY_TYPE, 4, types, NULL));
	CHECK(clGetProgramBuildInfo(library, devices[0], CL_PROGRAM_BINARY_TYPE, 4, types + 1, NULL));
	CHECK(clGetProgramBuildInfo(whole, devices[0], CL_PROGRAM_BINARY_TYPE, 4, types + 2, NULL));
	printf("object %u library %u program %u, told %d\n", types[0], types[1], types[2], told);
	CHECK(clReleaseProgram(h));
	CHECK(clReleaseProgram(p[0]));
	CHECK(clReleaseProgram(p[1]));
	CHECK(clReleaseProgram(library));
	return whole;
}

static cl_mem image(cl_mem_object_type type, size_t layers, cl_mem on, cl_mem_flags flags, void *bytes) {
	cl_int rc;
	cl_image_format f = { CL_RGBA, CL_UNSIGNED_INT8 };
	cl_image_desc d = { .image_type = type, .image_width = on != NULL ? SIDE * SIDE : SIDE, .image_height = SIDE,
		.image_array_size = layers, .buffer = on };
	cl_mem m = clCreateImage(context, flags, &f, &d, bytes, &rc);
	CHECK(rc);
	return m;
}

static void sum(const char *what, const void *p, size_t n) {
	unsigned long long h = 14695981039346656037ull;
	for (size_t i = 0; i < n; i++) {
		h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211ull;
	}
	printf("%s %016llx\n", what, h);
}

static cl_uint words[N];
static cl_mem state, part, bytes, planes, lines, flat, canvas;
static cl_kernel step, paint;

/* round runs one step on each of two devices in turn, the second after the first one's event. */
static void one_round(cl_uint r) {
	const size_t all = N, square[2] = { SIDE, SIDE }, origin[3] = { 0, 0, 0 };
	size_t region[3] = { SIDE, SIDE, 1 };
	cl_command_queue a = queues[r % count], b = queues[(r + 1) % count];
	cl_event stepped, painted, drawn;
	cl_mem none = NULL;
	CHECK(clSetKernelArg(step, 0, sizeof state, &state));
	CHECK(clSetKernelArg(step, 1, sizeof part, &part));
	CHECK(clSetKernelArg(step, 2, sizeof none, r % 3 == 0 ? NULL : r % 3 == 1 ? &none : &bytes));
	CHECK(clSetKernelArg(step, 3, sizeof r, &r));
	CHECK(clEnqueueNDRangeKernel(a, step, 1, NULL, &all, NULL, 0, NULL, &stepped));
	CHECK(clSetKernelArg(paint, 4, sizeof r, &r));
	CHECK(clEnqueueNDRangeKernel(b, paint, 2, NULL, square, NULL, 1, &stepped, &painted));
	CHECK(clEnqueueCopyImageToBuffer(b, canvas, bytes, origin, region, 4 * (r % 64) * 16, 1, &painted, &drawn));
	size_t layer[3] = { 0, 0, r % 4 }, line[3] = { 0, r % 5, 0 };
	CHECK(clEnqueueCopyImage(a, canvas, planes, origin, layer, region, 1, &drawn, NULL));
	region[1] = 1;
	CHECK(clEnqueueCopyImage(a, canvas, lines, origin, line, region, 1, &drawn, NULL));
	CHECK(clFinish(a));
	CHECK(clFinish(b));
	CHECK(clReleaseEvent(stepped));
	CHECK(clReleaseEvent(painted));
	CHECK(clReleaseEvent(drawn));
}

static void show(const char *what, cl_command_queue q) {
	static unsigned char out[SIDE * SIDE * 4 * 4];
	const size_t origin[3] = { 0, 0, 0 }, cube[3] = { SIDE, SIDE, 4 }, five[3] = { SIDE, 5, 1 };
	printf("%s:\n", what);
	CHECK(clEnqueueReadBuffer(q, state, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
	sum("state", words, sizeof words);
	CHECK(clEnqueueReadBuffer(q, bytes, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
	sum("bytes", words, sizeof words);
	CHECK(clEnqueueReadImage(q, planes, CL_TRUE, origin, cube, 0, 0, out, 0, NULL, NULL));
	sum("planes", out, sizeof out);
	CHECK(clEnqueueReadImage(q, lines, CL_TRUE, origin, five, 0, 0, out, 0, NULL, NULL));
	sum("lines", out, SIDE * 5 * 4);
}

/* mapped changes a line of the array of lines, and pixels of the image on a buffer, through the host. */
static void mapped(cl_command_queue q) {
	const size_t at[3] = { 2, 1, 0 }, region[3] = { 4, 3, 1 };
	size_t row = 0, slice = 0;
	cl_int rc;
	unsigned char *p = clEnqueueMapImage(q, lines, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, at, region, &row, &slice, 0,
		NULL, NULL, &rc);
	CHECK(rc);
	for (size_t y = 0; y < 3; y++) {
		for (size_t x = 0; x < 16; x++) {
			p[y * slice + x] ^= (unsigned char)(x * 16 + y);
		}
	}
	CHECK(clEnqueueUnmapMemObject(q, lines, p, 0, NULL, NULL));
	const size_t begin[3] = { 5, 0, 0 }, seven[3] = { 7, 1, 1 };
	p = clEnqueueMapImage(q, flat, CL_TRUE, CL_MAP_WRITE, begin, seven, &row, NULL, 0, NULL, NULL, &rc);
	CHECK(rc);
	memset(p, 0x5a, 28);
	CHECK(clEnqueueUnmapMemObject(q, flat, p, 0, NULL, NULL));
	const size_t three[3] = { SIDE, 3, 1 };
	unsigned char padded[3 * 128];
	memset(padded, 3, sizeof padded);
	CHECK(clEnqueueWriteImage(q, lines, CL_TRUE, (size_t[3]){ 0, 2, 0 }, three, 0, 128, padded, 0,
		NULL, NULL));
	CHECK(clFinish(q));
}

int main(int argc, char **argv) {
	cl_platform_id platform;
	cl_device_id devices[16];
	cl_int rc;
	CHECK(clGetPlatformIDs(1, &platform, NULL));
	CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 16, devices, &count));
	fprintf(stderr, "%u devices\n", count);
	context = clCreateContext(NULL, count, devices, NULL, NULL, &rc);
	CHECK(rc);
	for (cl_uint i = 0; i < count; i++) {
		queues[i] = clCreateCommandQueue(context, devices[i], 0, &rc);
		CHECK(rc);
	}
	cl_program program = built(devices);
	step = clCreateKernel(program, "step1", &rc);
	CHECK(rc);
	paint = clCreateKernel(program, "paint", &rc);
	CHECK(rc);
	for (cl_uint i = 0; i < N; i++) {
		words[i] = i * 2654435761u;
	}
	state = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof words, words, &rc);
	CHECK(rc);
	bytes = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof words, words, &rc);
	CHECK(rc);
	part = clCreateSubBuffer(bytes, CL_MEM_READ_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &(cl_buffer_region){ 8192, 4096 },
		&rc);
	CHECK(rc);
	planes = image(CL_MEM_OBJECT_IMAGE2D_ARRAY, 4, NULL, CL_MEM_COPY_HOST_PTR, words);
	lines = image(CL_MEM_OBJECT_IMAGE1D_ARRAY, 5, NULL, CL_MEM_COPY_HOST_PTR, words + 100);
	flat = image(CL_MEM_OBJECT_IMAGE1D_BUFFER, 0, bytes, 0, NULL);
	canvas = image(CL_MEM_OBJECT_IMAGE2D, 0, NULL, 0, NULL);
	CHECK(clSetKernelArg(paint, 0, sizeof canvas, &canvas));
	CHECK(clSetKernelArg(paint, 1, sizeof planes, &planes));
	CHECK(clSetKernelArg(paint, 2, sizeof lines, &lines));
	CHECK(clSetKernelArg(paint, 3, sizeof flat, &flat));
	cl_uint rounds = argc > 2 ? (cl_uint)atoi(argv[2]) : HALF;
	for (cl_uint r = 0; r < HALF + rounds; r++) {
		one_round(r);
		if (r == HALF) {
			show("half", queues[0]);
			fflush(stdout);
			while (argc > 1 && access(argv[1], F_OK) != 0) {
				usleep(10000);
			}
			mapped(queues[r % count]);
		}
	}
	show("end", queues[count - 1]);
	return 0;
}
