/* Stands between MPICH and UCX: a rank that has looked for messages in vain yields its
 * core, and sleeps for a moment at a time once it has done so often. */
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { YIELDS = 100, SLEEP_NS = 10000 }; /* the kernel makes some 60 us of it */

typedef unsigned (*progress_fn)(void *worker);

static progress_fn find(void)
{
	void *lib = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD); /* the caller is linked to it */
	progress_fn f = NULL;

	if (lib != NULL)
		*(void **)&f = dlsym(lib, "ucp_worker_progress");
	if (f == NULL) {
		fprintf(stderr, "yield: no ucp_worker_progress in libucp.so.0\n");
		abort();
	}
	return f;
}

unsigned ucp_worker_progress(void *worker)
{
	static _Thread_local progress_fn next;
	static _Thread_local unsigned idle;

	if (next == NULL)
		next = find();
	unsigned done = next(worker);
	if (done > 0) {
		idle = 0;
	} else if (idle < YIELDS) {
		idle++;
		sched_yield();
	} else {
		nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL); /* cut short is as good */
	}
	return done;
}
