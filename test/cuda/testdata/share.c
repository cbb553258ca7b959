/* share.c - two processes, one of which opens memory of the other: by large and small blocks, again and again, while
 * the one that has it frees and allocates beside it. Both wait for a line of standard input where they say "waits".
 *
 * usage: share */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

#define CHECK(call)                                      \
	do {                                                 \
		int failed_ = (int)(call);                       \
		if (failed_ != 0) {                              \
			printf("%s: %s: %d\n", who, #call, failed_); \
			fflush(stdout);                              \
			exit(1);                                     \
		}                                                \
	} while (0)

enum { LARGE = 5 << 20, SMALL = 3000, BLOCKS = 3 };
static const size_t bytes_of[BLOCKS] = { LARGE, SMALL, SMALL };
static const char *who = "owner";
static int line[2]; /* between the two */
static unsigned char data[LARGE];

static void begin(void) {
	CUcontext context;

	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxPushCurrent_v2(context));
}

static void tell(const void *bytes, size_t n) { CHECK(write(line[0], bytes, n) != (ssize_t)n); }

static void hear(void *bytes, size_t n) { CHECK(recv(line[0], bytes, n, MSG_WAITALL) != (ssize_t)n); }

static void step(void) {
	char byte = 0;

	tell(&byte, 1);
	hear(&byte, 1);
}

static bool holds(CUdeviceptr at, size_t bytes, int value) {
	size_t i;

	CHECK(cuMemcpyDtoH_v2(data, at, bytes));
	for (i = 0; i < bytes && data[i] == value; i++) {
	}
	return i == bytes;
}

/* Both wait until somebody writes a line. */
static void waits(const char *what) {
	char text[8];

	step();
	if (strcmp(who, "owner") == 0) {
		printf("%s\n", what);
		fflush(stdout);
		CHECK(fgets(text, sizeof text, stdin) == NULL);
	}
	step();
}

/* The calls that copy and set memory wait for the device once somebody has asked for it, and not before. The fake
 * driver, which the library has loaded, counts that. */
static void wait_for_copies(CUdeviceptr to, CUdeviceptr from) {
	void *driver = dlopen(getenv("WAITS"), RTLD_NOW | RTLD_NOLOAD);
	const _Atomic unsigned *waits = driver != NULL ? dlsym(driver, "fake_waits") : NULL;
	const unsigned on = 1, before = waits != NULL ? *waits : 0;

	CHECK(waits == NULL);
	CHECK(cuMemcpyDtoD_v2(to, from, SMALL));
	CHECK(*waits != before);
	CHECK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, to));
	CHECK(*waits != before + 1); /* for what was under way */
	CHECK(cuMemcpyDtoD_v2(to, from, SMALL));
	CHECK(cuMemsetD8_v2(to, 2, SMALL));
	CHECK(*waits != before + 3);
	CHECK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, from));
	CHECK(*waits != before + 3);
}

static int owner(void) {
	CUipcMemHandle handles[BLOCKS], again;
	CUdeviceptr at[BLOCKS], other;
	int i;

	begin();
	for (i = 0; i < BLOCKS; i++) {
		CHECK(cuMemAlloc_v2(&at[i], bytes_of[i]));
		CHECK(cuMemsetD8_v2(at[i], (unsigned char)(i + 1), bytes_of[i]));
		CHECK(cuIpcGetMemHandle(&handles[i], at[i]));
	}
	if (getenv("WAITS") != NULL) {
		wait_for_copies(at[1], at[2]);
	}
	CHECK(cuIpcGetMemHandle(&again, at[1] + 100)); /* of the block, wherever in it */
	CHECK(memcmp(&again, &handles[1], sizeof again) != 0);
	printf("own handle: %d\n", cuIpcOpenMemHandle_v2(&other, handles[0], 1));
	tell(handles, sizeof handles);
	waits("opened");
	for (i = 0; i < BLOCKS; i++) {
		printf("block %d written: %d\n", i, holds(at[i], bytes_of[i], 11 + i));
	}
	CHECK(cuMemAlloc_v2(&other, LARGE));
	CHECK(cuMemFree_v2(other));
	waits("closed");
	waits("opened again");
	/* Another block comes to the place of the first. */
	CHECK(cuMemFree_v2(at[0]));
	CHECK(cuMemAlloc_v2(&other, LARGE));
	printf("same place: %d\n", other == at[0]);
	CHECK(cuMemsetD8_v2(other, 77, LARGE));
	waits("old handle");
	CHECK(cuIpcGetMemHandle(&handles[0], other));
	tell(handles, sizeof *handles);
	waits("new handle");
	return 0;
}

static int user(void) {
	CUipcMemHandle handles[BLOCKS];
	CUdeviceptr at[BLOCKS], twice, base;
	size_t bytes;
	int i;

	who = "user";
	begin();
	hear(handles, sizeof handles);
	for (i = 0; i < BLOCKS; i++) {
		CHECK(cuIpcOpenMemHandle_v2(&at[i], handles[i], 1));
		printf("block %d read: %d\n", i, holds(at[i], bytes_of[i], 1 + i));
		CHECK(cuMemGetAddressRange_v2(&base, &bytes, at[i] + 9));
		printf("block %d: %zu bytes, begins at its address: %d\n", i, bytes, base == at[i]);
		CHECK(cuMemsetD8_v2(at[i], (unsigned char)(11 + i), bytes_of[i]));
	}
	CHECK(cuIpcOpenMemHandle_v2(&twice, handles[0], 1));
	printf("opened twice, the same address: %d\n", twice == at[0]);
	printf("no handle of opened memory: %d\n", cuIpcGetMemHandle(&(CUipcMemHandle){ { 0 } }, at[0]));
	fflush(stdout);
	waits("");
	CHECK(cuIpcCloseMemHandle(twice));
	CHECK(!holds(at[0], LARGE, 11)); /* it is open once more */
	for (i = 0; i < BLOCKS; i++) {
		CHECK(cuIpcCloseMemHandle(at[i]));
	}
	printf("closed once more: %d\n", cuIpcCloseMemHandle(at[0]) != 0);
	fflush(stdout);
	waits("");
	CHECK(cuIpcOpenMemHandle_v2(&at[0], handles[0], 1));
	CHECK(cuIpcOpenMemHandle_v2(&at[2], handles[2], 1));
	printf("read again: %d %d\n", holds(at[0], LARGE, 11), holds(at[2], SMALL, 13));
	CHECK(cuIpcCloseMemHandle(at[0]));
	CHECK(cuIpcCloseMemHandle(at[2]));
	fflush(stdout);
	waits("");
	waits("");
	printf("handle of what is gone: %d\n", cuIpcOpenMemHandle_v2(&at[0], handles[0], 1));
	hear(handles, sizeof *handles);
	CHECK(cuIpcOpenMemHandle_v2(&at[0], handles[0], 1));
	printf("new block read: %d\n", holds(at[0], LARGE, 77));
	fflush(stdout);
	waits("");
	return 0;
}

int main(void) {
	int ends[2], status = 1;
	pid_t child;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	child = fork();
	line[0] = ends[child == 0];
	close(ends[child != 0]);
	if (child == 0) {
		return user();
	}
	status = owner();
	CHECK(waitpid(child, &ends[0], 0) != child || ends[0] != 0);
	return status;
}
