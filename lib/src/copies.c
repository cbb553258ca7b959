/* copies.c - copies of large arrays. Threads that live as long as the copy help with it where the process may use
 * several cores; the program sees none of them. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "client.h"

enum {
	PIECE = 4 << 20,  /* copied at a time: whole pages */
	ALONE = 32 << 20, /* up to so much a helper is not worth its start */
	MOST_HELPERS = 3, /* few cores take all that memory gives */
	STACK = 256 << 10
};

struct work {
	hf_piece_fn *move;
	void *arg;
	size_t bytes;
	char *once;
	_Atomic size_t next; /* the part that no thread copies yet begins here */
};

static void *help(void *arg) {
	struct work *w = arg;
	size_t at;

	while ((at = atomic_fetch_add(&w->next, PIECE)) < w->bytes) {
		const size_t n = w->bytes - at < PIECE ? w->bytes - at : PIECE;
		w->move(w->arg, at, n);
		if (w->once != NULL) {
			(void)madvise(w->once + at, n, MADV_DONTNEED); /* unmapping it later is as much work, for one alone */
		}
	}
	return NULL;
}

/* How many cores this process may use. */
static int cores(void) {
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static int start(struct work *w, pthread_t *helpers, int most) {
	pthread_attr_t attr;
	sigset_t all, was;
	int n = 0;

	if (pthread_attr_init(&attr) != 0) {
		return 0;
	}
	sigfillset(&all); /* signals are for the threads of the program */
	if (pthread_attr_setstacksize(&attr, STACK) == 0 && pthread_sigmask(SIG_SETMASK, &all, &was) == 0) {
		while (n < most && pthread_create(&helpers[n], &attr, help, w) == 0) {
			n++;
		}
		pthread_sigmask(SIG_SETMASK, &was, NULL);
	}
	pthread_attr_destroy(&attr);
	return n;
}

void hf_copy_pieces(hf_piece_fn *move, void *arg, size_t bytes, char *once) {
	struct work w = { .move = move, .arg = arg, .bytes = bytes, .once = once, .next = 0 };
	pthread_t helpers[MOST_HELPERS];
	int most = bytes > ALONE ? cores() - 1 : 0, n;

	n = start(&w, helpers, most < MOST_HELPERS ? most : MOST_HELPERS);
	help(&w);
	while (n > 0) {
		pthread_join(helpers[--n], NULL);
	}
}

struct memory {
	char *to;
	const char *from;
};

static void copy_piece(void *arg, size_t at, size_t n) {
	const struct memory *m = arg;

	memcpy(m->to + at, m->from + at, n);
}

void hf_copy(char *to, const char *from, size_t bytes, bool once) {
	struct memory m = { to, from };

	hf_copy_pieces(copy_piece, &m, bytes, once ? (char *)(uintptr_t)from : NULL);
}
