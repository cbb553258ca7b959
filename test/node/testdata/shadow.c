/* shadow takes checkpoints of device memory that is brought to the host while the program goes on, and is killed. The
 * next start says what it has restored. It stops the device where it wants, if that is the one for tests.
 * usage: shadow cuda|hip VALUES late|kill|fail|again|second|end|direct */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <holdfast.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GO, HOLD, FAIL, ROWS = 40, COLUMNS = 1000, GLOBAL = (ROWS + 2) * (COLUMNS + 2) };

static void *driver;
static int hip;
static atomic_int released;

static void *call(const char *name)
{
    void *at = dlsym(driver, name);

    if (at == NULL) {
        fprintf(stderr, "shadow: no %s\n", name);
        exit(2);
    }
    return at;
}

static void want(int ok, const char *what, int line)
{
    if (ok)
        return;
    fprintf(stderr, "shadow: line %d: %s: %s\n", line, what, hf_error());
    exit(4);
}

#define WANT(ok) want(ok, #ok, __LINE__)
#define CALL(cu, hi, ...) WANT(((int (*)())call(hip ? hi : cu))(__VA_ARGS__) == 0)

/* Calls a function of the device for tests; of a real one nothing happens. */
static int fake(const char *name, int arg)
{
    int (*f)(int) = (int (*)(int))dlsym(driver, name);

    return f != NULL ? f(arg) : 0;
}

static void copies(int mode) { (void)fake("fakegpu_copies", mode); }
static int is_fake(void) { return dlsym(driver, "fakegpu_copies") != NULL; }

static void *stream;

static void fill(uintptr_t at, uint32_t value, size_t n)
{
    CALL("cuMemsetD32Async", "hipMemsetD32Async", at, value, n, stream);
}

static uintptr_t allocate(size_t n)
{
    uintptr_t at = 0;

    CALL("cuMemAlloc_v2", "hipMalloc", &at, n * 4);
    fill(at, 0, n);
    return at;
}

static uintptr_t values, grid;
static size_t n;
static int step;

/* The state of a step: two halves of the values, so that the parts of a copy cannot be taken for each other. */
static void compute(int to)
{
    step = to;
    fill(values, (uint32_t)to, n);
    fill(values + n / 2 * 4, (uint32_t)to + 1, n - n / 2);
    fill(grid, (uint32_t)to + 2, GLOBAL);
}

static void protect(void)
{
    const int64_t size[] = {ROWS, COLUMNS};
    const hf_box box = {.count = {ROWS, COLUMNS}, .low = {1, 1}, .high = {1, 1}};

    WANT(hf_protect("values", (void *)values, n, HF_UINT32) == HF_OK);
    WANT(hf_protect_global("grid", (void *)grid, GLOBAL, HF_UINT32, 2, size, &box, 1) == HF_OK);
}

static void compare(int with_grid)
{
    uint32_t *host = malloc((n > GLOBAL ? n : GLOBAL) * 4);
    size_t i;

    CALL("cuMemcpyDtoH_v2", "hipMemcpyDtoH", host, values, n * 4);
    for (i = 0; i < n; i++)
        WANT(host[i] == (uint32_t)step + (i >= n / 2));
    if (with_grid)
        CALL("cuMemcpyDtoH_v2", "hipMemcpyDtoH", host, grid, (size_t)GLOBAL * 4);
    for (i = 0; with_grid && i < GLOBAL; i++) {
        const size_t row = i / (COLUMNS + 2), column = i % (COLUMNS + 2);
        WANT(host[i] ==
             (row == 0 || row == ROWS + 1 || column == 0 || column == COLUMNS + 1 ? 0 : (uint32_t)step + 2));
    }
    free(host);
}

static void end(void)
{
    printf("shadow: killed\n");
    fflush(stdout);
    kill(getpid(), SIGKILL);
}

/* Lets copies go on when the main thread waits in a system call: for the shadow in futex, for the daemon in recvmsg. */
static void *releaser(void *number)
{
    char name[64], text[32] = "", wanted[32];
    int fd;

    snprintf(name, sizeof name, "/proc/self/task/%ld/syscall", (long)getpid());
    snprintf(wanted, sizeof wanted, "%d ", *(int *)number);
    while (strncmp(text, wanted, strlen(wanted)) != 0) {
        if ((fd = open(name, O_RDONLY)) < 0 || pread(fd, text, sizeof text - 1, 0) <= 0)
            exit(2);
        close(fd);
        sched_yield();
    }
    atomic_store(&released, 1);
    copies(GO);
    return NULL;
}

static void release_in(pthread_t *t, int *number)
{
    WANT(pthread_create(t, NULL, releaser, number) == 0);
}

/* A checkpoint that is on its way when this returns. */
static void begin(int to)
{
    compute(to);
    if (is_fake())
        copies(HOLD);
    WANT(hf_checkpoint(NULL, 0) == HF_OK);
    if (is_fake())
        (void)fake("fakegpu_await", 0);
    if (is_fake())
        WANT(hf_test(NULL) == HF_OK);
}

/* A child cannot call the library, and takes nothing from the thread. */
static void have_child(void)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        _exit(hf_point() == HF_E_ORDER && hf_wait(NULL) == HF_E_ORDER ? 0 : 1);
    WANT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    WANT(system("true") == 0);
}

static void first_start(const char *mode)
{
    int in_futex = SYS_futex, in_recvmsg = SYS_recvmsg;
    pthread_t t;

    if (strcmp(mode, "late") == 0) {
        const int pieces = fake("fakegpu_pieces", 0);
        begin(7);
        have_child();
        compute(20);
        WANT(hf_unprotect("values") == HF_OK);
        CALL("cuMemFree_v2", "hipFree", values);
        values = allocate(n);
        protect();
        compute(30);
        CALL("cuCtxSynchronize", "hipDeviceSynchronize");
        copies(GO);
        WANT(hf_wait(NULL) == HF_OK);
        WANT(fake("fakegpu_pieces", 0) == pieces); /* the shadow is gone */
    } else if (strcmp(mode, "direct") == 0) {
        copies(HOLD); /* none comes */
        compute(7);
        WANT(hf_checkpoint(NULL, 0) == HF_OK && hf_wait(NULL) == HF_OK);
    } else if (strcmp(mode, "second") == 0) {
        const char *const some[] = {"values", "step"};
        begin(7);
        release_in(&t, &in_futex);
        compute(20);
        WANT(hf_checkpoint_some("other", 1, some, 2) == HF_OK);
        WANT(atomic_load(&released) && fake("fakegpu_early", 0) == 0);
        WANT(pthread_join(t, NULL) == 0 && hf_wait(NULL) == HF_OK);
    } else if (strcmp(mode, "end") == 0) {
        const int pieces = fake("fakegpu_pieces", 0);
        begin(7);
        release_in(&t, &in_recvmsg);
        WANT(hf_finalize() == HF_OK);
        WANT(pthread_join(t, NULL) == 0 && fake("fakegpu_pieces", 0) == pieces);
    } else { /* kill, fail, again */
        compute(7);
        WANT(hf_checkpoint(NULL, 0) == HF_OK && hf_wait(NULL) == HF_OK);
        begin(20);
        if (strcmp(mode, "kill") != 0) {
            copies(FAIL);
            WANT(hf_wait(NULL) == HF_E_FAILED && strstr(hf_error(), "device memory") != NULL);
            copies(GO);
        }
        if (strcmp(mode, "again") == 0) {
            compute(11);
            WANT(hf_checkpoint(NULL, 0) == HF_OK && hf_wait(NULL) == HF_OK);
        }
    }
    end();
}

int main(int argc, char **argv)
{
    void *context = NULL;
    int d = 0;

    if (argc != 4)
        return 2;
    hip = strcmp(argv[1], "hip") == 0;
    n = strtoul(argv[2], NULL, 10);
    WANT(hf_init(NULL) == HF_OK);
    driver = dlopen(hip ? "libamdhip64.so.6" : "libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "shadow: %s\n", dlerror());
        return 2;
    }
    CALL("cuInit", "hipInit", 0u);
    if (hip) {
        CALL("", "hipSetDevice", 0);
    } else {
        CALL("cuDeviceGet", "", &d, 0);
        CALL("cuDevicePrimaryCtxRetain", "", &context, d);
        CALL("cuCtxPushCurrent_v2", "", context);
        CALL("cuStreamCreate", "", &stream, 1u); /* not synchronous with copies */
    }
    values = allocate(n);
    grid = allocate(GLOBAL);
    CALL("cuCtxSynchronize", "hipDeviceSynchronize");
    WANT(hf_protect("step", &step, 1, HF_INT32) == HF_OK);
    protect();
    switch (hf_restore()) {
    case HF_RESTORED:
        compare(1);
        printf("shadow: restored %d\n", step);
        if (strcmp(argv[3], "second") == 0) {
            WANT(hf_restart("other", 1) == HF_RESTORED && step == 20);
            compare(0);
        }
        WANT(hf_finalize() == HF_OK);
        WANT(fake("fakegpu_locked", 0) == 0);
        printf("shadow: the same\n");
        return 0;
    case HF_OK:
        first_start(argv[3]);
        return 5;
    default:
        WANT(!"hf_restore");
        return 4;
    }
}
