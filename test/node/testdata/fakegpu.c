/* fakegpu is a driver for tests without a GPU: what device.c, shadow.c and libholdfast call of CUDA's, or, with
 * FAKE_HIP, of HIP's. Its memory faults when the host touches it. What is asked of a stream is done when somebody
 * synchronizes. Copies of shadows wait, or fail, as a test wants. FAKE_UNUSED is how many bytes of memory it says that
 * it has, FAKE_PIECES how many pieces it really has. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST = 16 };

static pthread_mutex_t mu = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* guards memory and what is counted */

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
static _Thread_local void *current[MOST];
static _Thread_local int depth;

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int mode, waiting, early, streams;

enum { GO, HOLD, FAIL };

static int find(uintptr_t p, size_t bytes)
{
    int i, found = -1;

    pthread_mutex_lock(&mu);
    for (i = 0; i < MOST; i++)
        if (memory[i].at != NULL && p >= (uintptr_t)memory[i].at &&
            p + bytes <= (uintptr_t)memory[i].at + memory[i].bytes)
            found = i;
    pthread_mutex_unlock(&mu);
    return found;
}

static int touch(uintptr_t device, void *to, const void *from, size_t bytes)
{
    int i = find(device, bytes);

    int err = 1;

    pthread_mutex_lock(&mu);
    if (i >= 0 && depth > 0 && mprotect(memory[i].at, memory[i].bytes, PROT_READ | PROT_WRITE) == 0) {
        memcpy(to, from, bytes);
        err = mprotect(memory[i].at, memory[i].bytes, PROT_NONE) != 0;
    }
    pthread_mutex_unlock(&mu);
    return err;
}

static int on_device(uintptr_t to, uintptr_t from, size_t bytes)
{
    void *by = malloc(bytes);
    int err;

    pthread_mutex_lock(&mu);
    early += waiting;
    pthread_mutex_unlock(&mu);
    err = touch(from, by, (void *)from, bytes) != 0 || touch(to, (void *)to, by, bytes) != 0;
    free(by);
    return err;
}

static int open_stream(void **s, unsigned flags)
{
    pthread_mutex_lock(&mu);
    streams++;
    pthread_mutex_unlock(&mu);
    *s = &streams;
    return flags != 1;
}

static int close_stream(void *s)
{
    pthread_mutex_lock(&mu);
    streams--;
    pthread_mutex_unlock(&mu);
    return s != &streams;
}

static int to_host_by(void *to, uintptr_t from, size_t bytes, void *stream)
{
    int fails;

    pthread_mutex_lock(&mu);
    waiting++;
    pthread_cond_broadcast(&changed);
    while (mode == HOLD)
        pthread_cond_wait(&changed, &mu);
    waiting--;
    fails = mode == FAIL;
    pthread_mutex_unlock(&mu);
    return fails || stream != &streams || touch(from, to, (void *)from, bytes) != 0;
}

static int release(uintptr_t p)
{
    int i = find(p, 1), err = 1;

    pthread_mutex_lock(&mu);
    if (i >= 0 && (uintptr_t)memory[i].at == p) {
        err = munmap(memory[i].at, memory[i].bytes);
        memory[i].at = NULL;
    }
    pthread_mutex_unlock(&mu);
    return err;
}

static int unused(size_t *bytes, size_t *all)
{
    const char *said = getenv("FAKE_UNUSED");

    *all = (size_t)1 << 30;
    *bytes = said != NULL ? strtoul(said, NULL, 10) : *all;
    return depth == 0;
}

static int capture_mode(int *now)
{
    const int err = *now != 2;

    *now = 0;
    return err;
}

/* For the test: copies of shadows go on, wait, or fail from now on. */
int fakegpu_copies(int now)
{
    pthread_mutex_lock(&mu);
    mode = now;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
    return 0;
}

/* For the test: returns when a copy waits. */
int fakegpu_await(void)
{
    pthread_mutex_lock(&mu);
    while (waiting == 0)
        pthread_cond_wait(&changed, &mu);
    pthread_mutex_unlock(&mu);
    return 0;
}

/* For the test: how many copies to a shadow have come while one waited to be brought to the host. */
int fakegpu_early(void) { return early; }

/* For the test: how many pieces of memory and streams there are. */
int fakegpu_pieces(void)
{
    int i, n;

    pthread_mutex_lock(&mu);
    for (i = 0, n = streams; i < MOST; i++)
        n += memory[i].at != NULL;
    pthread_mutex_unlock(&mu);
    return n;
}

static int allocate(uintptr_t *p, size_t bytes)
{
    const char *said = getenv("FAKE_PIECES");
    const int most = said != NULL ? atoi(said) : MOST;
    int i;

    pthread_mutex_lock(&mu);
    for (i = 0; i < most && memory[i].at != NULL; i++)
        continue;
    if (i < most) {
        memory[i].at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memory[i].bytes = bytes;
        *p = (uintptr_t)memory[i].at;
    }
    pthread_mutex_unlock(&mu);
    return i == most ? 2 : 0;
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

static _Thread_local int device;

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
int hipMemGetInfo(size_t *bytes, size_t *all) { return unused(bytes, all); }
int hipFree(uintptr_t p) { return release(p); }
int hipMemcpyDtoD(uintptr_t to, uintptr_t from, size_t bytes) { return on_device(to, from, bytes); }
int hipStreamCreateWithFlags(void **s, unsigned flags) { return open_stream(s, flags); }
int hipStreamDestroy(void *s) { return close_stream(s); }
int hipStreamSynchronize(void *s) { return s != &streams; }
int hipMemcpyDtoHAsync(void *to, uintptr_t from, size_t bytes, void *s) { return to_host_by(to, from, bytes, s); }
int hipThreadExchangeStreamCaptureMode(int *now) { return capture_mode(now); }
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
    return open_stream(s, flags);
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
int cuMemGetInfo_v2(size_t *bytes, size_t *all) { return unused(bytes, all); }
int cuMemFree_v2(uintptr_t p) { return release(p); }
int cuMemcpyDtoD_v2(uintptr_t to, uintptr_t from, size_t bytes) { return on_device(to, from, bytes); }
int cuStreamDestroy_v2(void *s) { return close_stream(s); }
int cuStreamSynchronize(void *s) { return s != &streams; }
int cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, size_t bytes, void *s) { return to_host_by(to, from, bytes, s); }
int cuThreadExchangeStreamCaptureMode(int *now) { return capture_mode(now); }
int cuCtxGetCurrent(void **c)
{
    *c = depth > 0 ? current[depth - 1] : NULL;
    return 0;
}
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
