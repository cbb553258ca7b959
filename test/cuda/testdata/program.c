/* program.c - uses device memory of all kinds, streams, events, graphs and
 * threads, and prints sums of what it has computed. Where UNTIL names a file
 * it does not end before that is there. It is linked to
 * libcuda.so.1, or with RESOLVED asks cuGetProcAddress for each function, as
 * NVIDIA's runtime does.
 *
 * usage: program [ROUNDS [leave|plain]]; program spin;
 *        program count; program marks; program fork; program table;
 *        program init; program barrier;
 *        program descriptors
 * leave: it does not free what it has at the end
 * plain: it uses no managed memory, a thread asks all the time how far a
 *        stream and an event are, and one asks about the device */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

#ifdef RESOLVED
#define ALL(F)                                                    \
	F(cuInit, "cuInit")                                           \
	F(cuDeviceGet, "cuDeviceGet")                                 \
	F(cuDeviceGetName, "cuDeviceGetName")                         \
	F(cuGetExportTable, "cuGetExportTable")                       \
	F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")       \
	F(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease")  \
	F(cuCtxPushCurrent_v2, "cuCtxPushCurrent")                    \
	F(cuCtxSynchronize, "cuCtxSynchronize")                       \
	F(cuMemAlloc_v2, "cuMemAlloc")                                \
	F(cuMemAllocPitch_v2, "cuMemAllocPitch")                      \
	F(cuMemAllocManaged, "cuMemAllocManaged")                     \
	F(cuMemAllocAsync, "cuMemAllocAsync")                         \
	F(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync")         \
	F(cuMemHostAlloc, "cuMemHostAlloc")                           \
	F(cuMemFree_v2, "cuMemFree")                                  \
	F(cuMemGetInfo_v2, "cuMemGetInfo")                            \
	F(cuMemFreeAsync, "cuMemFreeAsync")                           \
	F(cuMemFreeHost, "cuMemFreeHost")                             \
	F(cuMemAddressReserve, "cuMemAddressReserve")                 \
	F(cuMemAddressFree, "cuMemAddressFree")                       \
	F(cuMemCreate, "cuMemCreate")                                 \
	F(cuMemRelease, "cuMemRelease")                               \
	F(cuMemMap, "cuMemMap")                                       \
	F(cuMemSetAccess, "cuMemSetAccess")                           \
	F(cuMemUnmap, "cuMemUnmap")                                   \
	F(cuArray3DCreate_v2, "cuArray3DCreate")                      \
	F(cuArrayDestroy, "cuArrayDestroy")                           \
	F(cuMemcpy3D_v2, "cuMemcpy3D")                                \
	F(cuMemcpyHtoD_v2, "cuMemcpyHtoD")                            \
	F(cuMemcpyDtoH_v2, "cuMemcpyDtoH")                            \
	F(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync")                  \
	F(cuMemsetD8_v2, "cuMemsetD8")                                \
	F(cuMemsetD8Async, "cuMemsetD8Async")                         \
	F(cuModuleLoadData, "cuModuleLoadData")                       \
	F(cuModuleUnload, "cuModuleUnload")                           \
	F(cuModuleGetFunction, "cuModuleGetFunction")                 \
	F(cuModuleGetGlobal_v2, "cuModuleGetGlobal")                  \
	F(cuLaunchKernel, "cuLaunchKernel")                           \
	F(cuStreamCreate, "cuStreamCreate")                           \
	F(cuStreamDestroy_v2, "cuStreamDestroy")                      \
	F(cuStreamSynchronize, "cuStreamSynchronize")                 \
	F(cuStreamQuery, "cuStreamQuery")                             \
	F(cuStreamWaitEvent, "cuStreamWaitEvent")                     \
	F(cuStreamBeginCapture_v2, "cuStreamBeginCapture")            \
	F(cuStreamEndCapture, "cuStreamEndCapture")                   \
	F(cuEventCreate, "cuEventCreate")                             \
	F(cuEventRecord, "cuEventRecord")                             \
	F(cuEventQuery, "cuEventQuery")                               \
	F(cuEventSynchronize, "cuEventSynchronize")                   \
	F(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags") \
	F(cuGraphLaunch, "cuGraphLaunch")
#define DECLARE(f, name) static __typeof__(&f) p_##f;
ALL(DECLARE)
#define FIND(f, name) found += resolve(name, (void **)&p_##f, 13000, 0, NULL) == CUDA_SUCCESS && p_##f != NULL, all++;

static void start(void) {
	const char *named = getenv("DRIVER");
	void *driver = dlopen(named != NULL ? named : "libcuda.so.1", RTLD_NOW);
	__typeof__(&cuGetProcAddress_v2) resolve;
	int found = 0, all = 0;

	if (driver == NULL || (resolve = (__typeof__(resolve))dlsym(driver, "cuGetProcAddress_v2")) == NULL ||
		resolve("cuGetProcAddress", (void **)&resolve, 13000, 0, NULL) != CUDA_SUCCESS) {
		printf("no driver\n");
		exit(1);
	}
	ALL(FIND)
	if (found != all) {
		printf("%d of %d functions\n", found, all);
		exit(1);
	}
}
#define cuInit (*p_cuInit)
#define cuDeviceGet (*p_cuDeviceGet)
#define cuDeviceGetName (*p_cuDeviceGetName)
#define cuGetExportTable (*p_cuGetExportTable)
#define cuDevicePrimaryCtxRetain (*p_cuDevicePrimaryCtxRetain)
#define cuDevicePrimaryCtxRelease_v2 (*p_cuDevicePrimaryCtxRelease_v2)
#define cuCtxPushCurrent_v2 (*p_cuCtxPushCurrent_v2)
#define cuCtxSynchronize (*p_cuCtxSynchronize)
#define cuMemAlloc_v2 (*p_cuMemAlloc_v2)
#define cuMemAllocPitch_v2 (*p_cuMemAllocPitch_v2)
#define cuMemAllocManaged (*p_cuMemAllocManaged)
#define cuMemAllocAsync (*p_cuMemAllocAsync)
#define cuMemAllocFromPoolAsync (*p_cuMemAllocFromPoolAsync)
#define cuMemHostAlloc (*p_cuMemHostAlloc)
#define cuMemFree_v2 (*p_cuMemFree_v2)
#define cuMemGetInfo_v2 (*p_cuMemGetInfo_v2)
#define cuMemFreeAsync (*p_cuMemFreeAsync)
#define cuMemFreeHost (*p_cuMemFreeHost)
#define cuMemAddressReserve (*p_cuMemAddressReserve)
#define cuMemAddressFree (*p_cuMemAddressFree)
#define cuMemCreate (*p_cuMemCreate)
#define cuMemRelease (*p_cuMemRelease)
#define cuMemMap (*p_cuMemMap)
#define cuMemSetAccess (*p_cuMemSetAccess)
#define cuMemUnmap (*p_cuMemUnmap)
#define cuArray3DCreate_v2 (*p_cuArray3DCreate_v2)
#define cuArrayDestroy (*p_cuArrayDestroy)
#define cuMemcpy3D_v2 (*p_cuMemcpy3D_v2)
#define cuMemcpyHtoD_v2 (*p_cuMemcpyHtoD_v2)
#define cuMemcpyDtoH_v2 (*p_cuMemcpyDtoH_v2)
#define cuMemcpyDtoHAsync_v2 (*p_cuMemcpyDtoHAsync_v2)
#define cuMemsetD8_v2 (*p_cuMemsetD8_v2)
#define cuMemsetD8Async (*p_cuMemsetD8Async)
#define cuModuleLoadData (*p_cuModuleLoadData)
#define cuModuleUnload (*p_cuModuleUnload)
#define cuModuleGetFunction (*p_cuModuleGetFunction)
#define cuModuleGetGlobal_v2 (*p_cuModuleGetGlobal_v2)
#define cuLaunchKernel (*p_cuLaunchKernel)
#define cuStreamCreate (*p_cuStreamCreate)
#define cuStreamDestroy_v2 (*p_cuStreamDestroy_v2)
#define cuStreamSynchronize (*p_cuStreamSynchronize)
#define cuStreamQuery (*p_cuStreamQuery)
#define cuStreamWaitEvent (*p_cuStreamWaitEvent)
#define cuStreamBeginCapture_v2 (*p_cuStreamBeginCapture_v2)
#define cuStreamEndCapture (*p_cuStreamEndCapture)
#define cuEventCreate (*p_cuEventCreate)
#define cuEventRecord (*p_cuEventRecord)
#define cuEventQuery (*p_cuEventQuery)
#define cuEventSynchronize (*p_cuEventSynchronize)
#define cuGraphInstantiateWithFlags (*p_cuGraphInstantiateWithFlags)
#define cuGraphLaunch (*p_cuGraphLaunch)
#else
static void start(void) {}
#endif

#define CHECK(call) checked(call, #call)

static void checked(CUresult e, const char *call) {
	if (e != CUDA_SUCCESS) {
		printf("%s: error %d\n", call, e);
		fflush(stdout);
		_exit(1);
	}
}

enum { N = 5000, THREADS = 3 };
static CUcontext context;
static CUfunction axpy, mix, fill, spin;

static unsigned long long sum(const void *bytes, size_t n) {
	const unsigned char *p = bytes;
	unsigned long long z = 14695981039346656037u;

	while (n-- > 0) {
		z = (z ^ *p++) * 1099511628211u;
	}
	return z;
}

static void launch_axpy(CUdeviceptr y, CUdeviceptr x, unsigned n, CUstream s) {
	void *params[] = { &y, &x, &n };

	CHECK(cuLaunchKernel(axpy, (n + 255) / 256, 1, 1, 256, 1, 1, 0, s, params, NULL));
}

/* Memory that nothing but kernels uses. */
static void by_kernels(CUdeviceptr sum_at, CUstream s) {
	unsigned n = 64;
	CUdeviceptr p;
	void *params[] = { &p, &n };

	CHECK(cuMemAllocFromPoolAsync(&p, n * sizeof(double), NULL, s));
	CHECK(cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, s, params, NULL));
	launch_axpy(sum_at, p, n / 8, s);
	CHECK(cuMemFreeAsync(p, s));
}

static void launch_mix(CUdeviceptr p, unsigned n, CUstream s) {
	void *params[] = { &p, &n };

	CHECK(cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

static void copy_array(CUarray array, void *bytes, int in) {
	CUDA_MEMCPY3D c = { .WidthInBytes = 40, .Height = 7, .Depth = 3 };

	c.srcMemoryType = in ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
	c.dstMemoryType = in ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
	c.srcHost = c.dstHost = bytes;
	c.srcArray = c.dstArray = array;
	c.srcPitch = c.dstPitch = 40;
	c.srcHeight = c.dstHeight = 7;
	CHECK(cuMemcpy3D_v2(&c));
}

/* Each thread has a stream and memory that comes and goes. */
static void *thread(void *arg) {
	int seed = *(int *)arg, rounds = 40, i;
	unsigned char out[256];
	unsigned long long *result = arg;
	CUDA_MEMCPY3D row = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = out,
		.WidthInBytes = sizeof out,
		.Height = 1,
		.Depth = 1 };
	CUdeviceptr p, q;
	CUstream s;

	*result = 0;
	CHECK(cuCtxPushCurrent_v2(context));
	CHECK(cuStreamCreate(&s, 1));
	CHECK(cuMemAlloc_v2(&p, 4096));
	CHECK(cuMemsetD8Async(p, (unsigned char)seed, 4096, s));
	row.srcDevice = p;
	for (i = 0; i < rounds; i++) {
		CHECK(cuMemAllocAsync(&q, 1024, s));
		CHECK(cuMemsetD8Async(q, (unsigned char)i, 1024, s));
		launch_mix(p, 4096, s);
		launch_mix(q, 1024, s);
		CHECK(cuMemcpyDtoHAsync_v2(out, q, sizeof out, s));
		CHECK(cuStreamSynchronize(s));
		*result = *result * 31 + sum(out, sizeof out);
		CHECK(cuMemFreeAsync(q, s));
		CHECK(cuStreamSynchronize(s));
		CHECK(cuMemcpy3D_v2(&row));
		*result = *result * 31 + sum(out, sizeof out);
	}
	CHECK(cuMemFree_v2(p));
	CHECK(cuStreamDestroy_v2(s));
	return NULL;
}

struct launching {
	CUdeviceptr p;
	unsigned bytes;
	CUstream s;
};

static void *launches_two(void *arg) {
	const struct launching *l = arg;

	CHECK(cuCtxPushCurrent_v2(context));
	launch_mix(l->p, l->bytes, l->s);
	launch_mix(l->p, l->bytes, l->s);
	return NULL;
}

static int may_end(void) {
	const char *file = getenv("UNTIL");

	return file == NULL || access(file, F_OK) == 0;
}

/* A kernel waits for the host, of which another thread wants to launch more: the library knows the last calls of each
 * thread for 16 streams at most, by their addresses. */
static void spins(void) {
	unsigned char out[16];
	struct launching more;
	CUdeviceptr p, at;
	pthread_t thread;
	CUstream s, t;
	int *flag;
	void *params[] = { &at };

	CHECK(cuMemHostAlloc((void **)&flag, sizeof *flag, 0));
	*flag = 0;
	CHECK(cuMemAlloc_v2(&p, sizeof out));
	CHECK(cuStreamCreate(&s, 1));
	CHECK(cuStreamCreate(&t, 1));
	at = (CUdeviceptr)flag;
	CHECK(cuMemsetD8Async(p, 1, sizeof out, s));
	CHECK(cuStreamSynchronize(s));
	CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
	more = (struct launching){ p, sizeof out, t };
	pthread_create(&thread, NULL, launches_two, &more);
	pthread_join(thread, NULL);
	while (!may_end()) {
		usleep(1000);
	}
	*flag = 1;
	CHECK(cuStreamSynchronize(s));
	CHECK(cuStreamSynchronize(t));
	CHECK(cuMemcpyDtoH_v2(out, p, sizeof out));
	printf("spun %016llx\n", sum(out, sizeof out));
}

static volatile sig_atomic_t terminated;

static void on_term(int number) { terminated = number; }

/* Nothing but launches, one each millisecond at most, and each of them counts.
 * TERM ends it. */
static void counts(int launches) {
	double one = 1, sum_of = 0;
	CUdeviceptr p, q;
	int i;

	CHECK(cuMemAlloc_v2(&p, sizeof one));
	CHECK(cuMemAlloc_v2(&q, sizeof one));
	CHECK(cuMemcpyHtoD_v2(p, &one, sizeof one));
	CHECK(cuMemcpyHtoD_v2(q, &sum_of, sizeof one));
	signal(SIGTERM, on_term);
	for (i = 0; i < launches && !terminated; i++) {
		launch_axpy(q, p, 1, NULL);
		usleep(1000);
	}
	while (!may_end() && !terminated) {
		usleep(1000);
	}
	CHECK(cuMemcpyDtoH_v2(&sum_of, q, sizeof one));
	printf("%s %g\n", terminated ? "terminated at" : "counted", sum_of);
}

/* Nothing but events, which are recorded and waited for all the time. */
static void marks(void) {
	CUevent event;
	CUstream s, t;
	int i;

	CHECK(cuStreamCreate(&s, 1));
	CHECK(cuStreamCreate(&t, 1));
	CHECK(cuEventCreate(&event, 0));
	for (i = 0; i < 1000; i++) {
		CHECK(cuEventRecord(event, s));
		CHECK(cuStreamWaitEvent(t, event, 0));
		usleep(500);
	}
	CHECK(cuStreamSynchronize(t));
	printf("marked\n");
}

static void threads(void) {
	unsigned long long results[THREADS], all = 0;
	pthread_t t[THREADS];
	int i;

	for (i = 0; i < THREADS; i++) {
		results[i] = (unsigned long long)i + 1;
		pthread_create(&t[i], NULL, thread, &results[i]);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		all = all * 31 + results[i];
	}
	printf("threads %016llx\n", all);
}

/* The same range is mapped again and again. */
static void mapped(int round) {
	static const size_t bytes = 2 << 20;
	CUmemAllocationProp prop = { .type = 1, .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemAccessDesc access = { .location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	unsigned char out[512];
	CUdeviceptr at;

	CHECK(cuMemAddressReserve(&at, 2 * bytes, 0, 0, 0));
	CHECK(cuMemCreate(&handle, bytes, &prop, 0));
	CHECK(cuMemMap(at, bytes, 0, handle, 0));
	CHECK(cuMemSetAccess(at, bytes, &access, 1));
	CHECK(cuMemRelease(handle));
	CHECK(cuMemsetD8_v2(at, (unsigned char)round, bytes));
	launch_mix(at, 4096, NULL);
	launch_mix(at, 4096, NULL);
	CHECK(cuMemcpyDtoH_v2(out, at, sizeof out));
	printf("mapped %016llx\n", sum(out, sizeof out));
	CHECK(cuMemUnmap(at, bytes));
	CHECK(cuMemAddressFree(at, 2 * bytes));
}

static volatile int forking = 1;

static void *allocates(void *arg) {
	CUdeviceptr p;

	CHECK(cuCtxPushCurrent_v2(context));
	while (forking) {
		CHECK(cuMemAlloc_v2(&p, 4096));
		CHECK(cuMemsetD8_v2(p, 1, 4096));
		CHECK(cuMemFree_v2(p));
	}
	return arg;
}

/* Children call while threads of their parent did so, too. */
static void forks(void) {
	pthread_t t[THREADS];
	int i, status, bad = 0;

	for (i = 0; i < THREADS; i++) {
		pthread_create(&t[i], NULL, allocates, NULL);
	}
	for (i = 0; i < 300; i++) {
		pid_t child = fork();

		if (child == 0) {
			alarm(5);
			cuMemRelease((CUmemGenericAllocationHandle)-1);
			_exit(0);
		}
		bad += waitpid(child, &status, 0) != child || status != 0;
	}
	forking = 0;
	for (i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
	}
	printf("%d of 300 children have not ended\n", bad);
}

/* Children have all descriptors that their parent had opened for them. */
static void descriptors(void) {
	enum { MANY = 16 };
	int files[MANY], status, lacks = 0, bad = 0, i;
	CUdeviceptr p;

	CHECK(cuMemAlloc_v2(&p, 64));
	launch_mix(p, 64, NULL);
	while (!may_end()) {
		for (i = 0; i < MANY; i++) {
			files[i] = dup(1);
		}
		pid_t child = fork();

		if (child == 0) {
			for (i = 0; i < MANY; i++) {
				lacks |= close(files[i]) != 0;
			}
			_exit(lacks);
		}
		bad += child < 0 || waitpid(child, &status, 0) != child || status != 0;
		for (i = 0; i < MANY; i++) {
			close(files[i]);
		}
	}
	printf("%d children lack a descriptor\n", bad);
}

static _Atomic int looking = 1;

static void *looks(void *arg) {
	CUstream own;
	CUevent event;

	CHECK(cuCtxPushCurrent_v2(context));
	CHECK(cuStreamCreate(&own, 1));
	CHECK(cuEventCreate(&event, 0));
	while (looking) {
		CHECK(cuStreamQuery(own));
		CHECK(cuEventQuery(event));
		CHECK(cuEventSynchronize(event));
		CHECK(cuStreamSynchronize(own));
		usleep(100); /* there may be one core */
	}
	return arg;
}

/* Calls that no other call of its thread waits in front of. */
static void *asks(void *arg) {
	size_t free_bytes, bytes;
	char name[100];

	CHECK(cuCtxPushCurrent_v2(context));
	while (looking) {
		CHECK(cuMemGetInfo_v2(&free_bytes, &bytes));
		CHECK(cuDeviceGetName(name, sizeof name, 0));
		usleep(100);
	}
	return arg;
}

/* Whether the process is registered for the kernel's barrier, which takes time
 * where it has threads. */
static void barrier(void) {
	printf("registered: %d\n", syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
}

static void table(void) {
	const void *const *t;

	CHECK(cuGetExportTable((const void **)&t, "0123456789abcdef"));
	printf("table %s\n", (const char *)t[1]);
}

/* lingers launches kernels whose results nobody needs. */
static void lingers(CUstream s) {
	CUdeviceptr p;

	if (may_end()) {
		return;
	}
	CHECK(cuMemAlloc_v2(&p, 64));
	while (!may_end()) {
		launch_mix(p, 64, s);
		CHECK(cuStreamSynchronize(s));
		usleep(1000);
	}
	CHECK(cuMemFree_v2(p));
}

int main(int argc, char **argv) {
	int rounds = argc > 1 ? atoi(argv[1]) : 6, plain = argc > 2 && strcmp(argv[2], "plain") == 0, i, device;
	unsigned char line[840], *image = line;
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = 10, .Height = 7, .Depth = 3, .Format = 0x20, .NumChannels = 1 };
	CUdeviceptr x, y, pitched, managed, factor;
	size_t pitch, factor_bytes;
	double host[N], half = 0.5;
	CUstream s, t;
	CUgraphExec exec;
	CUmodule module;
	CUevent event;
	CUarray array;
	CUgraph graph;
	pthread_t looker, asker;
	char name[64];
	void *pinned;

	start();
	if (argc > 1 && strcmp(argv[1], "init") == 0) {
		printf("init %d\n", cuInit(0));
		return 0;
	}
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDeviceGetName(name, sizeof name, device));
	printf("%s\n", name);
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxPushCurrent_v2(context));
	CHECK(cuModuleLoadData(&module, "fake module"));
	CHECK(cuModuleGetFunction(&axpy, module, "axpy"));
	CHECK(cuModuleGetFunction(&mix, module, "mix"));
	CHECK(cuModuleGetFunction(&fill, module, "fill"));
	CHECK(cuModuleGetFunction(&spin, module, "spin"));
	if (argc > 1 && strcmp(argv[1], "spin") == 0) {
		spins();
		return 0;
	}
	if (argc > 1 && strcmp(argv[1], "count") == 0) {
		counts(argc > 2 ? atoi(argv[2]) : 3000);
		return 0;
	}
	if (argc > 1 && strcmp(argv[1], "marks") == 0) {
		marks();
		return 0;
	}
	if (argc > 1 && strcmp(argv[1], "fork") == 0) {
		forks();
		return 0;
	}
	if (argc > 1 && strcmp(argv[1], "descriptors") == 0) {
		descriptors();
		return 0;
	}
	if (argc > 1 && strcmp(argv[1], "table") == 0) {
		table();
		return 0;
	}
	if (argc > 1 && strcmp(argv[1], "barrier") == 0) {
		barrier();
		return 0;
	}
	CHECK(cuModuleGetGlobal_v2(&factor, &factor_bytes, module, "factor"));
	CHECK(cuMemcpyHtoD_v2(factor, &half, sizeof half));
	CHECK(cuMemAlloc_v2(&x, sizeof host));
	CHECK(cuMemAlloc_v2(&y, sizeof host));
	CHECK(cuMemAllocPitch_v2(&pitched, &pitch, 100, 20, 4));
	CHECK(plain ? cuMemAlloc_v2(&managed, 4096) : cuMemAllocManaged(&managed, 4096, 1));
	CHECK(cuMemHostAlloc(&pinned, sizeof host, 0));
	CHECK(cuArray3DCreate_v2(&array, &d));
	CHECK(cuStreamCreate(&s, 1));
	CHECK(cuStreamCreate(&t, 1));
	CHECK(cuEventCreate(&event, 0));
	for (i = 0; i < N; i++) {
		host[i] = i % 97;
	}
	memset(line, 7, sizeof line);
	copy_array(array, image, 1);
	CHECK(cuMemcpyHtoD_v2(x, host, sizeof host));
	CHECK(cuMemsetD8_v2(y, 0, sizeof host));
	CHECK(cuMemsetD8_v2(pitched, 3, pitch * 20));
	CHECK(cuMemsetD8_v2(managed, 5, 4096));
	CHECK(cuStreamBeginCapture_v2(s, 0));
	launch_axpy(y, x, N, s);
	launch_mix(pitched, (unsigned)(pitch * 20), s);
	CHECK(cuStreamEndCapture(s, &graph));
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(plain && (pthread_create(&looker, NULL, looks, NULL) != 0 || pthread_create(&asker, NULL, asks, NULL) != 0));
	for (i = 0; i < rounds; i++) {
		if (i == rounds - 1) {
			lingers(s);
		}
		launch_axpy(y, x, N, s);
		launch_axpy(x, y, N / 2, s);
		launch_mix(x + sizeof host, 0, s); /* an empty range, at the end of the memory */
		by_kernels(y, s);
		CHECK(cuEventRecord(event, s));
		CHECK(cuStreamWaitEvent(t, event, 0));
		launch_mix(managed, 4096, t);
		CHECK(cuGraphLaunch(exec, s));
		CHECK(cuMemcpyDtoHAsync_v2(pinned, y, sizeof host, s));
		CHECK(cuStreamSynchronize(s));
		printf("round %016llx", sum(pinned, sizeof host));
		copy_array(array, image, 0);
		image[i % (int)sizeof line] ^= (unsigned char)(i + 1);
		copy_array(array, image, 1);
		printf(" array %016llx\n", sum(image, sizeof line));
		mapped(i);
		threads();
		fflush(stdout);
	}
	looking = 0;
	CHECK(plain && (pthread_join(looker, NULL) != 0 || pthread_join(asker, NULL) != 0));
	CHECK(cuMemcpyDtoH_v2(host, pitched, pitch * 20));
	CHECK(cuCtxSynchronize());
	printf("pitched %016llx", sum(host, pitch * 20));
	CHECK(cuMemcpyDtoH_v2(host, managed, 4096));
	printf(" managed %016llx\n", sum(host, 4096));
	if (argc > 2 && !plain) {
		return 0; /* leaves its memory to the ledger's list */
	}
	CHECK(cuMemFree_v2(x));
	CHECK(cuMemFree_v2(y));
	CHECK(cuMemFree_v2(pitched));
	CHECK(cuMemFree_v2(managed));
	CHECK(cuMemFreeHost(pinned));
	CHECK(cuArrayDestroy(array));
	CHECK(cuModuleUnload(module));
	CHECK(cuDevicePrimaryCtxRelease_v2(device));
	return 0;
}
