/* protect.c - a program whose device memory is in its checkpoints by one call.
 * It computes for some steps, and prints sums. At one step it takes a
 * checkpoint and kills itself; started again it goes on from there.
 *
 * usage: protect STEPS KILL-AT MODE, where MODE is
 *   all      as it should be
 *   without  hf_protect_cuda is not called
 *   swapped  started again, two allocations come in the other order
 *   smaller  started again, one allocation is smaller
 *   late     at the first step comes an allocation that lives on
 *   managed, array, pool  one allocation is what no checkpoint can hold
 *   twice    two variables have one name; hf_protect_cuda is called again when
 *            it has said so */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"
#include "holdfast.h"

#define N 3000u
#define CHECK(call)                                             \
	do {                                                        \
		int failed_ = (int)(call);                              \
		if (failed_ != 0) {                                     \
			printf("%s: %d: %s\n", #call, failed_, hf_error()); \
			exit(1);                                            \
		}                                                       \
	} while (0)

static const char *mode;
static int step;
static CUfunction axpy, mix;

static int is(const char *m) { return strcmp(mode, m) == 0; }

static void launch(CUfunction f, CUdeviceptr a, CUdeviceptr b, unsigned n) {
	void *two[] = { &a, &n }, *three[] = { &a, &b, &n };

	CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, f == axpy ? three : two, NULL));
}

/* Device memory that lives from before hf_restore to the end. Addresses of it
 * lie in device memory, too. */
struct state {
	CUdeviceptr x, y, rows, table, factor, late, wrong;
	size_t pitch;
};

static void allocate(struct state *s) {
	const size_t bytes = N * sizeof(double);
	const int swapped = is("swapped") && getenv("AGAIN") != NULL, smaller = is("smaller") && getenv("AGAIN") != NULL;
	CUmodule module;
	CUarray array;
	size_t n;

	CHECK(cuModuleLoadData(&module, "fake module"));
	CHECK(cuModuleGetFunction(&axpy, module, "axpy"));
	CHECK(cuModuleGetFunction(&mix, module, "mix"));
	CHECK(cuModuleGetGlobal_v2(&s->factor, &n, module, "factor"));
	CHECK(cuMemAlloc_v2(swapped ? &s->rows : &s->x, swapped ? 64 * 1024 : bytes));
	CHECK(cuMemAlloc_v2(&s->y, smaller ? bytes / 2 : bytes));
	CHECK(cuMemAlloc_v2(swapped ? &s->x : &s->rows, swapped ? bytes : 64 * 1024));
	CHECK(cuMemAllocPitch_v2(&s->table, &s->pitch, 2 * sizeof(CUdeviceptr), 4, 8));
	if (is("twice")) {
		CHECK(cuModuleLoadData(&module, "fake module"));
		CHECK(cuModuleGetGlobal_v2(&s->wrong, &n, module, "factor"));
	}
	if (is("managed")) {
		CHECK(cuMemAllocManaged(&s->wrong, 4096, 1));
	}
	if (is("pool")) {
		CHECK(cuMemAllocAsync(&s->wrong, 4096, NULL));
	}
	if (is("array")) {
		CHECK(cuArrayCreate_v2(
			&array, &(CUDA_ARRAY_DESCRIPTOR){ .Width = 16, .Height = 4, .Format = 0x20, .NumChannels = 1 }));
	}
}

static void begin(const struct state *s) {
	const CUdeviceptr addresses[2] = { s->x, s->y };
	double x[N];
	size_t i;

	for (i = 0; i < N; i++) {
		x[i] = 1.0 / (double)(i + 1);
	}
	CHECK(cuMemcpyHtoD_v2(s->x, x, sizeof x));
	CHECK(cuMemsetD8_v2(s->y, 0, sizeof x));
	CHECK(cuMemsetD8_v2(s->rows, 3, 64 * 1024));
	CHECK(cuMemcpyHtoD_v2(s->table, addresses, sizeof addresses));
}

static void compute(struct state *s) {
	CUdeviceptr addresses[2], temporary;
	double factor;

	CHECK(cuMemcpyDtoH_v2(addresses, s->table, sizeof addresses));
	launch(axpy, addresses[1], addresses[0], N);
	launch(mix, s->rows, 0, 64 * 1024);
	CHECK(cuMemcpyDtoH_v2(&factor, s->factor, sizeof factor));
	factor *= 1.25;
	CHECK(cuMemcpyHtoD_v2(s->factor, &factor, sizeof factor));
	CHECK(cuMemAlloc_v2(&temporary, 12345));
	CHECK(cuMemsetD8_v2(temporary, (unsigned char)step, 12345));
	if (is("late") && s->late == 0) {
		CHECK(cuMemAlloc_v2(&s->late, 4096));
		CHECK(cuMemsetD8_v2(s->late, 77, 4096));
	}
	CHECK(cuMemFree_v2(temporary));
	if (s->late != 0) {
		launch(mix, s->late, 0, 4096);
	}
}

static void print(const char *what, CUdeviceptr at, size_t bytes) {
	unsigned char *p = malloc(bytes);
	uint64_t z = 0;
	size_t i;

	CHECK(cuMemcpyDtoH_v2(p, at, bytes));
	for (i = 0; i < bytes; i++) {
		z = (z ^ p[i]) * 0x100000001b3u;
	}
	printf("%s %016llx\n", what, (unsigned long long)z);
	free(p);
}

int main(int argc, char **argv) {
	const int steps = argc > 3 ? atoi(argv[1]) : 0, kill_at = argc > 3 ? atoi(argv[2]) : 0;
	struct state s = { 0 };
	CUcontext context;
	int code;

	mode = argc > 3 ? argv[3] : "";
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxPushCurrent_v2(context));
	allocate(&s);
	CHECK(hf_init(NULL));
	CHECK(hf_protect("step", &step, 1, HF_INT32));
	if (is("twice") && hf_protect_cuda() == HF_OK) {
		return 0;
	}
	if (!is("without")) {
		CHECK(hf_protect_cuda());
	}
	if ((code = hf_restore()) < 0) {
		printf("hf_restore: %s\n", hf_error());
		return 1;
	}
	if (code != HF_RESTORED) {
		begin(&s);
	}
	printf("begins at step %d\n", step);
	while (step < steps) {
		compute(&s);
		if (++step == kill_at) {
			CHECK(hf_checkpoint(NULL, 0));
			CHECK(hf_wait(NULL));
			fflush(stdout);
			raise(SIGKILL);
		}
		CHECK(hf_point());
	}
	print("x", s.x, N * sizeof(double));
	print("y", s.y, N * sizeof(double));
	print("rows", s.rows, 64 * 1024);
	print("factor", s.factor, sizeof(double));
	CHECK(hf_finalize());
	return 0;
}
