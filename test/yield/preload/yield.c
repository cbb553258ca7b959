/* Stands between MPI libraries and what looks for messages on their behalf, UCX below MPICH and libopen-pal in Open
 * MPI: a rank that has looked in vain yields its core, and sleeps for a moment at a time once it has done so often. */
#include <dlfcn.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The kernel makes some 60 us of the first sleeps. A rank that has waited for some ms sleeps longer: many ranks that
 * look so often leave little of two cores to those that compute. */
enum { YIELDS = 100, SHORT = 100, SHORT_NS = 10000, LONG_NS = 400000 };

typedef unsigned (*ucx_fn)(void *worker);
typedef void (*opal_fn)(void);

/* The function of a library that its caller has loaded. */
static void *find(const char *lib, const char *name)
{
	void *handle = dlopen(lib, RTLD_LAZY | RTLD_NOLOAD);
	void *f = handle != NULL ? dlsym(handle, name) : NULL;

	if (f == NULL) {
		fprintf(stderr, "yield: no %s in %s\n", name, lib);
		abort();
	}
	return f;
}

/* After each look: found is whether there was something to do. */
static void looked(bool found)
{
	static _Thread_local unsigned vain;

	if (found) {
		vain = 0;
	} else if (vain < YIELDS) {
		vain++;
		syscall(SYS_sched_yield);
	} else {
		bool brief = vain < YIELDS + SHORT;

		vain += brief;
		nanosleep(&(struct timespec){.tv_nsec = brief ? SHORT_NS : LONG_NS}, NULL); /* cut short is as good */
	}
}

unsigned ucp_worker_progress(void *worker)
{
	static _Thread_local ucx_fn next;

	if (next == NULL)
		*(void **)&next = find("libucp.so.0", "ucp_worker_progress");
	unsigned done = next(worker);
	looked(done > 0);
	return done;
}

/* Open MPI yields itself where there was nothing to do, if mpi_yield_when_idle is set: only that tells. */
static _Thread_local bool looking, yielded;

int sched_yield(void)
{
	if (!looking)
		return (int)syscall(SYS_sched_yield);
	yielded = true;
	return 0;
}

void opal_progress(void)
{
	static _Thread_local opal_fn next;
	bool outer = looking;

	if (next == NULL)
		*(void **)&next = find("libopen-pal.so.40", "opal_progress");
	looking = true;
	yielded = false;
	next();
	looking = outer;
	looked(!yielded);
}
