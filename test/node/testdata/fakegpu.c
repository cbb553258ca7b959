/* fakegpu is a driver for tests without a GPU: what device.c and libholdfast call of CUDA's, or, with FAKE_HIP, of
 * HIP's. Its memory faults when the host touches it. What is asked of a stream is done when somebody synchronizes. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST = 16 };

static struct {
    char *at;
    size_t bytes;
} memory[MOST], locked[MOST];

static struct {
    void *at;
    uint32_t value;
    size_t n;
} asked[MOST];

static int nasked;
static int context; /* of which the address is one */
static void *current[MOST];
static int depth;

static int find(uintptr_t p, size_t bytes)
{
    int i;

    for (i = 0; i < MOST; i++)
        if (memory[i].at != NULL && p >= (uintptr_t)memory[i].at &&
            p + bytes <= (uintptr_t)memory[i].at + memory[i].bytes)
            return i;
    return -1;
}

static int touch(uintptr_t device, void *to, const void *from, size_t bytes)
{
    int i = find(device, bytes);

    if (i < 0 || depth == 0 || mprotect(memory[i].at, memory[i].bytes, PROT_READ | PROT_WRITE) != 0)
        return 1;
    memcpy(to, from, bytes);
    return mprotect(memory[i].at, memory[i].bytes, PROT_NONE) != 0;
}

static int allocate(uintptr_t *p, size_t bytes)
{
    int i;

    for (i = 0; i < MOST && memory[i].at != NULL; i++)
        continue;
    if (i == MOST)
        return 2;
    memory[i].at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory[i].bytes = bytes;
    *p = (uintptr_t)memory[i].at;
    return 0;
}

static int ask(uintptr_t p, uint32_t value, size_t n)
{
    if (nasked == MOST || find(p, n * 4) < 0)
        return 1;
    asked[nasked].at = (void *)p;
    asked[nasked].value = value;
    asked[nasked++].n = n;
    return 0;
}

static int do_all(void)
{
    int i;

    if (depth == 0)
        return 201;
    for (i = 0; i < nasked; i++) {
        uint32_t *values = malloc(asked[i].n * 4);
        size_t k;
        for (k = 0; k < asked[i].n; k++)
            values[k] = asked[i].value;
        if (touch((uintptr_t)asked[i].at, asked[i].at, values, asked[i].n * 4) != 0)
            return 1;
        free(values);
    }
    nasked = 0;
    return 0;
}

static int lock_host(void *p, size_t bytes)
{
    int i;

    for (i = 0; i < MOST && locked[i].at != NULL; i++)
        continue;
    if (i == MOST || depth == 0)
        return 1;
    locked[i].at = p;
    locked[i].bytes = bytes;
    return 0;
}

static int unlock_host(void *p)
{
    int i;

    for (i = 0; i < MOST; i++)
        if (locked[i].at == p) {
            locked[i].at = NULL;
            return 0;
        }
    return 1;
}

/* For the test: how many ranges are locked. */
int fakegpu_locked(void)
{
    int i, n = 0;

    for (i = 0; i < MOST; i++)
        n += locked[i].at != NULL;
    return n;
}

#ifdef FAKE_HIP

static int device;

int hipInit(unsigned flags) { return flags != 0; }
int hipSetDevice(int d)
{
    device = d;
    depth = 1;
    return 0;
}
int hipGetDevice(int *d)
{
    *d = device;
    return 0;
}
int hipMalloc(uintptr_t *p, size_t bytes) { return allocate(p, bytes); }
int hipMemsetD32Async(uintptr_t p, int value, size_t n, void *stream)
{
    (void)stream;
    return ask(p, (uint32_t)value, n);
}
int hipDeviceSynchronize(void) { return device == 0 ? do_all() : 1; }
int hipMemcpyDtoH(void *to, uintptr_t from, size_t bytes) { return touch(from, to, (void *)from, bytes); }
int hipMemcpyHtoD(uintptr_t to, const void *from, size_t bytes) { return touch(to, (void *)to, from, bytes); }
int hipHostRegister(void *p, size_t bytes, unsigned flags) { return flags != 1 || lock_host(p, bytes); }
int hipHostUnregister(void *p) { return unlock_host(p); }
int hipPointerGetAttribute(void *data, int attribute, uintptr_t p)
{
    if (find(p, 1) < 0)
        return 1;
    if (attribute == 3)
        *(void **)data = (void *)p;
    else if (attribute == 4)
        *(void **)data = NULL;
    else if (attribute == 9)
        *(int *)data = 0;
    else
        return 1;
    return 0;
}

#else

int cuInit(unsigned flags) { return flags != 0; }
int cuDeviceGet(int *d, int n)
{
    *d = n;
    return n != 0;
}
int cuDevicePrimaryCtxRetain(void **c, int d)
{
    *c = &context;
    return d != 0;
}
int cuCtxPushCurrent_v2(void *c)
{
    if (c != &context || depth == MOST)
        return 201;
    current[depth++] = c;
    return 0;
}
int cuCtxPopCurrent_v2(void **c)
{
    if (depth == 0)
        return 201;
    *c = current[--depth];
    return 0;
}
int cuStreamCreate(void **s, unsigned flags)
{
    *s = &context;
    return flags != 1;
}
int cuMemAlloc_v2(uintptr_t *p, size_t bytes) { return allocate(p, bytes); }
int cuMemsetD32Async(uintptr_t p, unsigned value, size_t n, void *stream)
{
    (void)stream;
    return ask(p, value, n);
}
int cuCtxSynchronize(void) { return do_all(); }
int cuMemcpyDtoH_v2(void *to, uintptr_t from, size_t bytes) { return touch(from, to, (void *)from, bytes); }
int cuMemcpyHtoD_v2(uintptr_t to, const void *from, size_t bytes) { return touch(to, (void *)to, from, bytes); }
int cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags) { return flags != 1 || lock_host(p, bytes); }
int cuMemHostUnregister(void *p) { return unlock_host(p); }
int cuPointerGetAttribute(void *data, int attribute, uintptr_t p)
{
    if (find(p, 1) < 0)
        return 1;
    if (attribute == 1)
        *(void **)data = &context;
    else if (attribute == 2)
        *(unsigned *)data = 2;
    else if (attribute == 8)
        *(unsigned *)data = 0;
    else
        return 1;
    return 0;
}

#endif
