/* protect.c - a program whose device memory is in its checkpoints by one call.
 * It computes for some steps, and prints sums. At one step it takes a
 * checkpoint and kills itself, once the file is there that UNTIL may name;
 * started again it goes on from there.
 *
 * usage: protect STEPS KILL-AT MODE, where MODE is
 *   all      as it should be
 *   without  hf_protect_cuda is not called
 *   swapped  started again, two allocations come in the other order
 *   smaller  started again, one allocation is smaller
 *   late     at the first step comes an allocation that lives on
 *   moved    started again, the memory of the pool comes to another address
 *   shaped   started again, the array has as many bytes in another shape
 *   managed, heap, graph, node, node2  there is what no checkpoint can hold
 *   asleep   graphs would make memory, and have freed what they made
 *   outlived the memory of the pool has outlived its context
 *   lent     a library that moves messages makes memory: for itself, and if
 *            LENT is set, for the program
 *   twice    two variables have one name; hf_protect_cuda is called again when
 *            it has said so */
#include <dlfcn.h>
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
	CUdeviceptr x, y, rows, table, factor, late, wrong, pool;
	CUarray array, level;
	CUmipmappedArray levels;
	size_t pitch;
};

/* Has the library of TRANSPORT make memory. */
static void transport(CUdeviceptr *at) {
	void *library = dlopen(getenv("TRANSPORT"), RTLD_NOW);
	int (*make)(CUdeviceptr *, size_t);
	void *f = library != NULL ? dlsym(library, getenv("LENT") != NULL ? "ncclMemAlloc" : "buffer") : NULL;

	CHECK(f == NULL);
	memcpy(&make, &f, sizeof make);
	CHECK(make(at, 4096));
}

/* A graph that makes memory. */
static CUgraph adds_node(void) {
	CUgraphNodeParams any = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .alloc.bytes = 4096 };
	CUgraphNode node;
	CUgraph graph;

	CHECK(cuGraphCreate(&graph, 0));
	CHECK(is("graph")    ? cuGraphAddMemAllocNode(&node, graph, NULL, 0, &any.alloc)
			: is("node") ? cuGraphAddNode(&node, graph, NULL, 0, &any)
						 : cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &any));
	return graph;
}

static void launches(CUgraph graph) {
	CUgraphExec exec;

	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(cuGraphLaunch(exec, NULL));
	CHECK(cuCtxSynchronize());
}

/* A graph that has freed its memory. */
static CUgraph captured(void) {
	CUdeviceptr at;
	CUgraph graph;
	CUstream s;

	CHECK(cuStreamCreate(&s, 1));
	CHECK(cuStreamBeginCapture_v2(s, 0));
	CHECK(cuMemAllocAsync(&at, 4096, s));
	CHECK(cuMemFreeAsync(at, s));
	CHECK(cuStreamEndCapture(s, &graph));
	return graph;
}

static void allocate(struct state *s) {
	const size_t bytes = N * sizeof(double);
	const int swapped = is("swapped") && getenv("AGAIN") != NULL, smaller = is("smaller") && getenv("AGAIN") != NULL;
	const int shaped = is("shaped") && getenv("AGAIN") != NULL;
	CUcontext context;
	CUmodule module;
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
	if (is("heap")) {
		CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20));
	}
	if (is("graph") || is("node") || is("node2")) {
		launches(adds_node());
	}
	if (is("asleep")) {
		adds_node();
		launches(captured());
	}
	if (is("unload") && cuModuleUnload(module) == CUDA_SUCCESS) {
		exit(1);
	}
	if (is("lent")) {
		transport(&s->wrong);
	}
	if (is("moved") && getenv("AGAIN") != NULL) {
		CHECK(cuMemAllocAsync(&s->wrong, 4096, NULL));
	}
	if (is("outlived")) {
		CHECK(cuCtxCreate_v2(&context, 0, 0));
	}
	CHECK(cuMemAllocAsync(&s->pool, 4096, NULL));
	if (is("outlived")) {
		CHECK(cuCtxDestroy_v2(context));
	}
	CHECK(cuArrayCreate_v2(&s->array,
		&(CUDA_ARRAY_DESCRIPTOR){
			.Width = shaped ? 64 : 16, .Height = shaped ? 1 : 4, .Format = 0x20, .NumChannels = 1 }));
	CHECK(cuMipmappedArrayCreate(&s->levels,
		&(CUDA_ARRAY3D_DESCRIPTOR){ .Width = 16, .Height = 6, .Depth = 3, .Format = 0x20, .NumChannels = 1 }, 3));
	CHECK(cuMipmappedArrayGetLevel(&s->level, s->levels, 1));
}

/* The first row of the last layer of an array that has so many, to the host or
 * from there. */
static void copy_row(CUarray array, size_t layers, void *row, size_t bytes, int in) {
	CUDA_MEMCPY3D c = { .WidthInBytes = bytes, .Height = 1, .Depth = 1 };

	if (in) {
		c.srcMemoryType = CU_MEMORYTYPE_HOST;
		c.srcHost = row;
		c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		c.dstArray = array;
		c.dstZ = layers - 1;
	} else {
		c.dstMemoryType = CU_MEMORYTYPE_HOST;
		c.dstHost = row;
		c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		c.srcArray = array;
		c.srcZ = layers - 1;
	}
	CHECK(cuMemcpy3D_v2(&c));
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
	CHECK(cuMemsetD8_v2(s->pool, 1, 4096));
	copy_row(s->array, 1, x, 64, 1);
	copy_row(s->level, 1, x, 32, 1);
}

static void compute(struct state *s) {
	CUdeviceptr addresses[2], temporary;
	double factor, row[8];

	CHECK(cuMemcpyDtoH_v2(addresses, s->table, sizeof addresses));
	launch(axpy, addresses[1], addresses[0], N);
	launch(mix, s->rows, 0, 64 * 1024);
	launch(mix, s->pool, 0, 4096);
	copy_row(s->array, 1, row, sizeof row, 0);
	row[step % 8] += step;
	copy_row(s->array, 1, row, sizeof row, 1);
	copy_row(s->level, 1, row, 32, 0);
	row[step % 4] += 3 * step;
	copy_row(s->level, 1, row, 32, 1);
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
	double row[8];
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
			while (getenv("UNTIL") != NULL && access(getenv("UNTIL"), F_OK) != 0) {
				CHECK(hf_point());
				usleep(1000);
			}
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
	print("pool", s.pool, 4096);
	copy_row(s.array, 1, row, sizeof row, 0);
	printf("array %a %a %a\n", row[0], row[1], row[5]);
	copy_row(s.level, 1, row, 32, 0);
	printf("level %a %a\n", row[0], row[1]);
	CHECK(hf_finalize());
	return 0;
}
