/* CHECK ends a program whose OpenCL call fails, and says which. Include it after CL/cl.h. */
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call) check(call, #call, __LINE__)
static void check(cl_int rc, const char *call, int line) {
	if (rc != CL_SUCCESS) {
		fprintf(stderr, "line %d: %s: %d\n", line, call, rc);
		exit(1);
	}
}
