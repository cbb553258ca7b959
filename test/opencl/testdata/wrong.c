/* Calls of OpenCL 1.2 with wrong arguments, one kind that the specification names after the other. Prints a line for
   each: what is wrong, the code that came back, and the codes that the specification allows.

   usage: wrong [all]: with "all" also what PoCL 3.1 does not live through, such as objects of another kind. */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

static cl_platform_id platform;
static cl_device_id device;
static cl_context context, other; /* of the same device */
static cl_command_queue queue, other_queue;
static cl_mem buffer, other_buffer, image, other_image, shut, constant;
static cl_sampler sampler;
static cl_program program, raw, binary;
static cl_kernel kernel, unset, look, other_kernel;
static cl_event event, other_event, user;
static cl_int rc; /* of the call that is tried */
static int all;

static void tell(const char *what, cl_int got, const char *want) { printf("%s: %d, want %s\n", what, got, want); }

/* told is what came of a call that gives an object: its code, 77 where it left none, 78 an object and an error. */
static cl_int told(const void *made) { return made != NULL && rc != CL_SUCCESS ? 78 : rc; }

/* WRONG tries a call that gives a code; MAKES one that gives an object and leaves the code in rc. */
#define WRONG(codes, what, call) tell(what, call, #codes)
#define MAKES(codes, what, call) (rc = 77, tell(what, told((const void *)(call)), #codes))

static const char *source =
	"__kernel void add(__global uint *to, __constant uint *from, uint n, __local uint *tmp) {\n"
	"	tmp[get_local_id(0)] = from[0] + n;\n"
	"	to[get_global_id(0)] = tmp[get_local_id(0)];\n"
	"}\n"
	"__kernel __attribute__((reqd_work_group_size(8, 1, 1))) void fixed(__global uint *to) {\n"
	"	to[get_global_id(0)]++;\n"
	"}\n"
	"__kernel void look(__read_only image2d_t from, sampler_t s, __global uint *to) {\n"
	"	to[0] = read_imageui(from, s, (int2)(0, 0)).x;\n"
	"}\n";

#define NO 0, NULL, NULL
static char host[1 << 16];

/* waits tries the wrong wait lists with a call, whose last arguments are n, list and event. */
#define WAITS(what, ...) \
	do { \
		cl_event null_ = NULL; \
		WRONG(-57, what ", a wait list of 1 without a list", LAST(__VA_ARGS__, 1, NULL, NULL)); \
		WRONG(-57, what ", a wait list of 0 with a list", LAST(__VA_ARGS__, 0, &event, NULL)); \
		WRONG(-57, what ", no event in the wait list", LAST(__VA_ARGS__, 1, &null_, NULL)); \
		WRONG(-34, what ", an event of another context", LAST(__VA_ARGS__, 1, &other_event, NULL)); \
	} while (0)
#define LAST(call, ...) call(__VA_ARGS__)

typedef cl_int (*question)(void *, cl_uint, size_t, void *, size_t *);

/* asks tries all questions of one call: the size alone, nothing at all, too little room, enough, no object, unknown. */
static void asks(const char *call, question q, void *object, const char *no_object, const cl_uint *params, size_t n) {
	char what[100];
	for (size_t i = 0; i < n; i++) {
		size_t size = 0;
		snprintf(what, sizeof what, "%s %x, size alone", call, params[i]);
		WRONG(0, what, q(object, params[i], 0, NULL, &size));
		if (size == 0 || (params[i] == CL_PROGRAM_BINARIES && !all)) {
			continue;
		}
		snprintf(what, sizeof what, "%s %x, nothing wanted", call, params[i]);
		WRONG(0, what, q(object, params[i], 0, NULL, NULL));
		snprintf(what, sizeof what, "%s %x, room for all", call, params[i]);
		memset(host, 0, sizeof host);
		WRONG(0, what, q(object, params[i], sizeof host, host, NULL));
		snprintf(what, sizeof what, "%s %x, no room", call, params[i]);
		WRONG(-30, what, q(object, params[i], 0, host, NULL));
		snprintf(what, sizeof what, "%s %x, a byte too little", call, params[i]);
		memset(host, 0, sizeof host);
		WRONG(-30, what, q(object, params[i], size - 1, host, NULL));
	}
	snprintf(what, sizeof what, "%s, unknown question", call);
	WRONG(-30, what, q(object, 0x9999, sizeof host, host, NULL));
	snprintf(what, sizeof what, "%s, no object", call);
	tell(what, q(NULL, params[0], sizeof host, host, NULL), no_object);
	if (all && object != (void *)queue) {
		snprintf(what, sizeof what, "%s, an object of another kind", call);
		tell(what, q(queue, params[0], sizeof host, host, NULL), no_object);
	}
}

#define ASKS(call, object, no_object, ...) \
	do { \
		static const cl_uint params_[] = { __VA_ARGS__ }; \
		asks(#call, (question)call, (void *)object, #no_object, params_, sizeof params_ / sizeof *params_); \
	} while (0)

static cl_int build_info(void *p, cl_uint what, size_t room, void *to, size_t *size) {
	return clGetProgramBuildInfo(p, device, what, room, to, size);
}

static cl_int group_info(void *k, cl_uint what, size_t room, void *to, size_t *size) {
	return clGetKernelWorkGroupInfo(k, device, what, room, to, size);
}

static cl_int argument_info(void *k, cl_uint what, size_t room, void *to, size_t *size) {
	return clGetKernelArgInfo(k, 0, what, room, to, size);
}

static void all_questions(void) {
	ASKS(clGetPlatformInfo, platform, -32, CL_PLATFORM_PROFILE, CL_PLATFORM_VERSION, CL_PLATFORM_NAME,
		CL_PLATFORM_VENDOR, CL_PLATFORM_EXTENSIONS);
	ASKS(clGetDeviceInfo, device, -33, CL_DEVICE_TYPE, CL_DEVICE_VENDOR_ID, CL_DEVICE_MAX_COMPUTE_UNITS,
		CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, CL_DEVICE_MAX_WORK_GROUP_SIZE, CL_DEVICE_MAX_WORK_ITEM_SIZES,
		CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR, CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT,
		CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT, CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG,
		CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE,
		CL_DEVICE_MAX_CLOCK_FREQUENCY, CL_DEVICE_ADDRESS_BITS, CL_DEVICE_MAX_READ_IMAGE_ARGS,
		CL_DEVICE_MAX_WRITE_IMAGE_ARGS, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_IMAGE2D_MAX_WIDTH,
		CL_DEVICE_IMAGE2D_MAX_HEIGHT, CL_DEVICE_IMAGE3D_MAX_WIDTH, CL_DEVICE_IMAGE3D_MAX_HEIGHT,
		CL_DEVICE_IMAGE3D_MAX_DEPTH, CL_DEVICE_IMAGE_SUPPORT, CL_DEVICE_MAX_PARAMETER_SIZE, CL_DEVICE_MAX_SAMPLERS,
		CL_DEVICE_MEM_BASE_ADDR_ALIGN, CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE, CL_DEVICE_SINGLE_FP_CONFIG,
		CL_DEVICE_GLOBAL_MEM_CACHE_TYPE, CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE,
		CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, CL_DEVICE_MAX_CONSTANT_ARGS,
		CL_DEVICE_LOCAL_MEM_TYPE, CL_DEVICE_LOCAL_MEM_SIZE, CL_DEVICE_ERROR_CORRECTION_SUPPORT,
		CL_DEVICE_PROFILING_TIMER_RESOLUTION, CL_DEVICE_ENDIAN_LITTLE, CL_DEVICE_AVAILABLE,
		CL_DEVICE_COMPILER_AVAILABLE, CL_DEVICE_EXECUTION_CAPABILITIES, CL_DEVICE_QUEUE_PROPERTIES, CL_DEVICE_NAME,
		CL_DEVICE_VENDOR, CL_DRIVER_VERSION, CL_DEVICE_PROFILE, CL_DEVICE_VERSION, CL_DEVICE_EXTENSIONS,
		CL_DEVICE_PLATFORM, CL_DEVICE_DOUBLE_FP_CONFIG, CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF,
		CL_DEVICE_HOST_UNIFIED_MEMORY, CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR, CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT,
		CL_DEVICE_NATIVE_VECTOR_WIDTH_INT, CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT,
		CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE, CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF, CL_DEVICE_OPENCL_C_VERSION,
		CL_DEVICE_LINKER_AVAILABLE, CL_DEVICE_BUILT_IN_KERNELS, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE,
		CL_DEVICE_IMAGE_MAX_ARRAY_SIZE, CL_DEVICE_PARENT_DEVICE, CL_DEVICE_PARTITION_MAX_SUB_DEVICES,
		CL_DEVICE_PARTITION_PROPERTIES, CL_DEVICE_PARTITION_AFFINITY_DOMAIN, CL_DEVICE_PARTITION_TYPE,
		CL_DEVICE_REFERENCE_COUNT, CL_DEVICE_PREFERRED_INTEROP_USER_SYNC, CL_DEVICE_PRINTF_BUFFER_SIZE);
	ASKS(clGetContextInfo, context, -34, CL_CONTEXT_REFERENCE_COUNT, CL_CONTEXT_NUM_DEVICES, CL_CONTEXT_DEVICES,
		CL_CONTEXT_PROPERTIES);
	ASKS(clGetCommandQueueInfo, queue, -36, CL_QUEUE_CONTEXT, CL_QUEUE_DEVICE, CL_QUEUE_REFERENCE_COUNT,
		CL_QUEUE_PROPERTIES);
	ASKS(clGetMemObjectInfo, buffer, -38, CL_MEM_TYPE, CL_MEM_FLAGS, CL_MEM_SIZE, CL_MEM_HOST_PTR, CL_MEM_MAP_COUNT,
		CL_MEM_REFERENCE_COUNT, CL_MEM_CONTEXT, CL_MEM_ASSOCIATED_MEMOBJECT, CL_MEM_OFFSET);
	ASKS(clGetImageInfo, image, -38, CL_IMAGE_FORMAT, CL_IMAGE_ELEMENT_SIZE, CL_IMAGE_ROW_PITCH, CL_IMAGE_SLICE_PITCH,
		CL_IMAGE_WIDTH, CL_IMAGE_HEIGHT, CL_IMAGE_DEPTH, CL_IMAGE_ARRAY_SIZE, CL_IMAGE_BUFFER,
		CL_IMAGE_NUM_MIP_LEVELS, CL_IMAGE_NUM_SAMPLES);
	ASKS(clGetSamplerInfo, sampler, -41, CL_SAMPLER_REFERENCE_COUNT, CL_SAMPLER_CONTEXT, CL_SAMPLER_NORMALIZED_COORDS,
		CL_SAMPLER_ADDRESSING_MODE, CL_SAMPLER_FILTER_MODE);
	ASKS(clGetProgramInfo, program, -44, CL_PROGRAM_REFERENCE_COUNT, CL_PROGRAM_CONTEXT, CL_PROGRAM_NUM_DEVICES,
		CL_PROGRAM_DEVICES, CL_PROGRAM_SOURCE, CL_PROGRAM_BINARY_SIZES, CL_PROGRAM_BINARIES, CL_PROGRAM_NUM_KERNELS,
		CL_PROGRAM_KERNEL_NAMES);
	ASKS(build_info, program, -44, CL_PROGRAM_BUILD_STATUS, CL_PROGRAM_BUILD_OPTIONS, CL_PROGRAM_BUILD_LOG,
		CL_PROGRAM_BINARY_TYPE);
	ASKS(clGetKernelInfo, kernel, -48, CL_KERNEL_FUNCTION_NAME, CL_KERNEL_NUM_ARGS, CL_KERNEL_REFERENCE_COUNT,
		CL_KERNEL_CONTEXT, CL_KERNEL_PROGRAM, CL_KERNEL_ATTRIBUTES);
	ASKS(group_info, kernel, -48, CL_KERNEL_WORK_GROUP_SIZE, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
		CL_KERNEL_LOCAL_MEM_SIZE, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, CL_KERNEL_PRIVATE_MEM_SIZE);
	ASKS(argument_info, kernel, -48, CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_ACCESS_QUALIFIER,
		CL_KERNEL_ARG_TYPE_NAME, CL_KERNEL_ARG_TYPE_QUALIFIER, CL_KERNEL_ARG_NAME);
	ASKS(clGetEventInfo, event, -58, CL_EVENT_COMMAND_QUEUE, CL_EVENT_CONTEXT, CL_EVENT_COMMAND_TYPE,
		CL_EVENT_COMMAND_EXECUTION_STATUS, CL_EVENT_REFERENCE_COUNT);
	ASKS(clGetEventProfilingInfo, event, -58, CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_SUBMIT,
		CL_PROFILING_COMMAND_START, CL_PROFILING_COMMAND_END);
}

static void devices(void) {
	cl_uint n;
	cl_device_id list[4];
	WRONG(-30, "clGetPlatformIDs, nothing wanted", clGetPlatformIDs(0, NULL, NULL));
	WRONG(-30, "clGetPlatformIDs, no room in a list", clGetPlatformIDs(0, &platform, NULL));
	WRONG(-31, "clGetDeviceIDs, a type that is none", clGetDeviceIDs(platform, 1 << 20, 1, list, &n));
	WRONG(-31, "clGetDeviceIDs, type 0", clGetDeviceIDs(platform, 0, 1, list, &n));
	WRONG(-30, "clGetDeviceIDs, no room in a list", clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, list, &n));
	WRONG(-30, "clGetDeviceIDs, nothing wanted", clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, NULL));
	WRONG(-1, "clGetDeviceIDs, none of the type", clGetDeviceIDs(platform, CL_DEVICE_TYPE_CUSTOM, 1, list, &n));
	const cl_device_partition_property equally[] = { CL_DEVICE_PARTITION_EQUALLY, 1, 0 }, odd[] = { 0x7777, 1, 0 };
	WRONG(-33, "clCreateSubDevices, no device", clCreateSubDevices(NULL, equally, 4, list, &n));
	WRONG(-30, "clCreateSubDevices, no properties", clCreateSubDevices(device, NULL, 4, list, &n));
	WRONG(-30, "clCreateSubDevices, an unknown partition", clCreateSubDevices(device, odd, 4, list, &n));
	WRONG(-33, "clRetainDevice, no device", clRetainDevice(NULL));
	WRONG(-33, "clReleaseDevice, no device", clReleaseDevice(NULL));
	if (all) {
		WRONG(-33, "clRetainDevice, another kind", clRetainDevice((cl_device_id)queue));
	}
}

static void CL_CALLBACK note(const char *text, const void *info, size_t n, void *data) {
	(void)text, (void)info, (void)n, (void)data;
}

static void contexts(void) {
	cl_device_id list[2] = { device, NULL };
	const cl_context_properties unknown[] = { 0x7777, 1, 0 }, twice[] = { CL_CONTEXT_PLATFORM,
		(cl_context_properties)platform, CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0 },
		no_platform[] = { CL_CONTEXT_PLATFORM, 0, 0 };
	MAKES(-30, "clCreateContext, no devices", clCreateContext(NULL, 0, list, NULL, NULL, &rc));
	MAKES(-30, "clCreateContext, no list", clCreateContext(NULL, 1, NULL, NULL, NULL, &rc));
	MAKES(-30, "clCreateContext, data without a call-back", clCreateContext(NULL, 1, list, NULL, host, &rc));
	MAKES(-33, "clCreateContext, a device that is none", clCreateContext(NULL, 2, list, note, NULL, &rc));
	MAKES(-64, "clCreateContext, an unknown property", clCreateContext(unknown, 1, list, NULL, NULL, &rc));
	MAKES(-64, "clCreateContext, a property twice", clCreateContext(twice, 1, list, NULL, NULL, &rc));
	MAKES(-32, "clCreateContext, no platform", clCreateContext(no_platform, 1, list, NULL, NULL, &rc));
	MAKES(-31, "clCreateContextFromType, a type that is none",
		clCreateContextFromType(twice + 2, 1 << 20, NULL, NULL, &rc));
	MAKES(-1, "clCreateContextFromType, none of the type",
		clCreateContextFromType(twice + 2, CL_DEVICE_TYPE_CUSTOM, NULL, NULL, &rc));
	MAKES(-30, "clCreateContextFromType, data without a call-back",
		clCreateContextFromType(twice + 2, CL_DEVICE_TYPE_ALL, NULL, host, &rc));
	MAKES(-64, "clCreateContextFromType, a property twice",
		clCreateContextFromType(twice, CL_DEVICE_TYPE_ALL, NULL, NULL, &rc));
	WRONG(-34, "clRetainContext, none", clRetainContext(NULL));
	WRONG(-34, "clReleaseContext, none", clReleaseContext(NULL));
	if (all) {
		WRONG(-34, "clReleaseContext, another kind", clReleaseContext((cl_context)queue));
	}
	MAKES(-34, "clCreateCommandQueue, no context", clCreateCommandQueue(NULL, device, 0, &rc));
	MAKES(-33, "clCreateCommandQueue, no device", clCreateCommandQueue(context, NULL, 0, &rc));
	MAKES(-30, "clCreateCommandQueue, an unknown property", clCreateCommandQueue(context, device, 1 << 20, &rc));
	const cl_queue_properties odd[] = { 0x7777, 1, 0 };
	MAKES(-30, "clCreateCommandQueueWithProperties, an unknown property",
		clCreateCommandQueueWithProperties(context, device, odd, &rc));
	WRONG(-36, "clRetainCommandQueue, none", clRetainCommandQueue(NULL));
	WRONG(-36, "clReleaseCommandQueue, none", clReleaseCommandQueue(NULL));
	if (all) {
		WRONG(-36, "clReleaseCommandQueue, another kind", clReleaseCommandQueue((cl_command_queue)buffer));
	}
	WRONG(-36, "clFlush, no queue", clFlush(NULL));
	WRONG(-36, "clFinish, no queue", clFinish(NULL));
	if (all) {
		WRONG(-36, "clFinish, another kind", clFinish((cl_command_queue)buffer));
	}
}

static void CL_CALLBACK gone(cl_mem m, void *data) { (void)m, (void)data; }

static void buffers(void) {
	const cl_mem_flags rw = CL_MEM_READ_WRITE;
	cl_buffer_region whole = { 0, 4096 }, empty = { 0, 0 }, beyond = { 4096, 1 << 20 }, crooked = { 1, 64 };
	MAKES(-34, "clCreateBuffer, no context", clCreateBuffer(NULL, rw, 64, NULL, &rc));
	MAKES(-30, "clCreateBuffer, an unknown flag", clCreateBuffer(context, 1 << 20, 64, NULL, &rc));
	MAKES(-30, "clCreateBuffer, both ways", clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 64, NULL,
		&rc));
	MAKES(-30, "clCreateBuffer, use and alloc",
		clCreateBuffer(context, CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, 64, host, &rc));
	MAKES(-30, "clCreateBuffer, use and copy",
		clCreateBuffer(context, CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR, 64, host, &rc));
	MAKES(-30, "clCreateBuffer, two of the host's", clCreateBuffer(context, CL_MEM_HOST_READ_ONLY |
		CL_MEM_HOST_WRITE_ONLY, 64, NULL, &rc));
	MAKES(-61, "clCreateBuffer, size 0", clCreateBuffer(context, rw, 0, NULL, &rc));
	MAKES(-61, "clCreateBuffer, too large", clCreateBuffer(context, rw, (size_t)1 << 60, NULL, &rc));
	MAKES(-37, "clCreateBuffer, a pointer without a flag", clCreateBuffer(context, rw, 64, host, &rc));
	MAKES(-37, "clCreateBuffer, use without a pointer", clCreateBuffer(context, CL_MEM_USE_HOST_PTR, 64, NULL, &rc));
	MAKES(-37, "clCreateBuffer, copy without a pointer",
		clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, 64, NULL, &rc));
	MAKES(-38, "clCreateSubBuffer, no buffer",
		clCreateSubBuffer(NULL, rw, CL_BUFFER_CREATE_TYPE_REGION, &whole, &rc));
	MAKES(-38, "clCreateSubBuffer, of an image",
		clCreateSubBuffer(image, rw, CL_BUFFER_CREATE_TYPE_REGION, &whole, &rc));
	MAKES(-30, "clCreateSubBuffer, an unknown type", clCreateSubBuffer(buffer, rw, 0x7777, &whole, &rc));
	MAKES(-30, "clCreateSubBuffer, no region",
		clCreateSubBuffer(buffer, rw, CL_BUFFER_CREATE_TYPE_REGION, NULL, &rc));
	MAKES(-61, "clCreateSubBuffer, size 0", clCreateSubBuffer(buffer, rw, CL_BUFFER_CREATE_TYPE_REGION, &empty, &rc));
	MAKES(-30, "clCreateSubBuffer, beyond", clCreateSubBuffer(buffer, rw, CL_BUFFER_CREATE_TYPE_REGION, &beyond, &rc));
	MAKES(-13, "clCreateSubBuffer, misaligned",
		clCreateSubBuffer(buffer, rw, CL_BUFFER_CREATE_TYPE_REGION, &crooked, &rc));
	MAKES(-30, "clCreateSubBuffer, a host's pointer",
		clCreateSubBuffer(buffer, CL_MEM_USE_HOST_PTR, CL_BUFFER_CREATE_TYPE_REGION, &whole, &rc));
	MAKES(-30, "clCreateSubBuffer, writes what is only read",
		clCreateSubBuffer(constant, rw, CL_BUFFER_CREATE_TYPE_REGION, &whole, &rc));
	MAKES(-30, "clCreateSubBuffer, the host reads what it may not",
		clCreateSubBuffer(shut, CL_MEM_HOST_READ_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &whole, &rc));
	WRONG(-38, "clRetainMemObject, none", clRetainMemObject(NULL));
	WRONG(-38, "clReleaseMemObject, none", clReleaseMemObject(NULL));
	if (all) {
		WRONG(-38, "clReleaseMemObject, another kind", clReleaseMemObject((cl_mem)queue));
	}
	WRONG(-38, "clSetMemObjectDestructorCallback, none", clSetMemObjectDestructorCallback(NULL, gone, NULL));
	WRONG(-30, "clSetMemObjectDestructorCallback, no function", clSetMemObjectDestructorCallback(buffer, NULL, NULL));
}

static void buffer_commands(void) {
	cl_command_queue q = queue, no_queue = NULL;
	cl_mem none = NULL, b = buffer;
	const size_t zero[3] = { 0 }, box[3] = { 4, 4, 1 }, flat[3] = { 4, 0, 1 }, far[3] = { 1 << 20, 0, 0 };
	const size_t *nowhere = NULL;
	void *h = host;
#define READ clEnqueueReadBuffer
	WRONG(-36, "read, no queue", READ(no_queue, b, CL_TRUE, 0, 4, h, NO));
	WRONG(-38, "read, no buffer", READ(q, none, CL_TRUE, 0, 4, h, NO));
	WRONG(-38, "read, of an image", READ(q, image, CL_TRUE, 0, 4, h, NO));
	WRONG(-34, "read, of another context", READ(q, other_buffer, CL_TRUE, 0, 4, h, NO));
	WRONG(-30, "read, beyond", READ(q, b, CL_TRUE, 16380, 8, h, NO));
	WRONG(-30, "read, overflow", READ(q, b, CL_TRUE, (size_t)-4, 8, h, NO));
	WRONG(-30, "read, no memory", READ(q, b, CL_TRUE, 0, 4, NULL, NO));
	WRONG(-30, "read, size 0", READ(q, b, CL_TRUE, 0, 0, h, NO));
	WRONG(-59, "read, forbidden", READ(q, shut, CL_TRUE, 0, 4, h, NO));
	WAITS("read", READ, q, b, CL_TRUE, 0, 4, h);
#define WRITE clEnqueueWriteBuffer
	WRONG(-36, "write, no queue", WRITE(no_queue, b, CL_TRUE, 0, 4, h, NO));
	WRONG(-38, "write, no buffer", WRITE(q, none, CL_TRUE, 0, 4, h, NO));
	WRONG(-34, "write, of another context", WRITE(q, other_buffer, CL_TRUE, 0, 4, h, NO));
	WRONG(-30, "write, beyond", WRITE(q, b, CL_TRUE, 16380, 8, h, NO));
	WRONG(-30, "write, no memory", WRITE(q, b, CL_TRUE, 0, 4, NULL, NO));
	WRONG(-30, "write, size 0", WRITE(q, b, CL_TRUE, 0, 0, h, NO));
	WRONG(-59, "write, forbidden", WRITE(q, shut, CL_TRUE, 0, 4, h, NO));
	WAITS("write", WRITE, q, b, CL_TRUE, 0, 4, h);
#define RRECT clEnqueueReadBufferRect
#define WRECT clEnqueueWriteBufferRect
	WRONG(-36, "read box, no queue", RRECT(no_queue, b, CL_TRUE, zero, zero, box, 8, 0, 4, 0, h, NO));
	WRONG(-38, "read box, no buffer", RRECT(q, none, CL_TRUE, zero, zero, box, 8, 0, 4, 0, h, NO));
	WRONG(-34, "read box, of another context", RRECT(q, other_buffer, CL_TRUE, zero, zero, box, 8, 0, 4, 0, h, NO));
	WRONG(-30, "read box, no memory", RRECT(q, b, CL_TRUE, zero, zero, box, 8, 0, 4, 0, NULL, NO));
	WRONG(-30, "read box, empty", RRECT(q, b, CL_TRUE, zero, zero, flat, 8, 0, 4, 0, h, NO));
	WRONG(-30, "read box, beyond", RRECT(q, b, CL_TRUE, far, zero, box, 8, 0, 4, 0, h, NO));
	WRONG(-30, "read box, small pitch", RRECT(q, b, CL_TRUE, zero, zero, box, 2, 0, 4, 0, h, NO));
	WRONG(-30, "read box, small pitch of the host", RRECT(q, b, CL_TRUE, zero, zero, box, 8, 0, 2, 0, h, NO));
	WRONG(-30, "read box, small slice", RRECT(q, b, CL_TRUE, zero, zero, box, 8, 16, 4, 0, h, NO));
	const size_t row[3] = { 4, 1, 1 }, apart = (size_t)1 << 63;
	WRONG(0, "read box, one row, others far", RRECT(q, b, CL_TRUE, zero, zero, row, apart, apart, apart, apart, h, NO));
	WRONG(-30, "read box, uneven slice", RRECT(q, b, CL_TRUE, zero, zero, box, 8, 35, 4, 0, h, NO));
	WRONG(-30, "read box, no origin", RRECT(q, b, CL_TRUE, nowhere, zero, box, 8, 0, 4, 0, h, NO));
	WRONG(-30, "read box, no region", RRECT(q, b, CL_TRUE, zero, zero, nowhere, 8, 0, 4, 0, h, NO));
	WRONG(-59, "read box, forbidden", RRECT(q, shut, CL_TRUE, zero, zero, box, 8, 0, 4, 0, h, NO));
	WAITS("read box", RRECT, q, b, CL_TRUE, zero, zero, box, 8, 0, 4, 0, h);
	WRONG(-36, "write box, no queue", WRECT(no_queue, b, CL_TRUE, zero, zero, box, 8, 0, 4, 0, h, NO));
	WRONG(-30, "write box, no memory", WRECT(q, b, CL_TRUE, zero, zero, box, 8, 0, 4, 0, NULL, NO));
	WRONG(-30, "write box, empty", WRECT(q, b, CL_TRUE, zero, zero, flat, 8, 0, 4, 0, h, NO));
	WRONG(-30, "write box, beyond", WRECT(q, b, CL_TRUE, far, zero, box, 8, 0, 4, 0, h, NO));
	WRONG(-59, "write box, forbidden", WRECT(q, shut, CL_TRUE, zero, zero, box, 8, 0, 4, 0, h, NO));
	WAITS("write box", WRECT, q, b, CL_TRUE, zero, zero, box, 8, 0, 4, 0, h);
#define FILL clEnqueueFillBuffer
	WRONG(-36, "fill, no queue", FILL(no_queue, b, h, 4, 0, 64, NO));
	WRONG(-38, "fill, no buffer", FILL(q, none, h, 4, 0, 64, NO));
	WRONG(-34, "fill, of another context", FILL(q, other_buffer, h, 4, 0, 64, NO));
	WRONG(-30, "fill, beyond", FILL(q, b, h, 4, 16380, 8, NO));
	WRONG(-30, "fill, no pattern", FILL(q, b, NULL, 4, 0, 64, NO));
	WRONG(-30, "fill, pattern of 0", FILL(q, b, h, 0, 0, 64, NO));
	WRONG(-30, "fill, pattern of 3", FILL(q, b, h, 3, 0, 63, NO));
	WRONG(-30, "fill, pattern of 256", FILL(q, b, h, 256, 0, 512, NO));
	WRONG(-30, "fill, uneven offset", FILL(q, b, h, 4, 2, 64, NO));
	WRONG(-30, "fill, uneven size", FILL(q, b, h, 4, 0, 6, NO));
	WAITS("fill", FILL, q, b, h, 4, 0, 64);
#define COPY clEnqueueCopyBuffer
	WRONG(-36, "copy, no queue", COPY(no_queue, b, constant, 0, 0, 64, NO));
	WRONG(-38, "copy, from nothing", COPY(q, none, constant, 0, 0, 64, NO));
	WRONG(-38, "copy, to nothing", COPY(q, b, none, 0, 0, 64, NO));
	WRONG(-34, "copy, from another context", COPY(q, other_buffer, b, 0, 0, 64, NO));
	WRONG(-34, "copy, to another context", COPY(q, b, other_buffer, 0, 0, 64, NO));
	WRONG(-30, "copy, from beyond", COPY(q, b, constant, 16380, 0, 64, NO));
	WRONG(-30, "copy, to beyond", COPY(q, b, constant, 0, 16380, 64, NO));
	WRONG(-30, "copy, size 0", COPY(q, b, constant, 0, 0, 0, NO));
	WRONG(-8, "copy, overlap", COPY(q, b, b, 0, 32, 64, NO));
	WAITS("copy", COPY, q, b, constant, 0, 0, 64);
#define CRECT clEnqueueCopyBufferRect
	WRONG(-36, "copy box, no queue", CRECT(no_queue, b, constant, zero, zero, box, 8, 0, 8, 0, NO));
	if (all) {
		WRONG(-38, "copy box, from nothing", CRECT(q, none, constant, zero, zero, box, 8, 0, 8, 0, NO));
	}
	WRONG(-34, "copy box, to another context", CRECT(q, b, other_buffer, zero, zero, box, 8, 0, 8, 0, NO));
	WRONG(-30, "copy box, from beyond", CRECT(q, b, constant, far, zero, box, 8, 0, 8, 0, NO));
	WRONG(-30, "copy box, to beyond", CRECT(q, b, constant, zero, far, box, 8, 0, 8, 0, NO));
	WRONG(-30, "copy box, empty", CRECT(q, b, constant, zero, zero, flat, 8, 0, 8, 0, NO));
	WRONG(-30, "copy box, small pitch", CRECT(q, b, constant, zero, zero, box, 2, 0, 8, 0, NO));
	WRONG(-30, "copy box, other pitches in one buffer", CRECT(q, b, b, zero, zero, box, 8, 0, 16, 0, NO));
	WRONG(-8, "copy box, overlap", CRECT(q, b, b, zero, zero, box, 8, 0, 8, 0, NO));
	WAITS("copy box", CRECT, q, b, constant, zero, zero, box, 8, 0, 8, 0);
#define MAP clEnqueueMapBuffer
	MAKES(-36, "map, no queue", MAP(no_queue, b, CL_TRUE, CL_MAP_READ, 0, 64, NO, &rc));
	MAKES(-38, "map, no buffer", MAP(q, none, CL_TRUE, CL_MAP_READ, 0, 64, NO, &rc));
	MAKES(-38, "map, an image", MAP(q, image, CL_TRUE, CL_MAP_READ, 0, 64, NO, &rc));
	MAKES(-34, "map, of another context", MAP(q, other_buffer, CL_TRUE, CL_MAP_READ, 0, 64, NO, &rc));
	MAKES(-30, "map, beyond", MAP(q, b, CL_TRUE, CL_MAP_READ, 16380, 8, NO, &rc));
	MAKES(-30, "map, size 0", MAP(q, b, CL_TRUE, CL_MAP_READ, 0, 0, NO, &rc));
	MAKES(-30, "map, an unknown flag", MAP(q, b, CL_TRUE, 1 << 20, 0, 64, NO, &rc));
	MAKES(-30, "map, invalidates and reads",
		MAP(q, b, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION, 0, 64, NO, &rc));
	MAKES(-59, "map, forbidden", MAP(q, shut, CL_TRUE, CL_MAP_READ, 0, 64, NO, &rc));
	MAKES(-57, "map, a wait list of 1 without a list", MAP(q, b, CL_TRUE, CL_MAP_READ, 0, 64, 1, NULL, NULL, &rc));
	MAKES(-34, "map, an event of another context",
		MAP(q, b, CL_TRUE, CL_MAP_READ, 0, 64, 1, &other_event, NULL, &rc));
	WRONG(-36, "unmap, no queue", clEnqueueUnmapMemObject(no_queue, b, h, NO));
	WRONG(-38, "unmap, no object", clEnqueueUnmapMemObject(q, none, h, NO));
	WRONG(-30, "unmap, not mapped", clEnqueueUnmapMemObject(q, b, h, NO));
	WRONG(-30, "unmap, nothing", clEnqueueUnmapMemObject(q, b, NULL, NO));
	WRONG(-34, "unmap, of another context", clEnqueueUnmapMemObject(q, other_buffer, h, NO));
	WRONG(-36, "migrate, no queue", clEnqueueMigrateMemObjects(no_queue, 1, &b, 0, NO));
	WRONG(-30, "migrate, nothing", clEnqueueMigrateMemObjects(q, 0, NULL, 0, NO));
	WRONG(-30, "migrate, no list", clEnqueueMigrateMemObjects(q, 1, NULL, 0, NO));
	WRONG(-38, "migrate, no object", clEnqueueMigrateMemObjects(q, 1, &none, 0, NO));
	WRONG(-34, "migrate, of another context", clEnqueueMigrateMemObjects(q, 1, &other_buffer, 0, NO));
	WRONG(-30, "migrate, an unknown flag", clEnqueueMigrateMemObjects(q, 1, &b, 1 << 20, NO));
	WAITS("migrate", clEnqueueMigrateMemObjects, q, 1, &b, 0);
}

/* image tries to make one. */
static void image_of(const char *codes, const char *what, cl_mem_flags flags, const cl_image_format *f,
	const cl_image_desc *d, void *from) {
	rc = 77;
	tell(what, told(clCreateImage(context, flags, f, d, from, &rc)), codes);
}

static void images(void) {
	const cl_image_format f = { CL_RGBA, CL_UNSIGNED_INT8 }, odd = { CL_RGBA, 0x7777 }, order = { 0x7777, CL_FLOAT },
		packed = { CL_RGBA, CL_UNORM_SHORT_565 }, rare = { CL_RGB, CL_UNORM_SHORT_565 };
	const cl_image_desc d = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 9, .image_height = 7 };
	cl_image_desc e = d;
	MAKES(-34, "image, no context", clCreateImage(NULL, 0, &f, &d, NULL, &rc));
	image_of("-30", "image, an unknown flag", 1 << 20, &f, &d, NULL);
	image_of("-39", "image, no format", 0, NULL, &d, NULL);
	image_of("-39", "image, an unknown type of channels", 0, &odd, &d, NULL);
	image_of("-39", "image, an unknown order of channels", 0, &order, &d, NULL);
	image_of("-39", "image, a type for other channels", 0, &packed, &d, NULL);
	image_of("-10", "image, a format that the device does not have", 0, &rare, &d, NULL);
	image_of("-65", "image, no description", 0, &f, NULL, NULL);
	e.image_type = 0x7777;
	image_of("-65", "image, an unknown type", 0, &f, &e, NULL);
	e.image_type = CL_MEM_OBJECT_BUFFER;
	image_of("-65", "image, a buffer", 0, &f, &e, NULL);
	e = d;
	e.image_width = 0;
	image_of("-40|-65", "image, width 0", 0, &f, &e, NULL);
	e = d;
	e.image_height = 1 << 28;
	image_of("-40", "image, too high", 0, &f, &e, NULL);
	e = d;
	e.num_mip_levels = 1;
	if (all) {
		image_of("-65", "image, mip levels", 0, &f, &e, NULL);
	}
	e = d;
	e.buffer = buffer;
	e.image_row_pitch = 1;
	image_of("-65", "image, a plane on a buffer, crooked", 0, &f, &e, NULL);
	e = d;
	e.image_row_pitch = 64;
	image_of("-65", "image, a pitch without bytes", 0, &f, &e, NULL);
	e.image_row_pitch = 8;
	image_of("-65", "image, a small pitch", CL_MEM_COPY_HOST_PTR, &f, &e, host);
	e.image_row_pitch = 37;
	image_of("-65", "image, an uneven pitch", CL_MEM_COPY_HOST_PTR, &f, &e, host);
	image_of("-37", "image, bytes without a flag", 0, &f, &d, host);
	image_of("-37", "image, a flag without bytes", CL_MEM_COPY_HOST_PTR, &f, &d, NULL);
	e = (cl_image_desc){ .image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 9 };
	image_of("-65", "image, on no buffer", 0, &f, &e, NULL);
	e.buffer = buffer;
	e.image_width = 1 << 14;
	image_of("-40|-65", "image, larger than its buffer", 0, &f, &e, NULL);
	MAKES(-39, "clCreateImage2D, no format", clCreateImage2D(context, 0, NULL, 9, 7, 0, NULL, &rc));
	MAKES(-40, "clCreateImage2D, width 0", clCreateImage2D(context, 0, &f, 0, 7, 0, NULL, &rc));
	MAKES(-40, "clCreateImage3D, depth 0", clCreateImage3D(context, 0, &f, 9, 7, 0, 0, 0, NULL, &rc));
	cl_uint n;
	cl_image_format list[2];
	WRONG(-34, "formats, no context", clGetSupportedImageFormats(NULL, 0, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &n));
	WRONG(-30, "formats, an unknown flag",
		clGetSupportedImageFormats(context, 1 << 20, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &n));
	WRONG(-30, "formats, of a buffer", clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_BUFFER, 0,
		NULL, &n));
	WRONG(-30, "formats, no room in a list", clGetSupportedImageFormats(context, CL_MEM_READ_WRITE,
		CL_MEM_OBJECT_IMAGE2D, 0, list, &n));
	MAKES(-34, "sampler, no context", clCreateSampler(NULL, CL_TRUE, CL_ADDRESS_NONE, CL_FILTER_NEAREST, &rc));
	MAKES(-30, "sampler, unknown addressing", clCreateSampler(context, CL_TRUE, 0x7777, CL_FILTER_NEAREST, &rc));
	MAKES(-30, "sampler, unknown filter", clCreateSampler(context, CL_TRUE, CL_ADDRESS_NONE, 0x7777, &rc));
	MAKES(-30, "sampler, coordinates 7", clCreateSampler(context, 7, CL_ADDRESS_NONE, CL_FILTER_NEAREST, &rc));
	MAKES(-30, "sampler, repeats pixels",
		clCreateSampler(context, CL_FALSE, CL_ADDRESS_REPEAT, CL_FILTER_NEAREST, &rc));
	const cl_sampler_properties unknown[] = { 0x7777, 1, 0 }, value[] = { CL_SAMPLER_FILTER_MODE, 0x7777, 0 },
		twice[] = { CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, 0 };
	MAKES(-34, "clCreateSamplerWithProperties, no context", clCreateSamplerWithProperties(NULL, NULL, &rc));
	MAKES(-30, "clCreateSamplerWithProperties, unknown", clCreateSamplerWithProperties(context, unknown, &rc));
	MAKES(-30, "clCreateSamplerWithProperties, a wrong value", clCreateSamplerWithProperties(context, value, &rc));
	MAKES(-30, "clCreateSamplerWithProperties, twice", clCreateSamplerWithProperties(context, twice, &rc));
	if (all) { /* PoCL takes what lies on the stack for what a list does not say */
		cl_sampler s = clCreateSamplerWithProperties(context, NULL, &rc);
		cl_uint word[3] = { 0 };
		size_t size = 7;
		CHECK(rc);
		CHECK(clGetSamplerInfo(s, CL_SAMPLER_NORMALIZED_COORDS, sizeof *word, &word[0], NULL));
		CHECK(clGetSamplerInfo(s, CL_SAMPLER_ADDRESSING_MODE, sizeof *word, &word[1], NULL));
		CHECK(clGetSamplerInfo(s, CL_SAMPLER_FILTER_MODE, sizeof *word, &word[2], NULL));
		CHECK(clGetSamplerInfo(s, CL_SAMPLER_PROPERTIES, 0, NULL, &size));
		WRONG(0, "clCreateSamplerWithProperties, no list: what it is then", word[0] == CL_TRUE && size == 0 &&
			word[1] == CL_ADDRESS_CLAMP && word[2] == CL_FILTER_NEAREST ? 0 : 1);
	}
	WRONG(-41, "clRetainSampler, none", clRetainSampler(NULL));
	WRONG(-41, "clReleaseSampler, none", clReleaseSampler(NULL));
	if (all) {
		WRONG(-41, "clReleaseSampler, another kind", clReleaseSampler((cl_sampler)queue));
	}
	WRONG(-38, "clGetImageInfo, of a buffer", clGetImageInfo(buffer, CL_IMAGE_WIDTH, sizeof host, host, NULL));
}

static void image_commands(void) {
	cl_command_queue q = queue, no_queue = NULL;
	cl_mem none = NULL, m = image;
	size_t pitch = 0;
	const size_t zero[3] = { 0 }, box[3] = { 4, 4, 1 }, flat[3] = { 4, 0, 1 }, far[3] = { 60, 36, 0 },
		deep[3] = { 0, 0, 1 }, *nowhere = NULL;
	void *h = host;
#define RIMAGE clEnqueueReadImage
	WRONG(-36, "read image, no queue", RIMAGE(no_queue, m, CL_TRUE, zero, box, 0, 0, h, NO));
	WRONG(-38, "read image, none", RIMAGE(q, none, CL_TRUE, zero, box, 0, 0, h, NO));
	WRONG(-38, "read image, a buffer", RIMAGE(q, buffer, CL_TRUE, zero, box, 0, 0, h, NO));
	WRONG(-34, "read image, of another context", RIMAGE(q, other_image, CL_TRUE, zero, box, 0, 0, h, NO));
	WRONG(-30, "read image, no memory", RIMAGE(q, m, CL_TRUE, zero, box, 0, 0, NULL, NO));
	WRONG(-30, "read image, beyond", RIMAGE(q, m, CL_TRUE, far, box, 0, 0, h, NO));
	WRONG(-30, "read image, a plane behind", RIMAGE(q, m, CL_TRUE, deep, box, 0, 0, h, NO));
	WRONG(-30, "read image, empty", RIMAGE(q, m, CL_TRUE, zero, flat, 0, 0, h, NO));
	WRONG(-30, "read image, small pitch", RIMAGE(q, m, CL_TRUE, zero, box, 8, 0, h, NO));
	WRONG(-30, "read image, a slice of a plane", RIMAGE(q, m, CL_TRUE, zero, box, 16, 8, h, NO));
	WRONG(-30, "read image, no origin", RIMAGE(q, m, CL_TRUE, nowhere, box, 0, 0, h, NO));
	WRONG(-30, "read image, no region", RIMAGE(q, m, CL_TRUE, zero, nowhere, 0, 0, h, NO));
	WAITS("read image", RIMAGE, q, m, CL_TRUE, zero, box, 0, 0, h);
#define WIMAGE clEnqueueWriteImage
	WRONG(-36, "write image, no queue", WIMAGE(no_queue, m, CL_TRUE, zero, box, 0, 0, h, NO));
	WRONG(-38, "write image, none", WIMAGE(q, none, CL_TRUE, zero, box, 0, 0, h, NO));
	WRONG(-34, "write image, of another context", WIMAGE(q, other_image, CL_TRUE, zero, box, 0, 0, h, NO));
	WRONG(-30, "write image, no memory", WIMAGE(q, m, CL_TRUE, zero, box, 0, 0, NULL, NO));
	WRONG(-30, "write image, beyond", WIMAGE(q, m, CL_TRUE, far, box, 0, 0, h, NO));
	WRONG(-30, "write image, small pitch", WIMAGE(q, m, CL_TRUE, zero, box, 8, 0, h, NO));
	WAITS("write image", WIMAGE, q, m, CL_TRUE, zero, box, 0, 0, h);
#define FIMAGE clEnqueueFillImage
	WRONG(-36, "fill image, no queue", FIMAGE(no_queue, m, h, zero, box, NO));
	WRONG(-38, "fill image, none", FIMAGE(q, none, h, zero, box, NO));
	WRONG(-34, "fill image, of another context", FIMAGE(q, other_image, h, zero, box, NO));
	WRONG(-30, "fill image, no color", FIMAGE(q, m, NULL, zero, box, NO));
	WRONG(-30, "fill image, beyond", FIMAGE(q, m, h, far, box, NO));
	WRONG(-30, "fill image, no region", FIMAGE(q, m, h, zero, nowhere, NO));
	WAITS("fill image", FIMAGE, q, m, h, zero, box);
	cl_image_format f = { CL_RGBA, CL_FLOAT };
	cl_image_desc d = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 61, .image_height = 37 };
	cl_mem unlike = clCreateImage(context, 0, &f, &d, NULL, &rc);
	CHECK(rc);
#define CIMAGE clEnqueueCopyImage
	WRONG(-36, "copy image, no queue", CIMAGE(no_queue, m, m, zero, far, box, NO));
	WRONG(-38, "copy image, none", CIMAGE(q, none, m, zero, zero, box, NO));
	WRONG(-38, "copy image, to none", CIMAGE(q, m, none, zero, zero, box, NO));
	WRONG(-34, "copy image, of another context", CIMAGE(q, other_image, m, zero, zero, box, NO));
	WRONG(-9, "copy image, of another format", CIMAGE(q, unlike, m, zero, zero, box, NO));
	WRONG(-30, "copy image, beyond", CIMAGE(q, m, m, far, zero, box, NO));
	WRONG(-30, "copy image, to beyond", CIMAGE(q, m, m, zero, far, box, NO));
	WRONG(-8, "copy image, overlap", CIMAGE(q, m, m, zero, zero, box, NO));
	CHECK(clReleaseMemObject(unlike));
#define TOBUF clEnqueueCopyImageToBuffer
#define TOIMG clEnqueueCopyBufferToImage
	WRONG(-36, "copy image to buffer, no queue", TOBUF(no_queue, m, buffer, zero, box, 0, NO));
	WRONG(-38, "copy image to buffer, no image", TOBUF(q, none, buffer, zero, box, 0, NO));
	WRONG(-38, "copy image to buffer, to an image", TOBUF(q, m, m, zero, box, 0, NO));
	WRONG(-34, "copy image to buffer, of another context", TOBUF(q, m, other_buffer, zero, box, 0, NO));
	WRONG(-30, "copy image to buffer, beyond", TOBUF(q, m, buffer, far, box, 0, NO));
	WRONG(-30, "copy image to buffer, to beyond", TOBUF(q, m, buffer, zero, box, 16380, NO));
	WAITS("copy image to buffer", TOBUF, q, m, buffer, zero, box, 0);
	WRONG(-36, "copy buffer to image, no queue", TOIMG(no_queue, buffer, m, 0, zero, box, NO));
	WRONG(-38, "copy buffer to image, no buffer", TOIMG(q, none, m, 0, zero, box, NO));
	WRONG(-34, "copy buffer to image, of another context", TOIMG(q, other_buffer, m, 0, zero, box, NO));
	WRONG(-30, "copy buffer to image, beyond", TOIMG(q, buffer, m, 16380, zero, box, NO));
	WRONG(-30, "copy buffer to image, to beyond", TOIMG(q, buffer, m, 0, far, box, NO));
	WAITS("copy buffer to image", TOIMG, q, buffer, m, 0, zero, box);
#define MIMAGE clEnqueueMapImage
	MAKES(-36, "map image, no queue", MIMAGE(no_queue, m, CL_TRUE, CL_MAP_READ, zero, box, &pitch, NULL, NO, &rc));
	MAKES(-38, "map image, none", MIMAGE(q, none, CL_TRUE, CL_MAP_READ, zero, box, &pitch, NULL, NO, &rc));
	MAKES(-38, "map image, a buffer", MIMAGE(q, buffer, CL_TRUE, CL_MAP_READ, zero, box, &pitch, NULL, NO, &rc));
	MAKES(-34, "map image, of another context",
		MIMAGE(q, other_image, CL_TRUE, CL_MAP_READ, zero, box, &pitch, NULL, NO, &rc));
	MAKES(-30, "map image, beyond", MIMAGE(q, m, CL_TRUE, CL_MAP_READ, far, box, &pitch, NULL, NO, &rc));
	MAKES(-30, "map image, no pitch", MIMAGE(q, m, CL_TRUE, CL_MAP_READ, zero, box, NULL, NULL, NO, &rc));
	MAKES(-30, "map image, an unknown flag", MIMAGE(q, m, CL_TRUE, 1 << 20, zero, box, &pitch, NULL, NO, &rc));
}

static void CL_CALLBACK done(cl_program p, void *data) { (void)p, (void)data; }

static void programs(void) {
	const char *text = source, *no_text = NULL, *name = "h";
	const unsigned char *bytes = (const unsigned char *)"no binary at all", *no_bytes = NULL;
	const size_t length = 16, no_length = 0;
	cl_int status;
	MAKES(-34, "source, no context", clCreateProgramWithSource(NULL, 1, &text, NULL, &rc));
	MAKES(-30, "source, none", clCreateProgramWithSource(context, 0, &text, NULL, &rc));
	if (all) {
		MAKES(-30, "source, no list", clCreateProgramWithSource(context, 1, NULL, NULL, &rc));
	}
	MAKES(-30, "source, no text", clCreateProgramWithSource(context, 1, &no_text, NULL, &rc));
#define BINARY clCreateProgramWithBinary
	MAKES(-34, "binary, no context", BINARY(NULL, 1, &device, &length, &bytes, &status, &rc));
	MAKES(-30, "binary, no devices", BINARY(context, 0, &device, &length, &bytes, &status, &rc));
	MAKES(-30, "binary, no list", BINARY(context, 1, NULL, &length, &bytes, &status, &rc));
	MAKES(-30, "binary, no lengths", BINARY(context, 1, &device, NULL, &bytes, &status, &rc));
	MAKES(-30, "binary, length 0", BINARY(context, 1, &device, &no_length, &bytes, &status, &rc));
	MAKES(-30, "binary, no bytes", BINARY(context, 1, &device, &length, &no_bytes, &status, &rc));
	MAKES(-42, "binary, other bytes", BINARY(context, 1, &device, &length, &bytes, &status, &rc));
#define KERNELS clCreateProgramWithBuiltInKernels
	MAKES(-34, "built-in kernels, no context", KERNELS(NULL, 1, &device, "name", &rc));
	MAKES(-30, "built-in kernels, no devices", KERNELS(context, 0, &device, "name", &rc));
	MAKES(-30, "built-in kernels, no list", KERNELS(context, 1, NULL, "name", &rc));
	MAKES(-30, "built-in kernels, no names", KERNELS(context, 1, &device, NULL, &rc));
	MAKES(-30, "built-in kernels, an unknown name", KERNELS(context, 1, &device, "no such name", &rc));
	WRONG(-44, "clRetainProgram, none", clRetainProgram(NULL));
	WRONG(-44, "clReleaseProgram, none", clReleaseProgram(NULL));
	if (all) {
		WRONG(-44, "clReleaseProgram, another kind", clReleaseProgram((cl_program)queue));
	}
	cl_device_id no_device = NULL;
	WRONG(-44, "build, no program", clBuildProgram(NULL, 0, NULL, "", NULL, NULL));
	WRONG(-30, "build, devices without a list", clBuildProgram(raw, 1, NULL, "", NULL, NULL));
	WRONG(-30, "build, a list without devices", clBuildProgram(raw, 0, &device, "", NULL, NULL));
	WRONG(-30, "build, data without a call-back", clBuildProgram(raw, 0, NULL, "", NULL, host));
	if (all) {
		WRONG(-33, "build, no device", clBuildProgram(raw, 1, &no_device, "", NULL, NULL));
	}
	WRONG(-43, "build, an option that is none", clBuildProgram(raw, 0, NULL, "-no-such-option", NULL, NULL));
	WRONG(-59, "build, with kernels", clBuildProgram(program, 0, NULL, "", done, NULL));
	WRONG(-44, "compile, no program", clCompileProgram(NULL, 0, NULL, "", 0, NULL, NULL, NULL, NULL));
	WRONG(-30, "compile, devices without a list", clCompileProgram(raw, 1, NULL, "", 0, NULL, NULL, NULL, NULL));
	if (all) {
		WRONG(-30, "compile, headers without a list", clCompileProgram(raw, 0, NULL, "", 1, NULL, NULL, NULL, NULL));
	}
	WRONG(-30, "compile, a list without headers", clCompileProgram(raw, 0, NULL, "", 0, &raw, &name, NULL, NULL));
	WRONG(-30, "compile, data without a call-back", clCompileProgram(raw, 0, NULL, "", 0, NULL, NULL, NULL, host));
	if (all) {
		WRONG(-33, "compile, no device", clCompileProgram(raw, 1, &no_device, "", 0, NULL, NULL, NULL, NULL));
	}
	WRONG(-66, "compile, an option that is none",
		clCompileProgram(raw, 0, NULL, "-no-such-option", 0, NULL, NULL, NULL, NULL));
	WRONG(-59, "compile, with kernels", clCompileProgram(program, 0, NULL, "", 0, NULL, NULL, NULL, NULL));
	WRONG(-59, "compile, a binary", clCompileProgram(binary, 0, NULL, "", 0, NULL, NULL, NULL, NULL));
#define LINK clLinkProgram
	MAKES(-34, "link, no context", LINK(NULL, 0, NULL, "", 1, &raw, NULL, NULL, &rc));
	MAKES(-30, "link, devices without a list", LINK(context, 1, NULL, "", 1, &raw, NULL, NULL, &rc));
	MAKES(-30, "link, nothing", LINK(context, 0, NULL, "", 0, NULL, NULL, NULL, &rc));
	MAKES(-30, "link, no list", LINK(context, 0, NULL, "", 1, NULL, NULL, NULL, &rc));
	MAKES(-30, "link, data without a call-back", LINK(context, 0, NULL, "", 1, &raw, NULL, host, &rc));
	MAKES(-33, "link, no device", LINK(context, 1, &no_device, "", 1, &raw, NULL, NULL, &rc));
	MAKES(-59, "link, what is not compiled", LINK(context, 0, NULL, "", 1, &raw, NULL, NULL, &rc));
	WRONG(-32, "clUnloadPlatformCompiler, none", clUnloadPlatformCompiler(NULL));
	WRONG(-33, "build information, no device",
		clGetProgramBuildInfo(program, NULL, CL_PROGRAM_BUILD_STATUS, sizeof host, host, NULL));
	WRONG(-45, "kernel names, not built", clGetProgramInfo(raw, CL_PROGRAM_KERNEL_NAMES, sizeof host, host, NULL));
	WRONG(-45, "number of kernels, not built", clGetProgramInfo(raw, CL_PROGRAM_NUM_KERNELS, sizeof host, host, NULL));
}

static void kernels(void) {
	cl_uint word = 0, n;
	cl_kernel list[8];
	cl_mem no_buffer = NULL;
	size_t size;
	MAKES(-44, "kernel, no program", clCreateKernel(NULL, "add", &rc));
	MAKES(-30, "kernel, no name", clCreateKernel(program, NULL, &rc));
	MAKES(-46, "kernel, an unknown name", clCreateKernel(program, "none", &rc));
	MAKES(-45, "kernel, not built", clCreateKernel(raw, "add", &rc));
	WRONG(-44, "kernels, no program", clCreateKernelsInProgram(NULL, 8, list, &n));
	WRONG(-45, "kernels, not built", clCreateKernelsInProgram(raw, 8, list, &n));
	WRONG(-30, "kernels, little room", clCreateKernelsInProgram(program, 1, list, &n));
	WRONG(-48, "clRetainKernel, none", clRetainKernel(NULL));
	WRONG(-48, "clReleaseKernel, none", clReleaseKernel(NULL));
	if (all) {
		WRONG(-48, "clReleaseKernel, another kind", clReleaseKernel((cl_kernel)queue));
	}
	MAKES(-48, "clCloneKernel, none", clCloneKernel(NULL, &rc));
	WRONG(-48, "argument, no kernel", clSetKernelArg(NULL, 0, sizeof buffer, &buffer));
	WRONG(-49, "argument, beyond", clSetKernelArg(kernel, 4, 4, &word));
	WRONG(-51, "argument, a buffer of 4 bytes", clSetKernelArg(kernel, 0, 4, &buffer));
	WRONG(-51, "argument, a number of 8 bytes", clSetKernelArg(kernel, 2, 8, host));
	WRONG(-51|-30, "argument, a number of 0 bytes", clSetKernelArg(kernel, 2, 0, host));
	WRONG(-50, "argument, no number", clSetKernelArg(kernel, 2, 4, NULL));
	WRONG(-50, "argument, local with bytes", clSetKernelArg(kernel, 3, 4, &word));
	WRONG(-51, "argument, local of 0 bytes", clSetKernelArg(kernel, 3, 0, NULL));
	WRONG(-41, "argument, a buffer for a sampler", clSetKernelArg(look, 1, sizeof buffer, &buffer));
	if (all) {
		WRONG(-38, "argument, a queue for a buffer", clSetKernelArg(kernel, 0, sizeof queue, &queue));
	}
	WRONG(-38, "argument, a buffer for an image", clSetKernelArg(look, 0, sizeof buffer, &buffer));
	WRONG(-38, "argument, no image", clSetKernelArg(look, 0, sizeof no_buffer, &no_buffer));
	WRONG(-51, "argument, an image of 4 bytes", clSetKernelArg(look, 0, 4, &image));
	WRONG(-51, "argument, a sampler of 4 bytes", clSetKernelArg(look, 1, 4, &sampler));
	if (all) {
		WRONG(-33, "work-group, no device",
			clGetKernelWorkGroupInfo(kernel, (cl_device_id)queue, CL_KERNEL_WORK_GROUP_SIZE, 8, &size, NULL));
	}
	WRONG(-30, "work-group, size of a launch",
		clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_GLOBAL_WORK_SIZE, sizeof host, host, NULL));
	WRONG(-49, "argument information, beyond",
		clGetKernelArgInfo(kernel, 4, CL_KERNEL_ARG_NAME, sizeof host, host, NULL));
	const size_t none = 0, eight = 8, four = 4, three = 3, huge = (size_t)1 << 30;
#define LAUNCH clEnqueueNDRangeKernel
	cl_command_queue no_queue = NULL;
	cl_kernel no_kernel = NULL, fixed = clCreateKernel(program, "fixed", &rc);
	CHECK(rc);
	CHECK(clSetKernelArg(fixed, 0, sizeof buffer, &buffer));
	WRONG(-36, "launch, no queue", LAUNCH(no_queue, kernel, 1, NULL, &eight, NULL, NO));
	if (all) {
		WRONG(-48, "launch, no kernel", LAUNCH(queue, no_kernel, 1, NULL, &eight, NULL, NO));
	}
	WRONG(-34, "launch, of another context", LAUNCH(queue, other_kernel, 1, NULL, &eight, NULL, NO));
	WRONG(-52, "launch, no arguments", LAUNCH(queue, unset, 1, NULL, &eight, NULL, NO));
	WRONG(-53, "launch, no dimensions", LAUNCH(queue, kernel, 0, NULL, &eight, NULL, NO));
	WRONG(-53, "launch, four dimensions", LAUNCH(queue, kernel, 4, NULL, &eight, NULL, NO));
	WRONG(-63, "launch, no size", LAUNCH(queue, kernel, 1, NULL, NULL, NULL, NO));
	WRONG(-63, "launch, size 0", LAUNCH(queue, kernel, 1, NULL, &none, NULL, NO));
	WRONG(-54, "launch, groups that do not fit", LAUNCH(queue, kernel, 1, NULL, &eight, &three, NO));
	WRONG(-54|-55, "launch, groups of 0", LAUNCH(queue, kernel, 1, NULL, &eight, &none, NO));
	WRONG(-54|-55, "launch, groups too large", LAUNCH(queue, kernel, 1, NULL, &huge, &huge, NO));
	WRONG(-54, "launch, groups other than fixed", LAUNCH(queue, fixed, 1, NULL, &eight, &four, NO));
	WRONG(-54, "task, groups other than fixed", clEnqueueTask(queue, fixed, NO));
	if (all) {
		WAITS("launch", LAUNCH, queue, kernel, 1, NULL, &eight, NULL);
		const size_t most = SIZE_MAX - 7, large[3] = { (size_t)1 << 32, (size_t)1 << 31, 2 };
		WRONG(-56, "launch, an offset beyond", LAUNCH(queue, kernel, 1, &eight, &most, NULL, NO));
		WRONG(-63|-5, "launch, all numbers", LAUNCH(queue, kernel, 1, NULL, &most, NULL, NO));
		WRONG(-54|-55, "launch, groups of too many items", LAUNCH(queue, kernel, 3, NULL, large, large, NO));
	}
	WRONG(-36, "task, no queue", clEnqueueTask(no_queue, kernel, NO));
	if (all) {
		WRONG(-48, "task, no kernel", clEnqueueTask(queue, no_kernel, NO));
		WRONG(-52, "task, no arguments", clEnqueueTask(queue, unset, NO));
	}
	WRONG(-36, "native kernel, no queue", clEnqueueNativeKernel(no_queue, NULL, NULL, 0, 0, NULL, NULL, NO));
	CHECK(clReleaseKernel(fixed));
}

static void CL_CALLBACK happened(cl_event e, cl_int status, void *data) { (void)e, (void)status, (void)data; }

static void events(void) {
	cl_event no_event = NULL, two[2] = { event, other_event }, e = NULL;
	cl_command_queue no_queue = NULL;
	MAKES(-34, "user event, no context", clCreateUserEvent(NULL, &rc));
	WRONG(-58, "user event, none", clSetUserEventStatus(NULL, CL_COMPLETE));
	WRONG(-58, "user event, of a command", clSetUserEventStatus(event, CL_COMPLETE));
	WRONG(-30, "user event, running", clSetUserEventStatus(user, CL_RUNNING));
	WRONG(0, "user event, complete", clSetUserEventStatus(user, CL_COMPLETE));
	WRONG(-59, "user event, again", clSetUserEventStatus(user, CL_COMPLETE));
	WRONG(-30, "wait, for nothing", clWaitForEvents(0, NULL));
	WRONG(-30, "wait, no list", clWaitForEvents(1, NULL));
	WRONG(-58, "wait, no event", clWaitForEvents(1, &no_event));
	WRONG(-34, "wait, of two contexts", clWaitForEvents(2, two));
	WRONG(-58, "event call-back, no event", clSetEventCallback(NULL, CL_COMPLETE, happened, NULL));
	WRONG(-30, "event call-back, no function", clSetEventCallback(event, CL_COMPLETE, NULL, NULL));
	WRONG(-30, "event call-back, an unknown state", clSetEventCallback(event, 77, happened, NULL));
	WRONG(-30, "event call-back, queued", clSetEventCallback(event, CL_QUEUED, happened, NULL));
	WRONG(-58, "clRetainEvent, none", clRetainEvent(NULL));
	WRONG(-58, "clReleaseEvent, none", clReleaseEvent(NULL));
	if (all) {
		WRONG(-58, "clReleaseEvent, another kind", clReleaseEvent((cl_event)queue));
	}
	WRONG(-7, "times, of a user event",
		clGetEventProfilingInfo(user, CL_PROFILING_COMMAND_START, sizeof host, host, NULL));
	WRONG(-7, "times, of a queue without",
		clGetEventProfilingInfo(other_event, CL_PROFILING_COMMAND_START, sizeof host, host, NULL));
	WRONG(-36, "marker, no queue", clEnqueueMarkerWithWaitList(no_queue, 0, NULL, NULL));
	WAITS("marker", clEnqueueMarkerWithWaitList, queue);
	WRONG(-36, "barrier, no queue", clEnqueueBarrierWithWaitList(no_queue, 0, NULL, NULL));
	WAITS("barrier", clEnqueueBarrierWithWaitList, queue);
	WRONG(-30, "old marker, no event", clEnqueueMarker(queue, NULL));
	WRONG(-36, "old marker, no queue", clEnqueueMarker(no_queue, &e));
	WRONG(-36, "old barrier, no queue", clEnqueueBarrier(no_queue));
	WRONG(-36, "old wait, no queue", clEnqueueWaitForEvents(no_queue, 1, &event));
	if (all) {
		WRONG(-30, "old wait, for nothing", clEnqueueWaitForEvents(queue, 0, NULL));
		WRONG(-58, "old wait, no event", clEnqueueWaitForEvents(queue, 1, &no_event));
		WRONG(-34, "old wait, of another context", clEnqueueWaitForEvents(queue, 1, &other_event));
	}
	WRONG(-38, "clGetPipeInfo, a buffer", clGetPipeInfo(buffer, CL_PIPE_PACKET_SIZE, sizeof host, host, NULL));
	WRONG(-36, "clEnqueueSVMMap, no queue", clEnqueueSVMMap(no_queue, CL_TRUE, CL_MAP_READ, host, 4, NO));
	WRONG(-48, "clSetKernelArgSVMPointer, none", clSetKernelArgSVMPointer(NULL, 0, host));
}

static cl_program built(cl_context c) {
	cl_program p = clCreateProgramWithSource(c, 1, &source, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(p, 1, &device, "-cl-kernel-arg-info", NULL, NULL));
	return p;
}

static cl_program copied(cl_program p) {
	size_t n;
	CHECK(clGetProgramInfo(p, CL_PROGRAM_BINARY_SIZES, sizeof n, &n, NULL));
	unsigned char *b = malloc(n);
	CHECK(clGetProgramInfo(p, CL_PROGRAM_BINARIES, sizeof b, &b, NULL));
	cl_program made = clCreateProgramWithBinary(context, 1, &device, &n, (const unsigned char **)&b, NULL, &rc);
	CHECK(rc);
	free(b);
	return made;
}

static void make_objects(void) {
	const cl_image_format f = { CL_RGBA, CL_UNSIGNED_INT8 };
	const cl_image_desc d = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 61, .image_height = 37 };
	const cl_uint zero = 0;
	CHECK(clGetPlatformIDs(1, &platform, NULL));
	CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
	cl_context *contexts[2] = { &context, &other };
	cl_command_queue *queues[2] = { &queue, &other_queue };
	cl_mem *buffers[2] = { &buffer, &other_buffer }, *planes[2] = { &image, &other_image };
	cl_event *filled[2] = { &event, &other_event };
	for (int i = 0; i < 2; i++) {
		*contexts[i] = clCreateContext(NULL, 1, &device, NULL, NULL, &rc);
		CHECK(rc);
		*queues[i] = clCreateCommandQueue(*contexts[i], device, i == 0 ? CL_QUEUE_PROFILING_ENABLE : 0, &rc);
		CHECK(rc);
		*buffers[i] = clCreateBuffer(*contexts[i], CL_MEM_READ_WRITE, 16384, NULL, &rc);
		CHECK(rc);
		*planes[i] = clCreateImage(*contexts[i], CL_MEM_READ_WRITE, &f, &d, NULL, &rc);
		CHECK(rc);
		CHECK(clEnqueueFillBuffer(*queues[i], *buffers[i], &zero, 4, 0, 16384, 0, NULL, filled[i]));
		CHECK(clFinish(*queues[i]));
	}
	shut = clCreateBuffer(context, CL_MEM_HOST_NO_ACCESS, 16384, NULL, &rc);
	CHECK(rc);
	constant = clCreateBuffer(context, CL_MEM_READ_ONLY, 16384, NULL, &rc);
	CHECK(rc);
	sampler = clCreateSampler(context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &rc);
	CHECK(rc);
	program = built(context);
	binary = copied(program);
	raw = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	CHECK(rc);
	kernel = clCreateKernel(program, "add", &rc);
	CHECK(rc);
	unset = clCreateKernel(program, "add", &rc);
	CHECK(rc);
	look = clCreateKernel(program, "look", &rc);
	CHECK(rc);
	other_kernel = clCreateKernel(built(other), "add", &rc);
	CHECK(rc);
	cl_kernel both[2] = { kernel, other_kernel };
	for (int i = 0; i < 2; i++) {
		CHECK(clSetKernelArg(both[i], 0, sizeof buffer, buffers[i]));
		CHECK(clSetKernelArg(both[i], 1, sizeof buffer, buffers[i]));
		CHECK(clSetKernelArg(both[i], 2, sizeof zero, &zero));
		CHECK(clSetKernelArg(both[i], 3, 256, NULL));
	}
	user = clCreateUserEvent(context, &rc);
	CHECK(rc);
}

int main(int argc, char **argv) {
	all = argc > 1 && strcmp(argv[1], "all") == 0;
	make_objects();
	setvbuf(stdout, NULL, _IOLBF, 0);
	all_questions();
	devices();
	contexts();
	buffers();
	buffer_commands();
	images();
	image_commands();
	programs();
	kernels();
	events();
	fflush(stdout);
	_exit(0);
}
