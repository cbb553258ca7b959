/* What programs of OpenCL 2 and 3 find on a device of 1.2: copies of kernels, samplers from lists, attributes of
   kernels. Prints results. With a file as argument it says "half", waits for the file, and goes on: it
   may be moved there.

   usage: clones [FILE] */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

static cl_context context;
static cl_command_queue queue;
static cl_mem buffer, other, image;

static const char *source =
	"__kernel __attribute__((reqd_work_group_size(4, 1, 1))) void look(__read_only image2d_t from, sampler_t s,\n"
	"		__global uint *to, uint factor, __local uint *tmp) {\n"
	"	uint i = get_global_id(0);\n"
	"	tmp[get_local_id(0)] = read_imageui(from, s, (int2)(i, 0)).x;\n"
	"	to[i] = factor * tmp[get_local_id(0)];\n"
	"}\n";

/* show runs a kernel and prints what it left in a buffer. */
static void show(const char *what, cl_kernel k, cl_mem to) {
	const size_t all = 8, group = 4;
	cl_uint b[8];
	CHECK(clEnqueueNDRangeKernel(queue, k, 1, NULL, &all, &group, 0, NULL, NULL));
	CHECK(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, sizeof b, b, 0, NULL, NULL));
	printf("%s:", what);
	for (int i = 0; i < 8; i++) {
		printf(" %u", b[i]);
	}
	printf("\n");
}

static void set(cl_kernel k, cl_uint factor) { CHECK(clSetKernelArg(k, 3, sizeof factor, &factor)); }

static cl_sampler sampler(void) {
	const cl_sampler_properties list[] = { CL_SAMPLER_ADDRESSING_MODE, CL_ADDRESS_CLAMP_TO_EDGE,
		CL_SAMPLER_NORMALIZED_COORDS, CL_FALSE, 0 };
	cl_sampler_properties told[9];
	cl_int rc;
	size_t n;
	cl_sampler s = clCreateSamplerWithProperties(context, list, &rc);
	CHECK(rc);
	CHECK(clGetSamplerInfo(s, CL_SAMPLER_PROPERTIES, sizeof told, told, &n));
	printf("list of %zu, the same: %d\n", n, n == sizeof list && memcmp(told, list, n) == 0);
	return s;
}

static void attributes(cl_kernel k) {
	char text[256];
	CHECK(clGetKernelInfo(k, CL_KERNEL_ATTRIBUTES, sizeof text, text, NULL));
	printf("attributes: %d\n", strstr(text, "reqd_work_group_size") != NULL); /* each writes them its own way */
}

int main(int argc, char **argv) {
	cl_device_id device;
	cl_int rc;
	cl_uint pixels[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, n;
	device = first_device();
	context = context_of(device);
	queue = clCreateCommandQueueWithProperties(context, device, NULL, &rc);
	CHECK(rc);
	const cl_image_format f = { CL_RGBA, CL_UNSIGNED_INT32 };
	const cl_image_desc d = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 1 };
	cl_uint wide[32] = { 0 };
	for (int i = 0; i < 8; i++) {
		wide[4 * i] = pixels[i];
	}
	image = clCreateImage(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &f, &d, wide, &rc);
	CHECK(rc);
	buffer = clCreateBuffer(context, 0, sizeof pixels, NULL, &rc);
	CHECK(rc);
	other = clCreateBuffer(context, 0, sizeof pixels, NULL, &rc);
	CHECK(rc);
	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(program, 1, &device, "-cl-kernel-arg-info", NULL, NULL));
	cl_kernel k = clCreateKernel(program, "look", &rc);
	CHECK(rc);
	cl_sampler s = sampler();
	CHECK(clSetKernelArg(k, 0, sizeof image, &image));
	CHECK(clSetKernelArg(k, 1, sizeof s, &s));
	CHECK(clSetKernelArg(k, 2, sizeof buffer, &buffer));
	CHECK(clSetKernelArg(k, 4, 16, NULL));
	set(k, 2);
	cl_kernel copy = clCloneKernel(k, &rc);
	CHECK(rc);
	set(k, 3);
	CHECK(clSetKernelArg(copy, 2, sizeof other, &other));
	show("kernel", k, buffer);
	show("copy", copy, other);
	attributes(copy);
	CHECK(clGetKernelInfo(copy, CL_KERNEL_REFERENCE_COUNT, sizeof n, &n, NULL));
	printf("references %u, build with kernels %d\n", n, clBuildProgram(program, 1, &device, "", NULL, NULL));
	CHECK(clReleaseKernel(k));
	if (argc > 1) {
		printf("half\n");
		fflush(stdout);
		while (access(argv[1], F_OK) != 0) {
			usleep(1000);
		}
	}
	show("copy", copy, other);
	set(copy, 5);
	cl_kernel again = clCloneKernel(copy, &rc);
	CHECK(rc);
	CHECK(clReleaseKernel(copy));
	attributes(again);
	show("its copy", again, other);
	cl_kernel fresh = clCreateKernel(program, "look", &rc);
	CHECK(rc);
	cl_kernel empty = clCloneKernel(fresh, &rc);
	CHECK(rc);
	const size_t all = 8, group = 4;
	printf("copy of none set %d\n", clEnqueueNDRangeKernel(queue, empty, 1, NULL, &all, &group, 0, NULL, NULL));
	CHECK(clReleaseKernel(fresh));
	CHECK(clReleaseKernel(empty));
	CHECK(clReleaseKernel(again));
	CHECK(clReleaseSampler(s));
	CHECK(clReleaseProgram(program));
	return 0;
}
