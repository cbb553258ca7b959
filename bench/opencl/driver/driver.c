/* An OpenCL program that measures itself and prints the results, lines "name, tab, value". It is the same with a
   device's own library and with libholdfast-opencl: holdfast bench opencl compares the two. Arguments: a word of the
   platform's name or version ("" for any), seconds for each figure, the largest transfer in MiB (0: only launches),
   loops of the compute-bound kernel. Rates are bytes or launches a second, the best of the loops that fit into the
   time. Compile with -lOpenCL. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static const char *source =
	"__kernel void none(__global uint *a, uint n) { if (n == 12345) a[0] = n; }\n"
	"__kernel void work(__global float *a, uint n) {\n"
	"	float x = a[get_global_id(0)], y = x + 1;\n"
	"	for (uint i = 0; i < n; i++) { x = mad(x, 0.999f, y); y = mad(y, 0.998f, x); }\n"
	"	a[get_global_id(0)] = x + y;\n"
	"}\n";

static void check(cl_int rc, const char *what) {
	if (rc != CL_SUCCESS) {
		fprintf(stderr, "%s: error %d\n", what, rc);
		exit(1);
	}
}

#define CHECK(call) check(call, #call)

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static cl_context context;
static cl_command_queue queue;
static cl_kernel none, work;
static double seconds;
static int cpu;

static int named(cl_platform_id p, const char *word) {
	char text[2][256] = { "", "" };
	clGetPlatformInfo(p, CL_PLATFORM_NAME, sizeof text[0], text[0], NULL);
	clGetPlatformInfo(p, CL_PLATFORM_VERSION, sizeof text[1], text[1], NULL);
	for (int i = 0; i < 2; i++) {
		for (const char *at = text[i]; *at != 0; at++) {
			if (strncasecmp(at, word, strlen(word)) == 0) {
				return 1;
			}
		}
	}
	return 0;
}

static void begin(const char *word) {
	cl_platform_id list[16], found = NULL;
	cl_device_id device = NULL;
	cl_uint n = 0;
	CHECK(clGetPlatformIDs(16, list, &n));
	for (cl_uint i = 0; i < n && i < 16 && device == NULL; i++) {
		if (named(list[i], word) && clGetDeviceIDs(list[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL) == CL_SUCCESS) {
			found = list[i];
		}
	}
	if (found == NULL) {
		fprintf(stderr, "no platform \"%s\" with a device among", word);
		for (cl_uint i = 0; i < n && i < 16; i++) {
			char name[256] = "";
			cl_uint count = 0;
			clGetPlatformInfo(list[i], CL_PLATFORM_NAME, sizeof name, name, NULL);
			cl_int rc = clGetDeviceIDs(list[i], CL_DEVICE_TYPE_ALL, 0, NULL, &count);
			fprintf(stderr, "%s %s (%u devices, %d)", i > 0 ? "," : "", name, count, rc);
		}
		fprintf(stderr, "\n");
		exit(1);
	}
	char name[256] = "";
	cl_device_type type = 0;
	CHECK(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL));
	CHECK(clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, NULL));
	cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
	cl_int rc;
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &rc);
	check(rc, "clCreateContext");
	queue = clCreateCommandQueue(context, device, 0, &rc);
	check(rc, "clCreateCommandQueue");
	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	check(rc, "clCreateProgramWithSource");
	CHECK(clBuildProgram(program, 1, &device, "", NULL, NULL));
	none = clCreateKernel(program, "none", &rc);
	check(rc, "clCreateKernel");
	work = clCreateKernel(program, "work", &rc);
	check(rc, "clCreateKernel");
	printf("device\t%s\ncpu\t%d\n", name, cpu);
}

/* best is the shortest time of one loop, of those that fit into the time and one before them. */
static double best(void (*loop)(void *), void *arg) {
	loop(arg);
	double least = 0, end = now() + seconds;
	for (int runs = 0; runs < 2 || now() < end; runs++) {
		double from = now();
		loop(arg);
		double took = now() - from;
		least = least == 0 || took < least ? took : least;
	}
	return least;
}

static cl_mem buffer(cl_mem_flags flags, size_t size) {
	cl_int rc;
	cl_mem m = clCreateBuffer(context, flags, size, NULL, &rc);
	check(rc, "clCreateBuffer");
	return m;
}

enum { LAUNCHES = 2000 };

static void launch_all(void *with) {
	const size_t one = 1;
	for (int i = 0; i < LAUNCHES; i++) {
		if (with != NULL) {
			cl_uint n = (cl_uint)i;
			CHECK(clSetKernelArg(none, 1, sizeof n, &n));
		}
		CHECK(clEnqueueNDRangeKernel(queue, none, 1, NULL, &one, &one, 0, NULL, NULL));
	}
	CHECK(clFinish(queue));
}

/* call_time is the shortest mean time of the calls of launches without a wait: few enough for the queues between the
 * program and the device. */
static double call_time(void) {
	enum { FEW = 500 };
	const size_t one = 1;
	double least = 0, end = now() + seconds;
	for (int runs = 0; runs < 2 || now() < end; runs++) {
		double from = now();
		for (int i = 0; i < FEW; i++) {
			CHECK(clEnqueueNDRangeKernel(queue, none, 1, NULL, &one, &one, 0, NULL, NULL));
		}
		double took = now() - from;
		least = least == 0 || took < least ? took : least;
		CHECK(clFinish(queue));
	}
	return least / FEW;
}

static void launch_one(void *unused) {
	const size_t one = 1;
	(void)unused;
	for (int i = 0; i < 100; i++) {
		CHECK(clEnqueueNDRangeKernel(queue, none, 1, NULL, &one, &one, 0, NULL, NULL));
		CHECK(clFinish(queue));
	}
}

static void launches(void) {
	cl_mem m = buffer(CL_MEM_READ_WRITE, 4096);
	cl_uint n = 1;
	CHECK(clSetKernelArg(none, 0, sizeof m, &m));
	CHECK(clSetKernelArg(none, 1, sizeof n, &n));
	printf("launches\t%.1f\n", LAUNCHES / best(launch_all, NULL));
	printf("launches, an argument set before each\t%.1f\n", LAUNCHES / best(launch_all, &n));
	printf("a launch, until its call returns\t%.3f\n", 1e6 * call_time());
	printf("a launch and its end\t%.3f\n", 1e6 / 100 * best(launch_one, NULL));
	CHECK(clReleaseMemObject(m));
}

struct compute {
	size_t items;
	cl_uint loops;
};

static void compute_all(void *arg) {
	const struct compute *c = arg;
	CHECK(clSetKernelArg(work, 1, sizeof c->loops, &c->loops));
	for (int i = 0; i < 20; i++) {
		CHECK(clEnqueueNDRangeKernel(queue, work, 1, NULL, &c->items, NULL, 0, NULL, NULL));
	}
	CHECK(clFinish(queue));
}

static void compute(cl_uint loops) {
	struct compute c = { cpu ? 4096 : 1u << 20, cpu ? loops : 25 * loops }; /* 1 ms or more */
	cl_mem m = buffer(CL_MEM_READ_WRITE, c.items * sizeof(float));
	const float zero = 0;
	CHECK(clEnqueueFillBuffer(queue, m, &zero, sizeof zero, 0, c.items * sizeof zero, 0, NULL, NULL));
	CHECK(clSetKernelArg(work, 0, sizeof m, &m));
	printf("compute-bound program\t%.6f\n", best(compute_all, &c));
	CHECK(clReleaseMemObject(m));
}

/* A way to move bytes. */
struct way {
	const char *name;
	int pinned, mapped, blocks, box;
};

static const struct way ways[] = {
	{ "pageable", 0, 0, 1, 0 },
	{ "pageable, in flight", 0, 0, 0, 0 },
	{ "pageable, a box", 0, 0, 1, 1 },
	{ "pinned", 1, 0, 0, 0 },
	{ "pinned, one at a time", 1, 0, 1, 0 },
	{ "mapped", 0, 1, 0, 0 },
	{ "mapped, one at a time", 0, 1, 1, 0 },
};

/* A program that does not wait for each mapping has this many buffers mapped at once. */
enum { BATCH = 8 };

struct transfer {
	const struct way *way;
	cl_mem device;
	cl_mem batch[BATCH]; /* for mappings, instead of device */
	char *host;
	size_t size, room; /* of one transfer, and behind host */
	int count, read;
};

/* A box has the first half of each row. */
enum { ROW = 4096 };

static void move_box(const struct transfer *t, char *host) {
	const size_t origin[3] = { 0, 0, 0 }, region[3] = { ROW / 2, t->size / ROW, 1 };
	if (t->read) {
		CHECK(clEnqueueReadBufferRect(queue, t->device, CL_TRUE, origin, origin, region, ROW, 0, ROW, 0, host, 0, NULL,
			NULL));
	} else {
		CHECK(clEnqueueWriteBufferRect(queue, t->device, CL_TRUE, origin, origin, region, ROW, 0, ROW, 0, host, 0, NULL,
			NULL));
	}
}

/* map_some maps n buffers, waits for all mappings and ends them. */
static void map_some(const struct transfer *t, int n) {
	void *p[BATCH];
	cl_map_flags flags = t->read ? CL_MAP_READ : CL_MAP_WRITE_INVALIDATE_REGION;
	for (int i = 0; i < n; i++) {
		cl_int rc;
		p[i] = clEnqueueMapBuffer(queue, t->batch[i], i == n - 1, flags, 0, t->size, 0, NULL, NULL, &rc);
		check(rc, "clEnqueueMapBuffer");
	}
	for (int i = 0; i < n; i++) {
		CHECK(clEnqueueUnmapMemObject(queue, t->batch[i], p[i], 0, NULL, NULL));
	}
}

static void move_mapped(const struct transfer *t) {
	int most = t->way->blocks ? 1 : BATCH;
	for (int left = t->count; left > 0; left -= most) {
		map_some(t, left < most ? left : most);
	}
	CHECK(clFinish(queue));
}

static void move(void *arg) {
	const struct transfer *t = arg;
	if (t->way->mapped) {
		move_mapped(t);
		return;
	}
	for (int i = 0; i < t->count; i++) {
		cl_bool blocks = t->way->blocks ? CL_TRUE : CL_FALSE;
		char *host = t->host + (t->way->pinned ? 0 : (size_t)i * t->size % t->room);
		if (t->way->box) {
			move_box(t, host);
		} else if (t->read) {
			CHECK(clEnqueueReadBuffer(queue, t->device, blocks, 0, t->size, host, 0, NULL, NULL));
		} else {
			CHECK(clEnqueueWriteBuffer(queue, t->device, blocks, 0, t->size, host, 0, NULL, NULL));
		}
	}
	CHECK(clFinish(queue));
}

/* same writes bytes to the device and reads them back, by the way of the transfer. */
static int same(struct transfer *t) {
	int ok = 1;
	unsigned char *p = (unsigned char *)t->host;
	if (!t->way->mapped) {
		for (size_t i = 0; i < t->size; i++) {
			p[i] = (unsigned char)(i * 31 + (i >> 12));
		}
		t->read = 0;
		move(t);
		memset(p, 0, t->size);
		t->read = 1;
		move(t);
		for (size_t i = 0; i < t->size; i++) {
			int moved = !t->way->box || i % ROW < ROW / 2;
			ok = ok && p[i] == (moved ? (unsigned char)(i * 31 + (i >> 12)) : 0);
		}
		return ok;
	}
	for (int pass = 0; pass < 2; pass++) {
		cl_int rc;
		p = clEnqueueMapBuffer(queue, t->batch[0], CL_TRUE, pass == 0 ? CL_MAP_WRITE_INVALIDATE_REGION : CL_MAP_READ, 0,
			t->size, 0, NULL, NULL, &rc);
		check(rc, "clEnqueueMapBuffer");
		for (size_t i = 0; i < t->size; i++) {
			if (pass == 0) {
				p[i] = (unsigned char)(i * 37 + (i >> 11));
			} else {
				ok = ok && p[i] == (unsigned char)(i * 37 + (i >> 11));
			}
		}
		CHECK(clEnqueueUnmapMemObject(queue, t->batch[0], p, 0, NULL, NULL));
		CHECK(clFinish(queue));
	}
	return ok;
}

static int transfers(size_t most) {
	const size_t sizes[] = { 64 << 10, 1 << 20, 16 << 20, 256 << 20 };
	int ok = 1;
	cl_mem device = buffer(CL_MEM_READ_WRITE, most), pinned = buffer(CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, most);
	cl_int rc;
	char *locked = clEnqueueMapBuffer(queue, pinned, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, most, 0, NULL, NULL, &rc);
	check(rc, "clEnqueueMapBuffer");
	char *plain = malloc(most);
	if (plain == NULL) {
		check(CL_OUT_OF_HOST_MEMORY, "malloc");
	}
	memset(plain, 1, most);
	memset(locked, 1, most);
	for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
		for (size_t s = 0; s < sizeof sizes / sizeof sizes[0] && sizes[s] <= most; s++) {
			/* a mapping is of the whole of a buffer of its size */
			struct transfer t = { &ways[w], device, { NULL }, ways[w].pinned ? locked : plain, sizes[s], most, 1, 0 };
			int count = (int)((32 << 20) / sizes[s]);
			count = count < 1 ? 1 : count > 64 ? 64 : count;
			int mapped = !ways[w].mapped ? 0 : count < BATCH ? count : BATCH;
			for (int i = 0; i < mapped; i++) {
				t.batch[i] = buffer(CL_MEM_READ_WRITE, sizes[s]);
			}
			ok = same(&t) && ok;
			t.count = count;
			double bytes = (double)t.count * (double)t.size / (ways[w].box ? 2 : 1);
			for (t.read = 0; t.read < 2; t.read++) {
				int mib = t.size >= 1 << 20;
				printf("%s, to %s, %zu %s\t%.1f\n", ways[w].name, t.read ? "host" : "device", t.size >> (mib ? 20 : 10),
					mib ? "MiB" : "KiB", bytes / best(move, &t));
			}
			for (int i = 0; i < mapped; i++) {
				CHECK(clReleaseMemObject(t.batch[i]));
			}
		}
	}
	CHECK(clEnqueueUnmapMemObject(queue, pinned, locked, 0, NULL, NULL));
	CHECK(clFinish(queue));
	free(plain);
	return ok;
}

int main(int argc, char **argv) {
	if (argc != 5) {
		fprintf(stderr, "usage: %s PLATFORM SECONDS MIB LOOPS\n", argv[0]);
		return 2;
	}
	seconds = atof(argv[2]);
	begin(argv[1]);
	launches();
	int mib = atoi(argv[3]), ok = 1;
	if (mib > 0) {
		compute((cl_uint)atoi(argv[4]));
		ok = transfers((size_t)mib << 20);
	}
	printf("same\t%d\n", ok);
	return 0;
}
