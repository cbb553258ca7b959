/* Builds programs whose sources include files of the program's own, found in each way that there is, and prints what
   their kernels say. With a file name it stands still after the builds until the file is there. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "check.h"

static cl_context context;
static cl_device_id device;
static cl_command_queue queue;

static void file(const char *name, const char *text) {
	FILE *f = fopen(name, "w");
	if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0) {
		perror(name);
		exit(1);
	}
}

static cl_program from(const char *text) {
	cl_int rc;
	cl_program p = clCreateProgramWithSource(context, 1, &text, NULL, &rc);
	CHECK(rc);
	return p;
}

/* say prints what kernel k of a program writes. */
static void say(const char *what, cl_program p) {
	cl_int rc;
	cl_uint value = 0;
	cl_kernel k = clCreateKernel(p, "k", &rc);
	CHECK(rc);
	cl_mem m = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof value, NULL, &rc);
	CHECK(rc);
	CHECK(clSetKernelArg(k, 0, sizeof m, &m));
	CHECK(clEnqueueNDRangeKernel(queue, k, 1, NULL, &(size_t){ 1 }, NULL, 0, NULL, NULL));
	CHECK(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
	char options[2 * PATH_MAX];
	CHECK(clGetProgramBuildInfo(p, device, CL_PROGRAM_BUILD_OPTIONS, sizeof options, options, NULL));
	printf("%s: %u, built with \"%s\"\n", what, value, options);
	CHECK(clReleaseMemObject(m));
	CHECK(clReleaseKernel(k));
}

/* headers compiles with programs as headers that include each other, one with `#pragma once`. */
static void headers(void) {
	cl_int rc;
	cl_program p = from("#include \"a.h\"\n# include <b.h>\n__kernel void k(__global uint *o) { *o = A + B; }\n");
	cl_program list[] = { from("#pragma once\n#define A 3\n#include \"b.h\"\nstruct a { int x; };\n"),
		from("#ifndef B\n#define B 4\n#include \"a.h\"\nstruct b { int y; };\n#endif\n") };
	const char *names[] = { "a.h", "b.h" };
	CHECK(clCompileProgram(p, 1, &device, "", 2, list, names, NULL, NULL));
	cl_program linked = clLinkProgram(context, 1, &device, "", 1, &p, NULL, NULL, &rc);
	CHECK(rc);
	say("headers", linked);
}

static const char *ways[][2] = {
	{ "a directory", "-I sub" },
	{ "in the same word", "-Isub -DN=3" },
	{ "with others", "-D N=4 -I sub -cl-mad-enable" },
	{ "above", "-I ./sub/../sub" },
};
enum { WAYS = sizeof ways / sizeof *ways };

int main(int argc, char **argv) {
	cl_int rc;
	device = first_device();
	context = context_of(device);
	queue = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	mkdir("sub", 0777);
	file("sub/value.h", "#ifndef VALUE\n#define VALUE 7\n#include \"deeper.h\"\n#endif\n");
	file("sub/deeper.h", "#ifndef N\n#define N 2\n#endif\n");
	file("here.h", "#define VALUE 9\n#define N 1\n");
	const char *text = "#include \"value.h\"\n__kernel void k(__global uint *a) { *a = VALUE * N; }\n";
	cl_program p[WAYS + 3];
	for (int i = 0; i < WAYS; i++) {
		p[i] = from(text);
		CHECK(clBuildProgram(p[i], 1, &device, ways[i][1], NULL, NULL));
	}
	p[WAYS] = from("# include \"here.h\"\n__kernel void k(__global uint *a) { *a = VALUE * N; }\n");
	CHECK(clBuildProgram(p[WAYS], 0, NULL, NULL, NULL, NULL));
	char absolute[PATH_MAX], options[PATH_MAX + 64];
	if (realpath("sub/value.h", absolute) == NULL) {
		perror("sub/value.h");
		return 1;
	}
	p[WAYS + 1] = from("#define NAME(x) TEXT(x)\n#define TEXT(x) #x\n#include NAME(PLACE)\n"
					   "__kernel void k(__global uint *a) { *a = VALUE * N; }\n");
	snprintf(options, sizeof options, "-DPLACE=%s", absolute); /* a macro names the file */
	CHECK(clBuildProgram(p[WAYS + 1], 1, &device, options, NULL, NULL));
	CHECK(clCompileProgram(p[WAYS + 2] = from(text), 1, &device, "-I sub", 0, NULL, NULL, NULL, NULL));
	cl_program linked = clLinkProgram(context, 1, &device, NULL, 1, &p[WAYS + 2], NULL, NULL, &rc);
	CHECK(rc);
	if (argc > 1) {
		CHECK(clFinish(queue));
		printf("half\n");
		fflush(stdout);
		while (access(argv[1], F_OK) != 0) {
			usleep(10000);
		}
	}
	for (int i = 0; i < WAYS; i++) {
		say(ways[i][0], p[i]);
	}
	say("here", p[WAYS]);
	say("by a macro", p[WAYS + 1]);
	say("linked", linked);
	headers();
	rc = clBuildProgram(from(text), 1, &device, "-I nowhere", NULL, NULL);
	printf("nowhere %d\n", rc);
	return 0;
}
