/* global is a program without MPI whose state is global arrays, divided in each of the ways that there are, and
 * replicated values, so that any number of ranks continues it.
 * usage: global STEPS [stop-at STEP | kill-at STEP | hole STEP | differs STEP]
 * Every element has a value that depends on its place and the step alone; the program checks all that it has in each
 * step, and that ghosts, and memory in no box, are left alone by a restore. With PLAIN in
 * the environment it protects a value per rank, too; with DEVICE some arrays are on a device of the driver for
 * tests. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <holdfast.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAYS = 6, MOST = 4000, BOXES = 8, NOTE = 100000 };

struct array {
    int dims;
    int64_t size[HF_MAX_DIMS];
    hf_box box[BOXES];
    int boxes;
    double *at;  /* host memory, or a device's */
    double *mem; /* as the host has it */
    size_t n;
};

static int ranks, rank;
static int (*to_device)(unsigned long long device, const void *host, size_t bytes);
static int (*to_host)(void *host, unsigned long long device, size_t bytes);

static int check(int code)
{
    if (code < 0) {
        fprintf(stderr, "global: code %d: %s\n", code, hf_error());
        exit(3);
    }
    return code;
}

static void fail(const char *what, int which, int64_t at)
{
    fprintf(stderr, "global: rank %d, array %d: %s at %lld\n", rank, which, what, (long long)at);
    exit(4);
}

static double value(int which, const int64_t *point, int dims, int step)
{
    double v = which * 1000 + step * 7;
    int d;

    for (d = 0; d < dims; d++)
        v = v * 31 + (double)point[d];
    return v;
}

/* Lengths in memory, ghosts included, and how many elements that is. */
static int64_t lengths(const struct array *a, const hf_box *b, int64_t *whole)
{
    int64_t n = 1;
    int d;

    for (d = 0; d < a->dims; d++) {
        whole[d] = b->pitch[d] != 0 ? b->pitch[d] : b->low[d] + b->count[d] + b->high[d];
        n *= whole[d];
    }
    return n;
}

/* Index i of a box along a dimension, in the global array. */
static int64_t global_index(const hf_box *b, int d, int64_t i)
{
    return b->start[d] + (b->block[d] > 0 ? i / b->block[d] * b->stride[d] + i % b->block[d] : i);
}

/* Sets or checks what the rank owns. */
static void each(struct array *a, int which, int step, int set)
{
    unsigned char owned[MOST] = {0};
    int k;
    size_t m;

    if (a->at != a->mem && to_host(a->mem, (unsigned long long)(uintptr_t)a->at, a->n * sizeof(double)) != 0)
        fail("copy from the device", which, 0);
    for (k = 0; k < a->boxes; k++) {
        const hf_box *b = &a->box[k];
        int64_t whole[HF_MAX_DIMS], i[HF_MAX_DIMS] = {0}, point[HF_MAX_DIMS], at;
        int d;
        lengths(a, b, whole);
        for (;;) {
            for (at = 0, d = 0; d < a->dims; d++) {
                at = at * whole[d] + b->low[d] + i[d];
                point[d] = global_index(b, d, i[d]);
            }
            at += b->offset;
            owned[at] = 1;
            if (set)
                a->mem[at] = value(which, point, a->dims, step);
            else if (a->mem[at] != value(which, point, a->dims, step))
                fail("a wrong value", which, at);
            for (d = a->dims - 1; d >= 0 && ++i[d] == b->count[d]; d--)
                i[d] = 0;
            if (d < 0)
                break;
        }
    }
    for (m = 0; m < a->n; m++)
        if (!owned[m] && a->mem[m] != -1)
            fail("memory that is in no box has changed", which, (int64_t)m);
    if (set && a->at != a->mem && to_device((unsigned long long)(uintptr_t)a->at, a->mem, a->n * sizeof(double)) != 0)
        fail("copy to the device", which, 0);
}

static void divide(struct array *a)
{
    const int rows[2] = {ranks, 1}, columns[2] = {1, ranks}, line[1] = {ranks}, deep[3] = {1, ranks, 1};
    const int64_t some[2] = {3, 2}, one[1] = {2};
    int64_t runs[16] = {0};
    int r, k;

    a[0] = (struct array){.dims = 2, .size = {13, 4}};
    a[0].boxes = check(hf_block(2, a[0].size, rows, rank, a[0].box));
    a[1] = (struct array){.dims = 2, .size = {5, 11}};
    a[1].boxes = check(hf_block(2, a[1].size, columns, rank, a[1].box));
    for (k = 0; k < 2; k++)
        a[1].box[0].low[k] = a[1].box[0].high[k] = 2 - k;
    a[2] = (struct array){.dims = 2, .size = {17, 19}};
    a[2].boxes = check(hf_block_cyclic(2, a[2].size, columns, some, rank, a[2].box));
    a[3] = (struct array){.dims = 1, .size = {29}};
    a[3].boxes = check(hf_block_cyclic(1, a[3].size, line, one, rank, a[3].box));
    a[4] = (struct array){.dims = 3, .size = {3, 4, 2}}; /* columns of a larger memory, in two halves */
    a[4].boxes = check(hf_block(3, a[4].size, deep, rank, a[4].box));
    if (a[4].boxes == 1) {
        a[4].box[1] = a[4].box[0];
        a[4].box[0].count[2] = a[4].box[1].count[2] = a[4].box[1].start[2] = 1;
        a[4].box[0].pitch[2] = a[4].box[1].pitch[2] = 7;
        a[4].box[1].offset = 3;
        a[4].boxes = 2;
    }
    for (r = 0; r < 40; r++)
        runs[r * r % ranks]++;
    a[5] = (struct array){.dims = 1};
    a[5].boxes = check(hf_variable(runs, ranks, rank, a[5].size, a[5].box));
}

int main(int argc, char **argv)
{
    static struct array a[ARRAYS];
    static char note[NOTE];
    const char *mode = argc > 2 ? argv[2] : "";
    const int steps = atoi(argv[1]), when = argc > 3 ? atoi(argv[3]) : -1;
    int32_t step = 0;
    int (*allocate)(unsigned long long *device, size_t bytes) = NULL;
    int k, first, code = 0;

    rank = atoi(getenv("PMI_RANK"));
    ranks = atoi(getenv("PMI_SIZE"));
    if (getenv("DEVICE") != NULL) {
        void *so = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
        if (so == NULL || ((int (*)(unsigned))dlsym(so, "cuInit"))(0) != 0 ||
            ((int (*)(void **, int))dlsym(so, "cuDevicePrimaryCtxRetain"))(&context, 0) != 0 ||
            ((int (*)(void *))dlsym(so, "cuCtxPushCurrent_v2"))(context) != 0)
            return 5;
        allocate = (int (*)(unsigned long long *, size_t))dlsym(so, "cuMemAlloc_v2");
        to_device = (int (*)(unsigned long long, const void *, size_t))dlsym(so, "cuMemcpyHtoD_v2");
        to_host = (int (*)(void *, unsigned long long, size_t))dlsym(so, "cuMemcpyDtoH_v2");
    }
    check(hf_elastic());
    check(hf_init(NULL));
    divide(a);
    for (k = 0; k < ARRAYS; k++) {
        size_t m;
        a[k].n = 3; /* a little more than the boxes take */
        for (m = 0; m < (size_t)a[k].boxes; m++) {
            int64_t whole[HF_MAX_DIMS];
            a[k].n += (size_t)(lengths(&a[k], &a[k].box[m], whole) + a[k].box[m].offset);
        }
        a[k].at = a[k].mem = malloc(a[k].n * sizeof(double));
        for (m = 0; m < a[k].n; m++)
            a[k].mem[m] = -1;
        if (allocate != NULL && k % 2 == 1) {
            unsigned long long device = 0;
            if (allocate(&device, a[k].n * sizeof(double)) != 0 ||
                to_device(device, a[k].mem, a[k].n * sizeof(double)) != 0)
                return 6;
            a[k].at = (double *)(uintptr_t)device;
        }
    }
    for (k = 0; k < ARRAYS; k++) {
        const char name[] = {'u', (char)('0' + k), 0};
        check(hf_protect_global(name, a[k].at, a[k].n, HF_DOUBLE, a[k].dims, a[k].size, a[k].box, (size_t)a[k].boxes));
    }
    check(hf_protect_replicated("step", &step, 1, HF_INT32));
    check(hf_protect_replicated("note", note, NOTE, HF_BYTE));
    if (getenv("PLAIN") != NULL)
        check(hf_protect("own", &rank, 1, HF_INT32));
    code = check(hf_restore());
    first = step;
    printf("rank %d of %d begins at step %d\n", rank, ranks, first);
    fflush(stdout);
    for (k = 0; code == HF_RESTORED && k < NOTE; k++)
        if (note[k] != (char)(k + step))
            fail("a wrong note", -1, k);
    for (k = 0; k < ARRAYS; k++)
        each(&a[k], k, step, code != HF_RESTORED);
    for (code = 0; step < steps;) {
        step++;
        for (k = 0; k < ARRAYS; k++)
            each(&a[k], k, step, 1);
        for (k = 0; k < NOTE; k++)
            note[k] = (char)(k + step);
        if (step == when && strcmp(mode, "hole") == 0 && rank == 1) {
            a[0].box[0].count[0]--;
            check(hf_protect_global("u0", a[0].at, a[0].n, HF_DOUBLE, 2, a[0].size, a[0].box, 1));
        }
        note[7] = (char)(note[7] + (step == when && strcmp(mode, "differs") == 0 && rank == 1));
        if (step == when) {
            code = hf_checkpoint(NULL, 0);
            if (code == HF_OK)
                code = hf_wait(NULL);
            if (code < 0)
                printf("rank %d: %s\n", rank, hf_error());
            else
                printf("rank %d has saved step %d\n", rank, step);
            fflush(stdout);
            if (strcmp(mode, "kill-at") == 0)
                raise(SIGKILL);
            if (strcmp(mode, "stop-at") == 0)
                break;
        }
        if (check(hf_point()) == HF_STOP)
            return 75;
    }
    check(hf_finalize());
    printf("rank %d ends at step %d\n", rank, step);
    return 0;
}
