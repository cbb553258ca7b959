/* move.c - copies device memory to the host and back at the rate of the bus. Each thread has a page-locked buffer
 * of its own: while it copies between that and the program's host memory, the device works for the others. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "library.h"

enum { MOST = 16 /* threads */, PAGE = 4096, PIECE = 64 << 20 };
#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif
static const size_t part = 8 << 20;

struct chunk {
	CUdeviceptr at;
	unsigned char *host;
	size_t bytes;
	CUcontext context;
};

struct moving {
	struct chunk *chunks;
	size_t count;
	bool out;
	_Atomic size_t next, moved;
	_Atomic unsigned threads;
	_Atomic CUresult e;
	_Atomic bool stop;
};

/* A thread's state in the driver. */
struct mover {
	CUcontext context;
	CUstream stream;
	void *buffer;
};

static void leave(struct mover *m) {
	CUcontext popped;

	if (m->stream != NULL) {
		REAL(cuStreamDestroy_v2)(m->stream);
		m->stream = NULL;
	}
	if (m->context != NULL) {
		REAL(cuCtxPopCurrent_v2)(&popped);
		m->context = NULL;
	}
}

static CUresult enter(struct mover *m, CUcontext context) {
	CUresult e;

	if (m->context == context) {
		return CUDA_SUCCESS;
	}
	leave(m);
	if ((e = REAL(cuCtxPushCurrent_v2)(context)) != CUDA_SUCCESS) {
		return e;
	}
	m->context = context;
	if ((e = REAL(cuStreamCreate)(&m->stream, CU_STREAM_NON_BLOCKING)) != CUDA_SUCCESS) {
		m->stream = NULL;
		return e;
	}
	return m->buffer != NULL ? CUDA_SUCCESS : REAL(cuMemHostAlloc)(&m->buffer, part, CU_MEMHOSTALLOC_PORTABLE);
}

static CUresult copy(struct mover *m, const struct chunk *c, bool out) {
	CUresult e = enter(m, c->context);

	if (e != CUDA_SUCCESS) {
		return e;
	}
	if (!out) {
		memcpy(m->buffer, c->host, c->bytes);
	}
	e = out ? REAL(cuMemcpyDtoHAsync_v2)(m->buffer, c->at, c->bytes, m->stream)
			: REAL(cuMemcpyHtoDAsync_v2)(c->at, m->buffer, c->bytes, m->stream);
	if (e == CUDA_SUCCESS && (e = REAL(cuStreamSynchronize)(m->stream)) == CUDA_SUCCESS && out) {
		memcpy(c->host, m->buffer, c->bytes);
	}
	return e;
}

static void *work(void *arg) {
	struct moving *all = arg;
	struct mover m = { 0 };
	CUresult e = CUDA_SUCCESS;
	size_t i;

	while (e == CUDA_SUCCESS && !atomic_load(&all->stop) && (i = atomic_fetch_add(&all->next, 1)) < all->count) {
		if ((e = copy(&m, &all->chunks[i], all->out)) == CUDA_SUCCESS) {
			atomic_fetch_add(&all->moved, all->chunks[i].bytes);
		}
	}
	if (e != CUDA_SUCCESS) {
		atomic_store(&all->e, e);
		atomic_store(&all->stop, true);
	}
	if (m.buffer != NULL) {
		REAL(cuMemFreeHost)(m.buffer);
	}
	leave(&m);
	atomic_fetch_sub(&all->threads, 1);
	return NULL;
}

CUcontext hf_context_of(int device) {
	CUcontext context, popped;
	CUdevice of;
	bool is;
	size_t i;

	for (i = 0;; i++) {
		hf_ledger_lock();
		context = i < hf_ledger.context_count ? hf_ledger.contexts[i] : NULL;
		hf_ledger_unlock();
		if (context == NULL) {
			return NULL;
		}
		if (REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS) {
			is = REAL(cuCtxGetDevice)(&of) == CUDA_SUCCESS && of == device;
			REAL(cuCtxPopCurrent_v2)(&popped);
			if (is) {
				return context;
			}
		}
	}
}

/* Cuts the mappings into chunks; SIZE_MAX: there is no memory or no context for them. */
static size_t cut(const struct hf_mapping *list, size_t count, unsigned char *host, struct moving *all) {
	CUcontext context = NULL;
	size_t i, at, total = 0, chunks = 0;
	int device = -1;

	for (i = 0; i < count; i++) {
		chunks += (list[i].bytes + part - 1) / part;
	}
	if ((all->chunks = calloc(chunks + 1, sizeof *all->chunks)) == NULL) {
		return SIZE_MAX;
	}
	for (i = 0; i < count; i++) {
		if (list[i].device != device && (context = hf_context_of(device = list[i].device)) == NULL) {
			return SIZE_MAX;
		}
		for (at = 0; at < list[i].bytes; at += part) {
			all->chunks[all->count++] = (struct chunk){ list[i].at + at, host + total + at,
				list[i].bytes - at < part ? list[i].bytes - at : part, context };
		}
		total += list[i].bytes;
	}
	return total;
}

static unsigned threads_of(size_t chunks) {
	size_t n = 1;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set) == 0) {
		n = (size_t)CPU_COUNT(&set);
	}
	n = n > MOST ? MOST : n;
	return (unsigned)(n > chunks ? chunks : n);
}

struct touching {
	unsigned char *at;
	size_t bytes;
	_Atomic size_t next;
};

/* The kernel makes pages where the first write comes, or all at once on request. */
static void *touch(void *arg) {
	struct touching *t = arg;
	size_t from, n, i;

	while ((from = atomic_fetch_add(&t->next, PIECE)) < t->bytes) {
		n = t->bytes - from < PIECE ? t->bytes - from : PIECE;
		if (madvise(t->at + from, n, MADV_POPULATE_WRITE) != 0) {
			for (i = 0; i < n; i += PAGE) {
				((volatile unsigned char *)t->at)[from + i] = 0;
			}
		}
	}
	return NULL;
}

void hf_touch(unsigned char *at, size_t bytes) {
	struct touching t = { .at = at, .bytes = bytes };
	pthread_t threads[MOST];
	unsigned n = 0, want = threads_of((bytes + PIECE - 1) / PIECE);

	while (n + 1 < want && pthread_create(&threads[n], NULL, touch, &t) == 0) {
		n++;
	}
	(void)touch(&t);
	while (n > 0) {
		pthread_join(threads[--n], NULL);
	}
}

bool hf_move(const struct hf_mapping *list, size_t count, unsigned char *host, bool out, hf_progress *progress,
	char why[HF_WHY]) {
	struct timespec nap = { .tv_nsec = 1000000 };
	struct moving all = { .out = out };
	size_t total = cut(list, count, host, &all);
	double said = hf_now();
	pthread_t threads[MOST];
	unsigned n = 0, want, i;
	bool done;

	if (total == SIZE_MAX) {
		free(all.chunks);
		snprintf(why, HF_WHY, "there is no memory to copy with, or no context to copy in");
		return false;
	}
	want = threads_of(all.count);
	atomic_store(&all.threads, want);
	while (n < want && pthread_create(&threads[n], NULL, work, &all) == 0) {
		n++;
	}
	atomic_fetch_sub(&all.threads, want - n);
	while (atomic_load(&all.threads) > 0) {
		nanosleep(&nap, NULL);
		if (hf_now() > said + 0.2) {
			said = hf_now();
			if (!progress(atomic_load(&all.moved), total)) {
				atomic_store(&all.stop, true);
			}
		}
	}
	for (i = 0; i < n; i++) {
		pthread_join(threads[i], NULL);
	}
	done = atomic_load(&all.moved) == total;
	if (!done) {
		snprintf(why, HF_WHY, "only %zu of %zu bytes could be copied %s: %s", atomic_load(&all.moved), total,
			out ? "to the host" : "to the device",
			atomic_load(&all.e) != CUDA_SUCCESS ? hf_error(atomic_load(&all.e))
				: n == 0                        ? "no thread could be started"
												: "nobody waits for it any more");
	}
	free(all.chunks);
	return done;
}
