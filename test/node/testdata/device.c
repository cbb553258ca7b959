/* device protects memory of a GPU, beside memory of the host. The first start has the device change it, takes a
 * checkpoint while that may still be under way, and is killed; the second restores and compares.
 * usage: device cuda|hip VALUES */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <holdfast.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *driver;

static void *call(const char *name)
{
    void *at = dlsym(driver, name);

    if (at == NULL) {
        fprintf(stderr, "device: no %s\n", name);
        exit(2);
    }
    return at;
}

static void want(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "device: %s: %s\n", what, hf_error());
    exit(4);
}

#define WANT(ok) want(ok, #ok)
#define CALL(name, ...) WANT(((int (*)())call(name))(__VA_ARGS__) == 0)

int main(int argc, char **argv)
{
    const int hip = argc > 1 && strcmp(argv[1], "hip") == 0;
    const size_t n = strtoul(argv[2], NULL, 10);
    uint32_t *host = calloc(n, 4);
    uintptr_t at = 0;
    void *stream = NULL, *context = NULL;
    int d = 0, step = 0;
    size_t i;

    WANT(hf_init(NULL) == HF_OK);
    driver = dlopen(hip ? "libamdhip64.so.6" : "libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "device: %s\n", dlerror());
        return 2;
    }
    if (hip) {
        CALL("hipInit", 0u);
        CALL("hipSetDevice", 0);
        CALL("hipMalloc", &at, n * 4);
    } else {
        CALL("cuInit", 0u);
        CALL("cuDeviceGet", &d, 0);
        CALL("cuDevicePrimaryCtxRetain", &context, d);
        CALL("cuCtxPushCurrent_v2", context);
        CALL("cuStreamCreate", &stream, 1u); /* not synchronous with copies */
        CALL("cuMemAlloc_v2", &at, n * 4);
    }
    WANT(hf_protect("step", &step, 1, HF_INT32) == HF_OK);
    WANT(hf_protect("values", (void *)at, n, HF_UINT32) == HF_OK);
    WANT(hf_protect("host", host, n, HF_UINT32) == HF_OK);
    switch (hf_restore()) {
    case HF_RESTORED:
        WANT(step == 7);
        for (i = 0; i < n; i++)
            WANT(host[i] == i);
        memset(host, 0, n * 4);
        CALL(hip ? "hipMemcpyDtoH" : "cuMemcpyDtoH_v2", host, at, n * 4);
        for (i = 0; i < n; i++)
            WANT(host[i] == (i < n / 2 ? 7u : 8u));
        WANT(hf_finalize() == HF_OK);
        if (dlsym(driver, "fakegpu_locked") != NULL)
            CALL("fakegpu_locked"); /* none is left */
        puts("device: the same");
        return 0;
    case HF_OK:
        break;
    default:
        want(0, "hf_restore");
    }
    for (i = 0; i < n; i++)
        host[i] = (uint32_t)i;
    step = 7;
    CALL(hip ? "hipMemsetD32Async" : "cuMemsetD32Async", at, 7u, n, stream);
    CALL(hip ? "hipMemsetD32Async" : "cuMemsetD32Async", at + n / 2 * 4, 8u, n - n / 2, stream);
    WANT(hf_checkpoint(NULL, 0) == HF_OK);
    if (dlsym(driver, "fakegpu_locked") != NULL)
        WANT(((int (*)(void))call("fakegpu_locked"))() > 0);
    WANT(hf_wait(NULL) == HF_OK);
    puts("device: saved");
    fflush(stdout);
    kill(getpid(), SIGKILL);
    return 5;
}
