/* odd.c - what programs seldom do while they are paused, or moved.
 *
 * usage: odd held|inside|captures|green|destroys|gone|spoils|asked|closes|ends|opens LIBRARY|forks|forking|grows|leaves|takes NUMBER
 * held: it cancels a thread that waits at the gate, inside: one that is in the driver
 * captures: it destroys a stream, and contexts with one, in the middle of a capture
 * green: it works in green contexts, and destroys them
 * destroys: it destroys a context while another one is busy
 * gone: it has no context for a while
 * spoils: a thread captures all the time, and another one frees
 * asked: it counts how often its contexts are pushed
 * closes: it closes all descriptors above 2, and listens by itself
 * ends: it ends a capture that has not begun
 * opens: a library that it opens allocates in its constructor, while another thread allocates
 * forks: it forks while the library starts a process beside it
 * forking: it forks all the time
 * leaves: its first thread ends before another one
 * grows: it starts a thread for each SIGUSR1
 * takes: it uses no GPU, and has a child with a process ID until it has read a line */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

#define CHECK(call)                               \
	do {                                          \
		CUresult e_ = (call);                     \
		if (e_ != CUDA_SUCCESS) {                 \
			printf("%s: error %d\n", #call, e_);  \
			exit(1);                              \
		}                                         \
	} while (0)

static CUcontext context;
static CUevent event;
static _Atomic int other, go;

/* Whether a thread of this process sleeps. */
static int sleeps(int tid) {
	char path[64], line[256] = "";
	FILE *in;

	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	if ((in = fopen(path, "r")) != NULL) {
		(void)!fread(line, 1, sizeof line - 1, in);
		fclose(in);
	}
	return strstr(line, ") S ") != NULL;
}

static void await_sleep(int tid) {
	while (!sleeps(tid)) {
	}
}

static void next_line(void) {
	while (getchar() != '\n') {
	}
}

static void says(const char *text) {
	puts(text);
	fflush(stdout);
}

static void *allocates(void *arg) {
	CUdeviceptr at;

	CHECK(cuCtxPushCurrent_v2(context));
	other = (int)syscall(SYS_gettid);
	for (;;) {
		pthread_testcancel();
		CHECK(cuMemAlloc_v2(&at, 64));
		CHECK(cuMemFree_v2(at));
	}
	return arg;
}

static void *waits(void *arg) {
	CHECK(cuCtxPushCurrent_v2(context));
	other = (int)syscall(SYS_gettid);
	for (;;) {
		CHECK(cuEventSynchronize(event));
	}
	return arg;
}

static void cancels(void *run(void *), const char *when) {
	pthread_t thread;
	void *is;

	pthread_create(&thread, NULL, run, NULL);
	next_line();
	while (other == 0) {
	}
	await_sleep(other);
	pthread_cancel(thread);
	says(when);
	pthread_join(thread, &is);
	says(is == PTHREAD_CANCELED ? "it was cancelled" : "it was not cancelled");
}

static void captures(void) {
	CUcontext another;
	CUdeviceptr at;
	CUstream s;

	CHECK(cuStreamCreate(&s, 1));
	CHECK(cuStreamBeginCapture_v2(s, 0));
	CHECK(cuStreamDestroy_v2(s));
	CHECK(cuCtxCreate_v2(&another, 0, 0));
	CHECK(cuMemAlloc_v2(&at, 4096));
	CHECK(cuStreamCreate(&s, 1));
	CHECK(cuStreamBeginCapture_v2(s, 0));
	CHECK(cuMemFree_v2(at)); /* when no stream is captured */
	CHECK(cuCtxDestroy_v2(another));
	CHECK(cuMemAlloc_v2(&at, 4096));
	CHECK(cuCtxCreate_v2(&another, 0, 0));
	CHECK(cuStreamCreate(&s, 1));
	CHECK(cuCtxAttach(&another, 0));
	CHECK(cuCtxDetach(another));
	CHECK(cuStreamBeginCapture_v2(s, 0));
	CHECK(cuCtxDetach(another));
}

static void launch(const char *kernel, CUdeviceptr at, unsigned bytes, CUstream s) {
	void *params[] = { &at, &bytes };
	CUfunction function;
	CUmodule module;

	CHECK(cuModuleLoadData(&module, "fake module"));
	CHECK(cuModuleGetFunction(&function, module, kernel));
	CHECK(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, s, params, NULL));
}

/* One context has the memory, another one has the work, and the primary context
 * is not used. */
static void green(void) {
	unsigned char byte = 0;
	CUgreenCtx a, b;
	CUcontext popped;
	CUdeviceptr at;
	void *flag;
	CUstream s;

	CHECK(cuGreenCtxCreate(&a, NULL, 0, 1));
	CHECK(cuGreenCtxCreate(&b, NULL, 0, 1));
	CHECK(cuCtxFromGreenCtx(&context, a));
	CHECK(cuCtxPushCurrent_v2(context));
	CHECK(cuMemAlloc_v2(&at, 4096));
	CHECK(cuMemHostAlloc(&flag, 4096, 0));
	CHECK(cuGreenCtxStreamCreate(&s, b, 1, 0));
	launch("spin", (CUdeviceptr)(uintptr_t)flag, 0, s);
	launch("fill", at, 4096, s);
	says("it is busy");
	next_line();
	*(volatile int *)flag = 1;
	CHECK(cuStreamSynchronize(s));
	says("it is idle");
	next_line();
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuGreenCtxDestroy(b));
	CHECK(cuGreenCtxDestroy(a));
	says("they are gone");
	next_line();
	CHECK(cuCtxPushCurrent_v2(context));
	CHECK(cuMemcpyDtoH_v2(&byte, at + 4095, 1));
	CHECK(cuMemFree_v2(at));
	printf("it is %d\n", byte);
	(void)cuCtxPopCurrent_v2(&popped);
	CHECK(cuDevicePrimaryCtxRelease_v2(0));
}

/* A pause that is tried meanwhile waits for the first context, and another one ends. */
static void destroys(void) {
	CUcontext another, popped;
	void *flag;
	CUstream s;

	CHECK(cuMemHostAlloc(&flag, 4096, 0));
	CHECK(cuStreamCreate(&s, 1));
	launch("spin", (CUdeviceptr)(uintptr_t)flag, 0, s);
	CHECK(cuCtxCreate_v2(&another, 0, 0));
	(void)cuCtxPopCurrent_v2(&popped);
	says("it is busy");
	next_line();
	CHECK(cuCtxDestroy_v2(another));
	*(volatile int *)flag = 1;
	CHECK(cuStreamSynchronize(s));
	says("it is idle");
	next_line();
}

static void gone(void) {
	CUcontext popped;
	CUdeviceptr at;

	CHECK(cuCtxPopCurrent_v2(&popped));
	CHECK(cuDevicePrimaryCtxRelease_v2(0));
	says("it has no context");
	next_line();
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxPushCurrent_v2(context));
	CHECK(cuMemAlloc_v2(&at, 64));
	CHECK(cuMemsetD8_v2(at, 1, 64));
}

static void *captures_all_the_time(void *arg) {
	CUgraph graph;
	CUstream s;

	CHECK(cuCtxPushCurrent_v2(context));
	CHECK(cuStreamCreate(&s, 1));
	while (!go) {
		CHECK(cuStreamBeginCapture_v2(s, 1));
		CHECK(cuStreamEndCapture(s, &graph));
		other++;
	}
	return arg;
}

static void spoils(void) {
	pthread_t thread;
	CUdeviceptr at;
	int n = 0;

	pthread_create(&thread, NULL, captures_all_the_time, NULL);
	while (n++ < 200000 || other < 50000) {
		CHECK(cuMemAlloc_v2(&at, 64));
		CHECK(cuMemFree_v2(at));
	}
	go = 1;
	pthread_join(thread, NULL);
}

static void asked(void) {
	void *driver = dlopen(getenv("DRIVER"), RTLD_NOW);
	const _Atomic unsigned *pushes = driver != NULL ? dlsym(driver, "fake_pushes") : NULL;
	unsigned before = pushes != NULL ? *pushes : 1000;

	says("it counts");
	next_line();
	printf("pushes: %u\n", *pushes - before);
}

/* The first descriptor is one that the library had. */
static void closes(void) {
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof at;
	char hello[6] = "";
	int fd, listeners[8], to, from;

	next_line();
	for (fd = 3; fd < 64; fd++) {
		close(fd);
	}
	for (fd = 0; fd < 8; fd++) {
		listeners[fd] = socket(AF_INET, SOCK_STREAM, 0);
		at.sin_port = 0;
		CHECK(bind(listeners[fd], (struct sockaddr *)&at, sizeof at) != 0 || listen(listeners[fd], 8) != 0);
	}
	says("it listens");
	next_line();
	for (fd = 0; fd < 8; fd++) {
		to = socket(AF_INET, SOCK_STREAM, 0);
		getsockname(listeners[fd], (struct sockaddr *)&at, &length);
		CHECK(connect(to, (struct sockaddr *)&at, sizeof at) != 0);
		from = accept(listeners[fd], NULL, NULL);
		CHECK(write(from, "hello", 5) != 5 || read(to, hello, 5) != 5 || strcmp(hello, "hello") != 0);
	}
}

static _Atomic unsigned count;
static _Atomic int ends_forks;

static void *forks_all_the_time(void *arg) {
	pid_t child;

	while (!ends_forks) {
		if ((child = fork()) == 0) {
			_exit(0);
		}
		count += child > 0;
	}
	return arg;
}

/* Each fork copies the table of many pages. */
static void forking(void) {
	const size_t bytes = (size_t)512 << 20;
	char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t threads[3];
	int i;

	signal(SIGCHLD, SIG_IGN);
	(void)madvise(pages, bytes, MADV_NOHUGEPAGE);
	memset(pages, 1, bytes);
	for (i = 0; i < 3; i++) {
		pthread_create(&threads[i], NULL, forks_all_the_time, NULL);
	}
	while (count == 0) {
	}
	count = 0;
	says("it forks");
	next_line();
	ends_forks = 1;
	printf("%u\n", count);
	for (i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
	}
}

static void ends(void) {
	CUgraph graph;
	CUstream s;

	CHECK(cuStreamCreate(&s, 1));
	next_line();
	says("it ends");
	printf("error %d\n", cuStreamEndCapture(s, &graph));
}

/* Called by the constructor of constructor.c. */
void in_constructor(void) {
	CUdeviceptr at;

	CHECK(cuCtxPushCurrent_v2(context));
	go = 1;
	await_sleep(other);
	CHECK(cuMemAlloc_v2(&at, 64));
}

static void *opens(void *library) { return dlopen(library, RTLD_NOW); }

static void first_call(char *library) {
	pthread_t thread;
	CUdeviceptr at;
	void *opened;

	other = (int)syscall(SYS_gettid);
	pthread_create(&thread, NULL, opens, library);
	while (!go) {
	}
	CHECK(cuMemAlloc_v2(&at, 64)); /* the first from here: the library looks up from where it is called */
	pthread_join(thread, &opened);
	says(opened != NULL ? "opened" : dlerror());
}

static int sockets(void) {
	char path[64], to[64];
	int fd, n = 0;

	for (fd = 3; fd < 64; fd++) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		memset(to, 0, sizeof to);
		n += readlink(path, to, sizeof to - 1) > 0 && strncmp(to, "socket:", 7) == 0;
	}
	return n;
}

/* The thread of the library that makes a pair waits here until another one has forked, or waits to fork. */
int socketpair(int domain, int type, int protocol, int pair[2]) {
	int e = (int)syscall(SYS_socketpair, domain, type, protocol, pair);

	go = 1;
	while (go == 1 && !sleeps(other)) {
	}
	return e;
}

static void forks(void) {
	int status = -1;
	pid_t child;

	other = (int)syscall(SYS_gettid);
	while (!go) {
	}
	if ((child = fork()) == 0) {
		_exit(sockets());
	}
	go = 2;
	waitpid(child, &status, 0);
	printf("sockets of the child: %d\n", WEXITSTATUS(status));
	fflush(stdout);
}

static void *pauses(void *arg) {
	for (;;) {
		pause();
	}
	return arg;
}

static void grows(CUdeviceptr at) {
	pthread_t thread;
	sigset_t usr1;
	int number;

	alarm(0); /* the test ends it */
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	launch("fill", at, 64, NULL);
	while (sigwait(&usr1, &number) == 0) {
		pthread_create(&thread, NULL, pauses, NULL);
	}
}

static void *stays(void *arg) {
	says("ready");
	next_line();
	exit(0);
	return arg;
}

static void leaves(void) {
	pthread_t thread;

	pthread_create(&thread, NULL, stays, NULL);
	pthread_exit(NULL);
}

static int takes(pid_t number) {
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1 };
	pid_t child = (pid_t)syscall(SYS_clone3, &args, sizeof args);

	if (child == 0) {
		(void)pauses(NULL);
	}
	says(child == number ? "ready" : "it is taken");
	next_line();
	return child < 0 || kill(child, SIGKILL) != 0 || waitpid(child, NULL, 0) != child;
}

int main(int argc, char **argv) {
	CUdeviceptr at;

	if (argc == 3 && strcmp(argv[1], "takes") == 0) {
		return takes(atoi(argv[2]));
	}
	alarm(60);
	CHECK(cuInit(0));
	if (strcmp(argv[1], "green") == 0) {
		green();
		return 0;
	}
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxPushCurrent_v2(context));
	CHECK(cuMemAlloc_v2(&at, 4096));
	CHECK(cuEventCreate(&event, 0));
	if (strcmp(argv[1], "held") == 0) {
		cancels(allocates, "cancelled at the gate");
	} else if (strcmp(argv[1], "inside") == 0) {
		cancels(waits, "cancelled in the driver");
	} else if (strcmp(argv[1], "captures") == 0) {
		captures();
	} else if (strcmp(argv[1], "ends") == 0) {
		ends();
	} else if (strcmp(argv[1], "opens") == 0 && argc == 3) {
		first_call(argv[2]);
		return 0;
	} else if (strcmp(argv[1], "destroys") == 0) {
		destroys();
	} else if (strcmp(argv[1], "gone") == 0) {
		gone();
	} else if (strcmp(argv[1], "spoils") == 0) {
		spoils();
	} else if (strcmp(argv[1], "asked") == 0) {
		asked();
	} else if (strcmp(argv[1], "closes") == 0) {
		closes();
	} else if (strcmp(argv[1], "forking") == 0) {
		forking();
	} else if (strcmp(argv[1], "grows") == 0) {
		grows(at);
	} else if (strcmp(argv[1], "leaves") == 0) {
		leaves();
	} else {
		forks();
	}
	says("ready");
	next_line();
	return 0;
}
