/* An OpenCL implementation whose commands do nothing and are complete at once, to measure the way of a launch above
 * one. It is no device: kernels compute nothing. Transfers copy bytes, so that programs which compare the bytes that
 * they read back run through. As a vendor's library:

       mkdir vendors && cc -O2 -shared -fPIC -o vendors/null.so null.c && echo $PWD/vendors/null.so > vendors/null.icd
       export OCL_ICD_VENDORS=$PWD/vendors

   A server's workers read the library because it lies in that directory.

   Its device is called "Null". The platform has the name of NVIDIA's, unless NULL_PLATFORM has another one, since
   Holdfast asks NVIDIA's OpenCL alone for no event with each launch. */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_icd.h>
#include <stdlib.h>
#include <string.h>

#define API CL_API_ENTRY __attribute__((visibility("default")))

static struct _cl_icd_dispatch table;

struct object { struct _cl_icd_dispatch *dispatch; int refs; };
struct _cl_platform_id { struct object o; };
struct _cl_device_id { struct object o; };
struct _cl_context { struct object o; };
struct _cl_command_queue { struct object o; };
struct _cl_mem { struct object o; char *bytes; int borrowed; };
struct _cl_program { struct object o; };
struct _cl_kernel { struct object o; cl_uint args; };
struct _cl_event { struct object o; };

static struct _cl_platform_id platform = { { &table, 1 } };

static struct _cl_device_id device = { { &table, 1 } };

static struct _cl_event done = { { &table, 1 } };

static void *make(size_t n, cl_int *rc) {
	struct object *o = calloc(1, n);
	o->dispatch = &table;
	o->refs = 1;
	if (rc) *rc = CL_SUCCESS;
	return o;
}

static cl_int text(const char *s, size_t n, void *v, size_t *got) {
	size_t k = strlen(s) + 1;
	if (got) *got = k;
	if (v) { if (n < k) return CL_INVALID_VALUE; memcpy(v, s, k); }
	return CL_SUCCESS;
}

static cl_int bytes(const void *s, size_t k, size_t n, void *v, size_t *got) {
	if (got) *got = k;
	if (v) { if (n < k) return CL_INVALID_VALUE; memcpy(v, s, k); }
	return CL_SUCCESS;
}

static cl_int event_of(cl_event *e) {
	if (e) *e = &done;
	return CL_SUCCESS;
}

static cl_int gplatforms(cl_uint n, cl_platform_id *l, cl_uint *num) {
	if (num) *num = 1;
	if (l && n) *l = &platform;
	return CL_SUCCESS;
}

static cl_int gplatforminfo(cl_platform_id p, cl_platform_info w, size_t n, void *v, size_t *got) {
	switch (w) {
	case CL_PLATFORM_NAME: return text(getenv("NULL_PLATFORM") ? getenv("NULL_PLATFORM") : "NVIDIA CUDA", n, v, got);
	case CL_PLATFORM_VERSION: return text("OpenCL 1.2 null", n, v, got);
	case CL_PLATFORM_PROFILE: return text("FULL_PROFILE", n, v, got);
	case CL_PLATFORM_EXTENSIONS: return text("cl_khr_icd", n, v, got);
	case CL_PLATFORM_ICD_SUFFIX_KHR: return text("NULL", n, v, got);
	}
	return text("null", n, v, got);
}

static cl_int gdevices(cl_platform_id p, cl_device_type t, cl_uint n, cl_device_id *l, cl_uint *num) {
	if (!(t & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_DEFAULT))) return CL_DEVICE_NOT_FOUND;
	if (num) *num = 1;
	if (l && n) *l = &device;
	return CL_SUCCESS;
}

static cl_int gdeviceinfo(cl_device_id d, cl_device_info w, size_t n, void *v, size_t *got) {
	cl_ulong u = 0;
	cl_uint i = 0;
	size_t s;
	switch (w) {
	case CL_DEVICE_NAME: case CL_DEVICE_VENDOR: return text("Null", n, v, got);
	case CL_DEVICE_VERSION: return text("OpenCL 1.2 null", n, v, got);
	case CL_DRIVER_VERSION: return text("1", n, v, got);
	case CL_DEVICE_OPENCL_C_VERSION: return text("OpenCL C 1.2", n, v, got);
	case CL_DEVICE_PROFILE: return text("FULL_PROFILE", n, v, got);
	case CL_DEVICE_EXTENSIONS: return text("", n, v, got);
	case CL_DEVICE_BUILT_IN_KERNELS: return text("", n, v, got);
	case CL_DEVICE_TYPE: u = CL_DEVICE_TYPE_GPU; break;
	case CL_DEVICE_GLOBAL_MEM_SIZE: u = 16ull << 30; break;
	case CL_DEVICE_MAX_MEM_ALLOC_SIZE: u = 4ull << 30; break;
	case CL_DEVICE_LOCAL_MEM_SIZE: u = 48 << 10; break;
	case CL_DEVICE_DOUBLE_FP_CONFIG: u = 63; break;
	case CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE: u = 64 << 10; break;
	case CL_DEVICE_QUEUE_PROPERTIES: u = 3; break;
	case CL_DEVICE_PLATFORM: { cl_platform_id q = &platform; return bytes(&q, sizeof q, n, v, got); }
	case CL_DEVICE_MAX_WORK_GROUP_SIZE: s = 1024; return bytes(&s, sizeof s, n, v, got);
	case CL_DEVICE_MAX_WORK_ITEM_SIZES: { size_t l[3] = { 1024, 1024, 64 }; return bytes(l, sizeof l, n, v, got); }
	case CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS: i = 3; return bytes(&i, 4, n, v, got);
	case CL_DEVICE_MEM_BASE_ADDR_ALIGN: i = 1024; return bytes(&i, 4, n, v, got);
	case CL_DEVICE_AVAILABLE: case CL_DEVICE_COMPILER_AVAILABLE: case CL_DEVICE_LINKER_AVAILABLE:
	case CL_DEVICE_ENDIAN_LITTLE:
		i = 1;
		return bytes(&i, 4, n, v, got);
	case CL_DEVICE_ADDRESS_BITS: i = 64; return bytes(&i, 4, n, v, got);
	default: return bytes(&i, 4, n, v, got);
	}
	return bytes(&u, 8, n, v, got);
}

static cl_context gcontext(const cl_context_properties *p, cl_uint n, const cl_device_id *l,
	void (CL_CALLBACK *f)(const char *, const void *, size_t, void *), void *u, cl_int *rc) {
	return make(sizeof(struct _cl_context), rc);
}

static cl_command_queue gqueue(cl_context c, cl_device_id d, cl_command_queue_properties p, cl_int *rc) {
	return make(sizeof(struct _cl_command_queue), rc);
}

static cl_mem gbuffer(cl_context c, cl_mem_flags f, size_t n, void *host, cl_int *rc) {
	cl_mem m = make(sizeof *m, rc);
	m->bytes = f & CL_MEM_USE_HOST_PTR ? host : calloc(1, n);
	m->borrowed = (f & CL_MEM_USE_HOST_PTR) != 0;
	return m;
}

static cl_mem gimage(cl_context c, cl_mem_flags f, const cl_image_format *a, const cl_image_desc *b, void
	*h, cl_int *rc) {
	if (rc) *rc = CL_INVALID_OPERATION;
	return NULL;
}

static cl_int gretain(void *o) {
	return CL_SUCCESS;
}

static cl_int grelease(void *o) {
	return CL_SUCCESS;
}

static cl_int greleasemem(cl_mem m) {
	if (!m->borrowed) free(m->bytes);
	free(m);
	return CL_SUCCESS;
}

static cl_program gsource(cl_context c, cl_uint n, const char **s, const size_t *l, cl_int *rc) {
	return make(sizeof(struct _cl_program), rc);
}

static cl_program gbinary(cl_context c, cl_uint n, const cl_device_id *d, const size_t *l, const unsigned
	char **b, cl_int *st, cl_int *rc) {
	return make(sizeof(struct _cl_program), rc);
}

static cl_int gbuild(cl_program p, cl_uint n, const cl_device_id *d, const char *o, void (CL_CALLBACK
	*f)(cl_program, void *), void *u) {
	return CL_SUCCESS;
}

static cl_int gprograminfo(cl_program p, cl_program_info w, size_t n, void *v, size_t *got) {
	size_t one = 4;
	cl_uint i = 1;
	cl_device_id d = &device;
	switch (w) {
	case CL_PROGRAM_BINARY_SIZES: return bytes(&one, sizeof one, n, v, got);
	case CL_PROGRAM_BINARIES: if (v) memcpy(*(void **)v, "null", 4); if (got) *got = sizeof v; return CL_SUCCESS;
	case CL_PROGRAM_NUM_DEVICES: return bytes(&i, 4, n, v, got);
	case CL_PROGRAM_DEVICES: return bytes(&d, sizeof d, n, v, got);
	case CL_PROGRAM_KERNEL_NAMES: return text("none;work;busy", n, v, got);
	}
	return CL_INVALID_VALUE;
}

static cl_int gbuildinfo(cl_program p, cl_device_id d, cl_program_build_info w, size_t n, void *v, size_t
	*got) {
	cl_int i = 0;
	if (w == CL_PROGRAM_BUILD_STATUS) return bytes(&i, 4, n, v, got);
	if (w == CL_PROGRAM_BUILD_LOG || w == CL_PROGRAM_BUILD_OPTIONS) return text("", n, v, got);
	return CL_INVALID_VALUE;
}

static cl_kernel gkernel(cl_program p, const char *name, cl_int *rc) {
	cl_kernel k = make(sizeof *k, rc);
	k->args = 2;
	return k;
}

static cl_int gkernelinfo(cl_kernel k, cl_kernel_info w, size_t n, void *v, size_t *got) {
	if (w == CL_KERNEL_NUM_ARGS) return bytes(&k->args, 4, n, v, got);
	if (w == CL_KERNEL_FUNCTION_NAME) return text("none", n, v, got);
	if (w == CL_KERNEL_ATTRIBUTES) return text("", n, v, got);
	return CL_INVALID_VALUE;
}

static cl_int ggroupinfo(cl_kernel k, cl_device_id d, cl_kernel_work_group_info w, size_t n, void *v, size_t
	*got) {
	size_t s[3] = { 0, 0, 0 };
	cl_ulong u = 0;
	switch (w) {
	case CL_KERNEL_WORK_GROUP_SIZE: s[0] = 1024; return bytes(s, sizeof *s, n, v, got);
	case CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE: s[0] = 32; return bytes(s, sizeof *s, n, v, got);
	case CL_KERNEL_COMPILE_WORK_GROUP_SIZE: return bytes(s, sizeof s, n, v, got);
	}
	return bytes(&u, 8, n, v, got);
}

static cl_int garginfo(cl_kernel k, cl_uint i, cl_kernel_arg_info w, size_t n, void *v, size_t *got) {
	return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
}

static cl_int garg(cl_kernel k, cl_uint i, size_t n, const void *v) {
	return CL_SUCCESS;
}

static cl_int glaunch(cl_command_queue q, cl_kernel k, cl_uint d, const size_t *o, const size_t *g, const
	size_t *l, cl_uint n, const cl_event *w, cl_event *e) {
	return event_of(e);
}

static cl_int gread(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t n, void *p, cl_uint nw, const
	cl_event *w, cl_event *e) {
	memcpy(p, m->bytes + o, n);
	return event_of(e);
}

static cl_int gwrite(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t n, const void *p, cl_uint nw,
	const cl_event *w, cl_event *e) {
	memcpy(m->bytes + o, p, n);
	return event_of(e);
}

static cl_int gcopy(cl_command_queue q, cl_mem s, cl_mem d, size_t so, size_t dd, size_t n, cl_uint nw,
	const cl_event *w, cl_event *e) {
	memmove(d->bytes + dd, s->bytes + so, n);
	return event_of(e);
}

static cl_int gfill(cl_command_queue q, cl_mem m, const void *p, size_t k, size_t o, size_t n, cl_uint nw,
	const cl_event *w, cl_event *e) {
	for (size_t i = 0; i < n; i += k) memcpy(m->bytes + o + i, p, k);
	return event_of(e);
}

static void rows(char *d, const size_t *dor, size_t dr, size_t ds, const char *s, const size_t *sor, size_t
	sr, size_t ss, const size_t *r) {
	if (!dr) dr = r[0]; if (!sr) sr = r[0];
	if (!ds) ds = dr * r[1]; if (!ss) ss = sr * r[1];
	for (size_t z = 0; z < r[2]; z++) for (size_t y = 0; y < r[1]; y++)
		memcpy(d + dor[0] + (dor[1] + y) * dr + (dor[2] + z) * ds,
			s + sor[0] + (sor[1] + y) * sr + (sor[2] + z) * ss, r[0]);
}

static cl_int greadrect(cl_command_queue q, cl_mem m, cl_bool b, const size_t *bo, const size_t *ho, const
	size_t *r, size_t br, size_t bs, size_t hr, size_t hs, void *p, cl_uint n, const cl_event *w, cl_event *e) {
	rows(p, ho, hr, hs, m->bytes, bo, br, bs, r);
	return event_of(e);
}

static cl_int gwriterect(cl_command_queue q, cl_mem m, cl_bool b, const size_t *bo, const size_t *ho, const
	size_t *r, size_t br, size_t bs, size_t hr, size_t hs, const void *p, cl_uint n, const cl_event *w,
	cl_event *e) {
	rows(m->bytes, bo, br, bs, p, ho, hr, hs, r);
	return event_of(e);
}

static cl_int gmarker(cl_command_queue q, cl_uint n, const cl_event *w, cl_event *e) {
	return event_of(e);
}

static cl_int gwait(cl_uint n, const cl_event *l) {
	return CL_SUCCESS;
}

static cl_int gqueueop(cl_command_queue q) {
	return CL_SUCCESS;
}

static cl_int geventinfo(cl_event e, cl_event_info w, size_t n, void *v, size_t *got) {
	cl_int i = CL_COMPLETE;
	if (w == CL_EVENT_COMMAND_EXECUTION_STATUS) return bytes(&i, 4, n, v, got);
	return CL_INVALID_VALUE;
}

static void *gmap(cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f, size_t o, size_t n, cl_uint nw,
	const cl_event *w, cl_event *e, cl_int *rc) {
	event_of(e);
	if (rc) *rc = 0;
	return m->bytes + o;
}

static cl_int gunmap(cl_command_queue q, cl_mem m, void *p, cl_uint nw, const cl_event *w, cl_event *e) {
	return event_of(e);
}

static cl_int gformats(cl_context c, cl_mem_flags f, cl_mem_object_type t, cl_uint n, cl_image_format *l,
	cl_uint *num) {
	if (num) *num = 0;
	return CL_SUCCESS;
}

static cl_int grefuse(void) {
	return CL_INVALID_OPERATION;
}

static cl_int gmeminfo(cl_mem m, cl_mem_info w, size_t n, void *v, size_t *got) {
	return CL_INVALID_VALUE;
}

__attribute__((constructor)) static void fill(void) {
	for (size_t i = 0; i < sizeof table / sizeof(void *); i++) ((void **)&table)[i] = (void *)grefuse;
	table.clGetPlatformIDs = gplatforms;
	table.clGetPlatformInfo = gplatforminfo;
	table.clGetDeviceIDs = gdevices;
	table.clGetDeviceInfo = gdeviceinfo;
	table.clCreateContext = gcontext;
	table.clCreateCommandQueue = gqueue;
	table.clCreateBuffer = gbuffer;
	table.clCreateImage = gimage;
	table.clRetainContext = (void *)gretain;
	table.clRetainCommandQueue = (void *)gretain;
	table.clRetainMemObject = (void *)gretain;
	table.clRetainProgram = (void *)gretain;
	table.clRetainKernel = (void *)gretain;
	table.clRetainEvent = (void *)gretain;
	table.clReleaseContext = (void *)grelease;
	table.clReleaseCommandQueue = (void *)grelease;
	table.clReleaseMemObject = greleasemem;
	table.clReleaseProgram = (void *)grelease;
	table.clReleaseKernel = (void *)grelease;
	table.clReleaseEvent = (void *)grelease;
	table.clRetainDevice = (void *)gretain;
	table.clReleaseDevice = (void *)grelease;
	table.clCreateProgramWithSource = gsource;
	table.clCreateProgramWithBinary = gbinary;
	table.clBuildProgram = gbuild;
	table.clGetProgramInfo = gprograminfo;
	table.clGetProgramBuildInfo = gbuildinfo;
	table.clCreateKernel = gkernel;
	table.clGetKernelInfo = gkernelinfo;
	table.clGetKernelWorkGroupInfo = ggroupinfo;
	table.clGetKernelArgInfo = garginfo;
	table.clSetKernelArg = garg;
	table.clEnqueueNDRangeKernel = glaunch;
	table.clEnqueueReadBuffer = gread;
	table.clEnqueueWriteBuffer = gwrite;
	table.clEnqueueCopyBuffer = gcopy;
	table.clEnqueueFillBuffer = gfill;
	table.clEnqueueReadBufferRect = greadrect;
	table.clEnqueueWriteBufferRect = gwriterect;
	table.clEnqueueMarkerWithWaitList = gmarker;
	table.clEnqueueBarrierWithWaitList = gmarker;
	table.clWaitForEvents = gwait;
	table.clFlush = gqueueop;
	table.clFinish = gqueueop;
	table.clGetEventInfo = geventinfo;
	table.clEnqueueMapBuffer = gmap;
	table.clEnqueueUnmapMemObject = gunmap;
	table.clGetSupportedImageFormats = gformats;
	table.clGetMemObjectInfo = gmeminfo;
}

API cl_int clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *l, cl_uint *num) {
	return gplatforms(n, l, num);
}

API cl_int clGetPlatformIDs(cl_uint n, cl_platform_id *l, cl_uint *num) {
	return gplatforms(n, l, num);
}

API cl_int clGetPlatformInfo(cl_platform_id p, cl_platform_info w, size_t n, void *v, size_t *got) {
	return gplatforminfo(p, w, n, v, got);
}

API void *clGetExtensionFunctionAddress(const char *name) {
	return strcmp(name, "clIcdGetPlatformIDsKHR") ? NULL : (void *)clIcdGetPlatformIDsKHR;
}
