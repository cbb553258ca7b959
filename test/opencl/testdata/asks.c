/* Asks an implementation of OpenCL 1.2 what it says of everything, and what it refuses: prints the size of each answer,
   values that do not depend on the device, and the code of each error. Two implementations on one device print the
   same lines. */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"

static cl_platform_id platform;
static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_program program;
static cl_kernel kernel;
static cl_mem buffer, image;
static cl_sampler sampler;
static cl_event event;

/* ASK prints size and errors of one question; SHOW also a number that is the answer. */
#define ASK(call, object, what) ask(#object " " #what, (cl_int(*)(void *, cl_uint, size_t, void *, size_t *))call, \
	(void *)object, what, 0)
#define SHOW(call, object, what) ask(#object " " #what, (cl_int(*)(void *, cl_uint, size_t, void *, size_t *))call, \
	(void *)object, what, 1)

static void ask(const char *name, cl_int (*call)(void *, cl_uint, size_t, void *, size_t *), void *object, cl_uint what,
	int show) {
	size_t size = 0, again = 0;
	char b[4096] = { 0 };
	cl_int first = call(object, what, 0, NULL, &size), small = 0, all = 0;
	if (first == CL_SUCCESS && size > 0 && size < sizeof b) {
		small = call(object, what, size - 1, b, NULL);
		all = call(object, what, sizeof b, b, &again);
	}
	printf("%s: %d, size %zu, small %d, all %d", name, first, show == 2 ? 0 : size, small, all);
	if (show == 1 && again <= 8) {
		unsigned long long v = 0;
		memcpy(&v, b, again);
		printf(" = %llu", v);
	} else if (show == 1) {
		printf(" = %.100s", b);
	}
	printf("\n");
}

static const char *source =
	"__kernel void add(__global uint *to, __constant uint *from, uint n, __local uint *tmp) {\n"
	"	size_t i = get_global_id(0);\n"
	"	tmp[get_local_id(0)] = from[i & 15];\n"
	"	to[i] += tmp[get_local_id(0)] + n;\n"
	"}\n"
	"__kernel __attribute__((reqd_work_group_size(8, 1, 1))) void fixed(__global uint *to) {\n"
	"	to[get_global_id(0)]++;\n"
	"}\n"
	"__kernel void look(__read_only image2d_t from, sampler_t s, __global uint *to) {\n"
	"	to[0] = read_imageui(from, s, (int2)(0, 0)).x;\n"
	"}\n";

static void devices(void) {
	cl_uint n = 99;
	cl_device_id d;
	printf("platforms %d %d\n", clGetPlatformIDs(0, NULL, NULL), clGetPlatformIDs(0, &platform, NULL));
	printf("devices %d", clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, NULL));
	printf(" %d", clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, &d, NULL));
	printf(" %d", clGetDeviceIDs(platform, 0, 1, &d, NULL));
	printf(" %d", clGetDeviceIDs(platform, CL_DEVICE_TYPE_ACCELERATOR, 1, &d, &n));
	printf(" %d\n", clGetDeviceIDs(platform, CL_DEVICE_TYPE_DEFAULT, 1, &d, &n));
	for (cl_uint what = 0x1000; what <= 0x103D; what++) { /* 1.2's */
		static const cl_uint text[] = { CL_DEVICE_NAME, CL_DEVICE_VENDOR, CL_DRIVER_VERSION, CL_DEVICE_PROFILE,
			CL_DEVICE_VERSION, CL_DEVICE_EXTENSIONS, CL_DEVICE_OPENCL_C_VERSION, CL_DEVICE_BUILT_IN_KERNELS };
		int show = 0;
		for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
			show = what == text[i] ? 2 : show; /* of any size */
		}
		char name[32];
		snprintf(name, sizeof name, "device %x", what);
		if (what != 0x1034 && what != 0x1033) { /* half floats; nobody's */
			ask(name, (cl_int(*)(void *, cl_uint, size_t, void *, size_t *))clGetDeviceInfo, device, what, show);
		}
	}
	SHOW(clGetDeviceInfo, device, CL_DEVICE_REFERENCE_COUNT);
	SHOW(clGetDeviceInfo, device, CL_DEVICE_PARENT_DEVICE);
	ASK(clGetDeviceInfo, device, CL_DEVICE_PREFERRED_INTEROP_USER_SYNC);
	ASK(clGetDeviceInfo, device, CL_DEVICE_PRINTF_BUFFER_SIZE);
	ASK(clGetDeviceInfo, device, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE);
	ASK(clGetDeviceInfo, device, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE);
	ASK(clGetDeviceInfo, device, 0x9999);
	SHOW(clGetPlatformInfo, platform, CL_PLATFORM_PROFILE);
	ASK(clGetPlatformInfo, platform, 0x9999);
	printf("retain %d %d\n", clRetainDevice(device), clReleaseDevice(device));
}

static void contexts(void) {
	cl_int rc;
	SHOW(clGetContextInfo, context, CL_CONTEXT_REFERENCE_COUNT);
	SHOW(clGetContextInfo, context, CL_CONTEXT_NUM_DEVICES);
	ASK(clGetContextInfo, context, CL_CONTEXT_DEVICES);
	ASK(clGetContextInfo, context, CL_CONTEXT_PROPERTIES);
	ASK(clGetContextInfo, context, 0x9999);
	clCreateContext(NULL, 0, NULL, NULL, NULL, &rc);
	printf("no devices %d", rc);
	const cl_context_properties odd[] = { 0x7777, 1, 0 };
	clCreateContext(odd, 1, &device, NULL, NULL, &rc);
	printf(" property %d", rc);
	clCreateContext(NULL, 1, &device, NULL, "data", &rc);
	printf(" data %d\n", rc);
	SHOW(clGetCommandQueueInfo, queue, CL_QUEUE_REFERENCE_COUNT);
	SHOW(clGetCommandQueueInfo, queue, CL_QUEUE_PROPERTIES);
	ASK(clGetCommandQueueInfo, queue, CL_QUEUE_CONTEXT);
	ASK(clGetCommandQueueInfo, queue, CL_QUEUE_DEVICE);
	ASK(clGetCommandQueueInfo, queue, 0x9999);
	clCreateCommandQueue(context, device, 1 << 20, &rc);
	printf("queue's property %d", rc);
	clCreateCommandQueue(context, NULL, 0, &rc);
	printf(" device %d\n", rc);
}

static void memory(void) {
	cl_int rc;
	char b[64];
	SHOW(clGetMemObjectInfo, buffer, CL_MEM_TYPE);
	SHOW(clGetMemObjectInfo, buffer, CL_MEM_FLAGS);
	SHOW(clGetMemObjectInfo, buffer, CL_MEM_SIZE);
	SHOW(clGetMemObjectInfo, buffer, CL_MEM_HOST_PTR);
	SHOW(clGetMemObjectInfo, buffer, CL_MEM_MAP_COUNT);
	SHOW(clGetMemObjectInfo, buffer, CL_MEM_REFERENCE_COUNT);
	SHOW(clGetMemObjectInfo, buffer, CL_MEM_ASSOCIATED_MEMOBJECT);
	SHOW(clGetMemObjectInfo, buffer, CL_MEM_OFFSET);
	ASK(clGetMemObjectInfo, buffer, 0x9999);
	ASK(clGetImageInfo, image, CL_IMAGE_FORMAT);
	SHOW(clGetImageInfo, image, CL_IMAGE_ELEMENT_SIZE);
	SHOW(clGetImageInfo, image, CL_IMAGE_ROW_PITCH);
	SHOW(clGetImageInfo, image, CL_IMAGE_SLICE_PITCH);
	SHOW(clGetImageInfo, image, CL_IMAGE_WIDTH);
	SHOW(clGetImageInfo, image, CL_IMAGE_HEIGHT);
	SHOW(clGetImageInfo, image, CL_IMAGE_DEPTH);
	SHOW(clGetImageInfo, image, CL_IMAGE_ARRAY_SIZE);
	SHOW(clGetImageInfo, image, CL_IMAGE_BUFFER);
	ASK(clGetImageInfo, image, 0x9999);
	clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 64, NULL, &rc);
	printf("both ways %d", rc);
	clCreateBuffer(context, CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, 64, b, &rc);
	printf(" use and alloc %d", rc);
	clCreateBuffer(context, 0, 64, b, &rc);
	printf(" pointer %d", rc);
	clCreateBuffer(context, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS, 64, NULL, &rc);
	printf(" host %d", rc);
	cl_buffer_region r = { 0, 0 };
	clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &r, &rc);
	printf(" no range %d", rc);
	r = (cl_buffer_region){ 4096, 1 << 20 };
	clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &r, &rc);
	printf(" beyond %d", rc);
	r = (cl_buffer_region){ 1, 64 };
	clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &r, &rc);
	printf(" misaligned %d\n", rc);
	r = (cl_buffer_region){ 4096, 4096 };
	cl_mem part = clCreateSubBuffer(buffer, CL_MEM_READ_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &r, &rc);
	CHECK(rc);
	SHOW(clGetMemObjectInfo, part, CL_MEM_OFFSET);
	SHOW(clGetMemObjectInfo, part, CL_MEM_SIZE);
	SHOW(clGetMemObjectInfo, part, CL_MEM_FLAGS);
	clCreateSubBuffer(part, 0, CL_BUFFER_CREATE_TYPE_REGION, &r, &rc);
	printf("part of a part %d\n", rc);
	CHECK(clReleaseMemObject(part));
	cl_mem shut = clCreateBuffer(context, CL_MEM_HOST_NO_ACCESS, 64, NULL, &rc);
	CHECK(rc);
	printf("shut %d %d\n", clEnqueueReadBuffer(queue, shut, CL_TRUE, 0, 8, b, 0, NULL, NULL),
		clEnqueueWriteBuffer(queue, shut, CL_TRUE, 0, 8, b, 0, NULL, NULL));
	CHECK(clReleaseMemObject(shut));
	SHOW(clGetSamplerInfo, sampler, CL_SAMPLER_REFERENCE_COUNT);
	SHOW(clGetSamplerInfo, sampler, CL_SAMPLER_NORMALIZED_COORDS);
	SHOW(clGetSamplerInfo, sampler, CL_SAMPLER_ADDRESSING_MODE);
	SHOW(clGetSamplerInfo, sampler, CL_SAMPLER_FILTER_MODE);
	ASK(clGetSamplerInfo, sampler, 0x9999);
}

/* made makes an image, tells the code, and lets it go. */
static void made(const char *what, cl_mem_flags flags, cl_image_format f, cl_image_desc d, void *host) {
	cl_int rc = 1;
	cl_mem m = clCreateImage(context, flags, &f, &d, host, &rc);
	printf("%s %d", what, rc);
	if (m != NULL) {
		for (cl_uint q = CL_IMAGE_ELEMENT_SIZE; q <= CL_IMAGE_ARRAY_SIZE; q++) {
			size_t v = 0;
			CHECK(clGetImageInfo(m, q, sizeof v, &v, NULL));
			printf(" %zu", v);
		}
		CHECK(clReleaseMemObject(m));
	}
	printf("\n");
}

static void images(void) {
	static char bytes[1 << 16];
	const cl_image_format f = { CL_RGBA, CL_UNSIGNED_INT8 }, odd = { CL_RGBA, 0x7777 };
	cl_image_desc d = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 9, .image_height = 7 };
	made("plane", 0, f, d, NULL);
	made("format", 0, odd, d, NULL);
	d.image_row_pitch = 64;
	made("pitch without bytes", 0, f, d, NULL);
	made("pitch", CL_MEM_COPY_HOST_PTR, f, d, bytes);
	made("used", CL_MEM_USE_HOST_PTR, f, d, bytes);
	d.image_row_pitch = 8;
	made("small pitch", CL_MEM_COPY_HOST_PTR, f, d, bytes);
	d = (cl_image_desc){ .image_type = CL_MEM_OBJECT_IMAGE2D, .image_height = 7 };
	made("no width", 0, f, d, NULL);
	d = (cl_image_desc){ .image_type = CL_MEM_OBJECT_IMAGE1D, .image_width = 9 };
	made("line", 0, f, d, NULL);
	d = (cl_image_desc){ .image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = 5, .image_height = 4, .image_depth = 3 };
	made("space", 0, f, d, NULL);
	d = (cl_image_desc){ .image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY, .image_width = 5, .image_height = 4,
		.image_array_size = 3 };
	made("planes", 0, f, d, NULL);
	d = (cl_image_desc){ .image_type = CL_MEM_OBJECT_IMAGE1D_ARRAY, .image_width = 5, .image_array_size = 6 };
	made("lines", 0, f, d, NULL);
	d = (cl_image_desc){ .image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 100, .buffer = buffer };
	made("on a buffer", 0, f, d, NULL);
	d.image_width = 1 << 20;
	made("beyond the buffer", 0, f, d, NULL);
	d.image_type = 0x7777;
	made("type", 0, f, d, NULL);
}

static void programs(void) {
	cl_int rc;
	size_t n = 0;
	const size_t eight = 8, three = 3;
	SHOW(clGetProgramInfo, program, CL_PROGRAM_REFERENCE_COUNT);
	SHOW(clGetProgramInfo, program, CL_PROGRAM_NUM_DEVICES);
	ASK(clGetProgramInfo, program, CL_PROGRAM_DEVICES);
	ASK(clGetProgramInfo, program, CL_PROGRAM_SOURCE);
	SHOW(clGetProgramInfo, program, CL_PROGRAM_NUM_KERNELS);
	ASK(clGetProgramInfo, program, CL_PROGRAM_KERNEL_NAMES);
	ASK(clGetProgramInfo, program, 0x9999);
	cl_build_status status;
	cl_program_binary_type type;
	char options[64];
	CHECK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
	CHECK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
	CHECK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_OPTIONS, sizeof options, options, &n));
	printf("status %d type %u options %s unknown %d device %d\n", status, type, options,
		clGetProgramBuildInfo(program, device, 0x9999, 0, NULL, NULL),
		clGetProgramBuildInfo(program, NULL, CL_PROGRAM_BUILD_STATUS, 0, NULL, NULL));
	SHOW(clGetKernelInfo, kernel, CL_KERNEL_FUNCTION_NAME);
	SHOW(clGetKernelInfo, kernel, CL_KERNEL_NUM_ARGS);
	SHOW(clGetKernelInfo, kernel, CL_KERNEL_REFERENCE_COUNT);
	ASK(clGetKernelInfo, kernel, 0x9999);
	printf("group info %d %d\n", clGetKernelWorkGroupInfo(kernel, device, 0x9999, 0, NULL, NULL),
		clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_GLOBAL_WORK_SIZE, 0, NULL, NULL));
	size_t fixed[3] = { 9, 9, 9 };
	cl_kernel k = clCreateKernel(program, "fixed", &rc);
	CHECK(rc);
	CHECK(clGetKernelWorkGroupInfo(k, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof fixed, fixed, &n));
	printf("fixed %zu %zu %zu, %zu bytes\n", fixed[0], fixed[1], fixed[2], n);
	CHECK(clSetKernelArg(k, 0, sizeof buffer, &buffer));
	printf("group of 8 %d", clEnqueueNDRangeKernel(queue, k, 1, NULL, &eight, &eight, 0, NULL, NULL));
	printf(" of 3 %d", clEnqueueNDRangeKernel(queue, k, 1, NULL, &eight, &three, 0, NULL, NULL));
	printf(" no size %d\n", clEnqueueNDRangeKernel(queue, k, 1, NULL, NULL, NULL, 0, NULL, NULL));
	CHECK(clFinish(queue));
	CHECK(clReleaseKernel(k));
	for (cl_uint i = 0; i < 5; i++) {
		cl_kernel_arg_address_qualifier address = 0;
		cl_kernel_arg_type_qualifier qualifiers = 0;
		rc = clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address, NULL);
		clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof qualifiers, &qualifiers, NULL);
		printf("argument %u: %d %x\n", i, rc, address);
	}
	cl_uint word = 0;
	printf("sizes %d %d %d %d %d\n", clSetKernelArg(kernel, 0, 4, &buffer), clSetKernelArg(kernel, 3, 0, NULL),
		clSetKernelArg(kernel, 3, 4, &word), clSetKernelArg(kernel, 2, 4, NULL), clSetKernelArg(kernel, 9, 4, &word));
}

/* strangers sets arguments to objects of another context, which other objects of this one were before. */
static void strangers(void) {
	cl_int rc;
	cl_context other = context_of(device);
	cl_mem m = clCreateBuffer(other, CL_MEM_READ_WRITE, 4096, NULL, &rc);
	CHECK(rc);
	cl_kernel k = clCreateKernel(program, "fixed", &rc);
	CHECK(rc);
	CHECK(clSetKernelArg(k, 0, sizeof buffer, &buffer));
	printf("argument of another context %d\n", clSetKernelArg(k, 0, sizeof m, &m));
	CHECK(clSetKernelArg(k, 0, sizeof buffer, &buffer));
	CHECK(clFinish(queue));
	CHECK(clReleaseKernel(k));
	CHECK(clReleaseMemObject(m));
	CHECK(clReleaseContext(other));
}

static void builds(void) {
	cl_int rc;
	const char *broken = "__kernel void f(__global int *x) { x[0] = ; }\n";
	cl_program p = clCreateProgramWithSource(context, 1, &broken, NULL, &rc);
	CHECK(rc);
	cl_build_status status;
	size_t n = 0;
	CHECK(clGetProgramBuildInfo(p, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
	printf("before %d", status);
	clCreateKernel(p, "f", &rc);
	printf(" kernel %d", rc);
	printf(" build %d", clBuildProgram(p, 1, &device, "", NULL, NULL));
	CHECK(clGetProgramBuildInfo(p, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
	CHECK(clGetProgramBuildInfo(p, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &n));
	printf(" after %d log %d", status, n > 1);
	printf(" compile %d", clCompileProgram(p, 1, &device, "", 0, NULL, NULL, NULL, NULL));
	cl_program none = clLinkProgram(context, 1, &device, "", 0, NULL, NULL, NULL, &rc);
	printf(" link nothing %d %d\n", none != NULL, rc);
	CHECK(clReleaseProgram(p));
	clCreateProgramWithSource(context, 0, NULL, NULL, &rc);
	printf("no source %d", rc);
	const unsigned char *bytes = (const unsigned char *)"no binary at all";
	const size_t length = 16;
	cl_int one = 1;
	clCreateProgramWithBinary(context, 1, &device, &length, &bytes, &one, &rc);
	printf(" binary %d %d", rc, one);
	printf(" kernels live %d", clBuildProgram(program, 1, &device, "", NULL, NULL));
	printf(" list %d\n", clBuildProgram(program, 1, NULL, "", NULL, NULL));
}

static void events(void) {
	cl_int rc;
	SHOW(clGetEventInfo, event, CL_EVENT_COMMAND_TYPE);
	SHOW(clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS);
	ASK(clGetEventInfo, event, CL_EVENT_COMMAND_QUEUE);
	ASK(clGetEventInfo, event, CL_EVENT_CONTEXT);
	ASK(clGetEventInfo, event, 0x9999);
	ASK(clGetEventProfilingInfo, event, CL_PROFILING_COMMAND_START);
	cl_event user = clCreateUserEvent(context, &rc);
	CHECK(rc);
	SHOW(clGetEventInfo, user, CL_EVENT_COMMAND_TYPE);
	SHOW(clGetEventInfo, user, CL_EVENT_COMMAND_EXECUTION_STATUS);
	SHOW(clGetEventInfo, user, CL_EVENT_COMMAND_QUEUE);
	SHOW(clGetEventInfo, user, CL_EVENT_REFERENCE_COUNT);
	printf("wrong %d", clSetUserEventStatus(user, CL_RUNNING));
	printf(" set %d", clSetUserEventStatus(user, CL_COMPLETE));
	printf(" again %d", clSetUserEventStatus(user, CL_COMPLETE));
	printf(" a command's %d", clSetUserEventStatus(event, CL_COMPLETE));
	printf(" wait for none %d", clWaitForEvents(0, NULL));
	printf(" call-back %d %d\n", clSetEventCallback(user, CL_COMPLETE, NULL, NULL),
		clSetEventCallback(user, 77, (void(CL_CALLBACK *)(cl_event, cl_int, void *))1, NULL));
	CHECK(clReleaseEvent(user));
	user = clCreateUserEvent(context, &rc);
	CHECK(rc);
	cl_uint word = 7;
	cl_event after;
	CHECK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, 4, &word, 1, &user, &after));
	CHECK(clSetUserEventStatus(user, -99));
	printf("failed %d", clWaitForEvents(1, &after));
	CHECK(clGetEventInfo(after, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof rc, &rc, NULL));
	printf(" status below 0: %d\n", rc < 0);
	CHECK(clReleaseEvent(user));
	CHECK(clReleaseEvent(after));
}

static void commands(void) {
	char b[256] = { 0 };
	cl_int rc;
	size_t pitch, origin[3] = { 0 }, region[3] = { 4, 4, 1 }, far[3] = { 60, 36, 0 }, none[3] = { 4, 0, 1 };
	printf("read %d", clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, NULL, 0, NULL, NULL));
	printf(" of an image %d", clEnqueueReadBuffer(queue, image, CL_TRUE, 0, 4, b, 0, NULL, NULL));
	printf(" queue %d", clEnqueueReadBuffer(NULL, buffer, CL_TRUE, 0, 4, b, 0, NULL, NULL));
	printf(" overlap %d", clEnqueueCopyBuffer(queue, buffer, buffer, 0, 4, 8, 0, NULL, NULL));
	printf(" pattern %d", clEnqueueFillBuffer(queue, buffer, b, 3, 0, 9, 0, NULL, NULL));
	printf(" uneven %d\n", clEnqueueFillBuffer(queue, buffer, b, 4, 2, 8, 0, NULL, NULL));
	printf("pixels %d", clEnqueueReadImage(queue, image, CL_TRUE, origin, region, 0, 0, b, 0, NULL, NULL));
	printf(" beyond %d", clEnqueueReadImage(queue, image, CL_TRUE, far, region, 0, 0, b, 0, NULL, NULL));
	printf(" nothing %d", clEnqueueReadImage(queue, image, CL_TRUE, origin, none, 0, 0, b, 0, NULL, NULL));
	printf(" of a buffer %d", clEnqueueReadImage(queue, buffer, CL_TRUE, origin, region, 0, 0, b, 0, NULL, NULL));
	printf(" box %d\n", clEnqueueReadBufferRect(queue, buffer, CL_TRUE, origin, origin, none, 0, 0, 0, 0, b, 0, NULL,
		NULL));
	clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 1 << 20, 4, 0, NULL, NULL, &rc);
	printf("map beyond %d", rc);
	clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ, far, region, &pitch, NULL, 0, NULL, NULL, &rc);
	printf(" image %d", rc);
	printf(" unmap %d\n", clEnqueueUnmapMemObject(queue, buffer, b, 0, NULL, NULL));
}

int main(int argc, char **argv) {
	cl_int rc;
	cl_uint at = argc > 1 ? (cl_uint)atoi(argv[1]) : 0, n;
	cl_platform_id list[8];
	CHECK(clGetPlatformIDs(8, list, &n));
	platform = list[at];
	CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
	context = context_of(device);
	queue = clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &rc);
	CHECK(rc);
	program = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(program, 1, &device, "-cl-kernel-arg-info", NULL, NULL));
	kernel = clCreateKernel(program, "add", &rc);
	CHECK(rc);
	buffer = clCreateBuffer(context, 0, 16384, NULL, &rc);
	CHECK(rc);
	cl_image_format f = { CL_RGBA, CL_UNSIGNED_INT8 };
	cl_image_desc d = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 61, .image_height = 37 };
	image = clCreateImage(context, CL_MEM_READ_ONLY, &f, &d, NULL, &rc);
	CHECK(rc);
	sampler = clCreateSampler(context, CL_TRUE, CL_ADDRESS_REPEAT, CL_FILTER_LINEAR, &rc);
	CHECK(rc);
	const cl_uint zero = 0;
	CHECK(clEnqueueFillBuffer(queue, buffer, &zero, 4, 0, 16384, 0, NULL, &event));
	CHECK(clFinish(queue));
	devices();
	contexts();
	memory();
	images();
	programs();
	strangers();
	builds();
	events();
	commands();
	return 0;
}
