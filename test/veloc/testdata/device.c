/* device saves a region in memory of a CUDA device in explicit phases: what it had at checkpoint_mem counts, although
 * the device changes it before checkpoint_end. The second start restores it, in phases too.
 * usage: device CONFIG BYTES */
#define VELOC_WITHOUT_MPI
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "veloc.h"

static void *driver;

static void want(int ok, const char *what)
{
    if (ok)
        return;
    printf("device: %s\n", what);
    exit(3);
}

#define WANT(ok) want(ok, #ok)
#define CALL(name, ...) WANT(((int (*)())dlsym(driver, name))(__VA_ARGS__) == 0)

int main(int argc, char **argv)
{
    const size_t n = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    unsigned char *host = malloc(n + 1);
    void *context = NULL, *stream = NULL;
    uintptr_t at = 0;
    size_t i;
    int d = 0, v;

    WANT((driver = dlopen("libcuda.so.1", RTLD_NOW)) != NULL);
    CALL("cuInit", 0u);
    CALL("cuDeviceGet", &d, 0);
    CALL("cuDevicePrimaryCtxRetain", &context, d);
    CALL("cuCtxPushCurrent_v2", context);
    CALL("cuStreamCreate", &stream, 1u); /* which does not wait for others */
    CALL("cuMemAlloc_v2", &at, n);
    memset(host, 1, n);
    CALL("cuMemcpyHtoD_v2", at, host, n);
    WANT(VELOC_Init_single(1, argv[1]) == VELOC_SUCCESS);
    WANT(VELOC_Mem_protect(4, (void *)at, n, 1) == VELOC_SUCCESS);
    v = VELOC_Restart_test("u", 0);
    if (v < 0) {
        CALL("cuMemsetD32Async", at, 0x07070707u, n / 4, stream);
        WANT(VELOC_Checkpoint_begin("u", 5) == VELOC_SUCCESS);
        WANT(VELOC_Checkpoint_mem() == VELOC_SUCCESS);
        CALL("cuMemsetD32Async", at, 0x08080808u, n / 4, stream);
        WANT(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
        puts("device: saved");
    } else {
        WANT(v == 5 && VELOC_Restart_begin("u", 5) == VELOC_SUCCESS);
        WANT(VELOC_Recover_size(4) == (int)n && VELOC_Recover_mem() == VELOC_SUCCESS);
        WANT(VELOC_Restart_end(1) == VELOC_SUCCESS);
        CALL("cuMemcpyDtoH_v2", host, at, n);
        for (i = 0; i < n / 4 * 4; i++)
            want(host[i] == 7, "a byte is another");
        puts("device: the same");
    }
    return VELOC_Finalize(1) != VELOC_SUCCESS;
}
