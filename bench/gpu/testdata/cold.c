/* A CUDA driver and compiler whose kernels do nothing, to measure the layers above a driver: its launch walks through
   64 KiB of code and 256 KiB of data, and so leaves as little of its caller in the processor's caches as a real one
   does. It is no device: kernels compute nothing. As CUDA:

       cc -O1 -shared -fPIC -o libcuda.so.1 cold.c && cp libcuda.so.1 libnvrtc.so.13
       LD_LIBRARY_PATH=$PWD XDG_CACHE_HOME=$PWD holdfast bench gpu --device cuda --gib 0.01

   Its device is called "Cold". The directory of the cache keeps its "compiled" programs from those of a real one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uintptr_t hnd;
typedef uint64_t dptr;

/* 512 functions at distances of 128 bytes, each with 512 bytes of the data */
static uint64_t data[512 * 64] __attribute__((aligned(4096)));

#define STEP(n)                                                                                        \
	__attribute__((noinline, aligned(128))) static uint64_t step##n(uint64_t x) {                      \
		uint64_t *p = data + (0##n) * 64;                                                              \
		x += p[0]; p[8] = x * 0x9E3779B97F4A7C15u; x ^= p[16] >> 3; x += (0##n * 7919u + 13) * x;      \
		p[24] += x; x ^= x >> 31; p[32] ^= x + 0##n * 104729u; return x ^ p[40];                       \
	}
#define NAME(n) step##n,
#define EIGHT(m, n) m(n##0) m(n##1) m(n##2) m(n##3) m(n##4) m(n##5) m(n##6) m(n##7)
#define HALF(m, n) EIGHT(m, n##0) EIGHT(m, n##1) EIGHT(m, n##2) EIGHT(m, n##3)
#define FULL(m, n) HALF(m, n) EIGHT(m, n##4) EIGHT(m, n##5) EIGHT(m, n##6) EIGHT(m, n##7)
#define ALL(m) FULL(m, 0) FULL(m, 1) FULL(m, 2) FULL(m, 3) FULL(m, 4) FULL(m, 5) FULL(m, 6) FULL(m, 7)
ALL(STEP)
static uint64_t (*const steps[])(uint64_t) = { ALL(NAME) };
static volatile uint64_t sink;

int cuLaunchKernel(hnd f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
	hnd s, void **params, void **extra) {
	uint64_t x = *(uint64_t *)params[0] + *(uint32_t *)params[1] + gx;
	for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) x = steps[i](x);
	sink = x;
	return 0;
}

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuGetErrorName(int rc, const char **s) { *s = "error"; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, "Cold", n); return 0; }
int cuDeviceTotalMem_v2(size_t *n, int d) { *n = 1ull << 34; return 0; }
int cuDeviceGetAttribute(int *v, int what, int d) {
	*v = what == 75 ? 9 : what == 76 || what == 18 ? 0 : 49152;
	return 0;
}
int cuDeviceGetUuid_v2(unsigned char *u, int d) { memset(u, 1, 16); return 0; }
int cuDeviceGetPCIBusId(char *s, int n, int d) { strncpy(s, "0000:01:00.0", n); return 0; }
int cuDevicePrimaryCtxRetain(hnd *c, int d) { *c = 1; return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
static __thread hnd current;
int cuCtxSetCurrent(hnd c) { current = c; return 0; }
int cuCtxGetCurrent(hnd *c) { *c = current; return 0; }
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuCtxGetStreamPriorityRange(int *a, int *b) { *a = *b = 0; return 0; }
int cuMemGetInfo_v2(size_t *left, size_t *all) { *left = *all = 1ull << 34; return 0; }
int cuMemAlloc_v2(dptr *p, size_t n) { *p = (dptr)malloc(n); return *p ? 0 : 2; }
int cuMemFree_v2(dptr p) { free((void *)p); return 0; }
int cuMemHostAlloc(void **p, size_t n, unsigned flags) {
	*p = aligned_alloc(4096, (n + 4095) & ~4095ul);
	return *p ? 0 : 2;
}
int cuMemFreeHost(void *p) { free(p); return 0; }
int cuMemcpyHtoDAsync_v2(dptr d, const void *p, size_t n, hnd s) { memcpy((void *)d, p, n); return 0; }
int cuMemcpyDtoHAsync_v2(void *p, dptr d, size_t n, hnd s) { memcpy(p, (void *)d, n); return 0; }
int cuMemcpyDtoDAsync_v2(dptr d, dptr p, size_t n, hnd s) { memmove((void *)d, (void *)p, n); return 0; }
int cuStreamCreateWithPriority(hnd *s, unsigned flags, int p) { *s = (hnd)malloc(8); return 0; }
int cuStreamDestroy_v2(hnd s) { free((void *)s); return 0; }
int cuStreamSynchronize(hnd s) { return 0; }
int cuStreamWaitEvent(hnd s, hnd e, unsigned flags) { return 0; }
int cuEventCreate(hnd *e, unsigned flags) { *e = (hnd)malloc(8); return 0; }
int cuEventDestroy_v2(hnd e) { free((void *)e); return 0; }
int cuEventRecord(hnd e, hnd s) { return 0; }
int cuEventSynchronize(hnd e) { return 0; }
int cuEventQuery(hnd e) { return 0; }
int cuModuleLoadDataEx(hnd *m, const void *image, unsigned n, int *o, void **v) { *m = 1; return 0; }
int cuModuleUnload(hnd m) { return 0; }
int cuModuleGetFunction(hnd *f, hnd m, const char *name) { *f = 1; return 0; }
int cuModuleGetGlobal_v2(dptr *p, size_t *n, hnd m, const char *name) { return 500; }
int cuFuncGetParamInfo(hnd f, size_t i, size_t *off, size_t *n) { *off = 8 * i; *n = i ? 4 : 8; return i > 1; }
int cuFuncGetAttribute(int *v, int what, hnd f) { *v = 1024; return 0; }
int cuFuncSetAttribute(hnd f, int what, int v) { return 0; }

/* The "compiler"'s result for every program: the kernel of holdfast bench gpu. */
static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry busy(.param .u64 busy_param_0, .param .u32 busy_param_1){ret;}\n";
int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }
int nvrtcCreateProgram(hnd *p, const char *s, const char *name, int n, const char *const *h, const char *const *i) {
	*p = 1;
	return 0;
}
int nvrtcDestroyProgram(hnd *p) { return 0; }
int nvrtcCompileProgram(hnd p, int n, const char *const *options) { return 0; }
int nvrtcGetPTXSize(hnd p, size_t *n) { *n = sizeof ptx; return 0; }
int nvrtcGetPTX(hnd p, char *b) { memcpy(b, ptx, sizeof ptx); return 0; }
int nvrtcGetCUBINSize(hnd p, size_t *n) { *n = sizeof ptx; return 0; }
int nvrtcGetCUBIN(hnd p, char *b) { memcpy(b, ptx, sizeof ptx); return 0; }
int nvrtcGetProgramLogSize(hnd p, size_t *n) { *n = 1; return 0; }
int nvrtcGetProgramLog(hnd p, char *b) { *b = 0; return 0; }
