/* move.c - copies device memory to the host and back at the rate of the bus. Each thread has two page-locked buffers
 * of its own: while it copies between one and the program's host memory, the device works for the other one and for the
 * other threads. */
#define _GNU_SOURCE
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "library.h"

/* Threads: to the host fewer reach the rate of the bus. */
enum { MOST = 16, MOST_OUT = 8, PAGE = 4096, PIECE = 64 << 20 };
#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif
static const size_t part = 4 << 20;

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

/* A buffer, the stream of its copies, and the chunk that is on its way, or NULL. */
struct half {
	unsigned char *buffer;
	CUstream stream;
	const struct chunk *chunk;
};

/* A thread's state in the driver. */
struct mover {
	CUcontext context;
	void *buffers; /* of both halves */
	struct half halves[2];
};

static void leave(struct mover *m) {
	CUcontext popped;
	struct half *h;

	for (h = m->halves; h < m->halves + 2; h++) {
		if (h->stream != NULL) {
			REAL(cuStreamDestroy_v2)(h->stream);
			h->stream = NULL;
		}
	}
	if (m->context != NULL) {
		REAL(cuCtxPopCurrent_v2)(&popped);
		m->context = NULL;
	}
}

static CUresult enter(struct mover *m, CUcontext context) {
	struct half *h;
	CUresult e;

	if ((e = REAL(cuCtxPushCurrent_v2)(context)) != CUDA_SUCCESS) {
		return e;
	}
	m->context = context;
	if (m->buffers == NULL &&
		(e = REAL(cuMemHostAlloc)(&m->buffers, 2 * part, CU_MEMHOSTALLOC_PORTABLE)) != CUDA_SUCCESS) {
		m->buffers = NULL;
		return e;
	}
	for (h = m->halves; h < m->halves + 2; h++) {
		h->buffer = (unsigned char *)m->buffers + (h == m->halves ? 0 : part);
		if ((e = REAL(cuStreamCreate)(&h->stream, CU_STREAM_NON_BLOCKING)) != CUDA_SUCCESS) {
			h->stream = NULL;
			return e;
		}
	}
	return CUDA_SUCCESS;
}

/* Copies to host memory that is not read soon, past the caches, which so keep the buffers. */
static void store(unsigned char *to, const unsigned char *from, size_t bytes) {
	size_t i = 0;
#ifdef __SSE2__
	__m128i *d = (__m128i *)(void *)to;
	const __m128i *s = (const __m128i *)(const void *)from;

	for (; i + 16 <= bytes; i += 16) {
		_mm_stream_si128(d++, _mm_load_si128(s++));
	}
	_mm_sfence();
#endif
	memcpy(to + i, from + i, bytes - i);
}

/* Waits for the chunk of a half. */
static CUresult finish(struct moving *all, struct half *h) {
	const struct chunk *c = h->chunk;
	CUresult e = CUDA_SUCCESS;

	h->chunk = NULL;
	if (c != NULL && (e = REAL(cuStreamSynchronize)(h->stream)) == CUDA_SUCCESS) {
		if (all->out) {
			store(c->host, h->buffer, c->bytes);
		}
		atomic_fetch_add(&all->moved, c->bytes);
	}
	return e;
}

/* Sends a chunk on its way, by the half that the one before has not taken. */
static CUresult begin(struct moving *all, struct mover *m, const struct chunk *c) {
	struct half *h = &m->halves[0], *other = &m->halves[1], swap;
	CUresult e = finish(all, h);

	if (e == CUDA_SUCCESS && c->context != m->context) {
		if ((e = finish(all, other)) == CUDA_SUCCESS) {
			leave(m);
			e = enter(m, c->context);
		}
	}
	if (e != CUDA_SUCCESS) {
		return e;
	}
	if (!all->out) {
		memcpy(h->buffer, c->host, c->bytes);
	}
	e = all->out ? REAL(cuMemcpyDtoHAsync_v2)(h->buffer, c->at, c->bytes, h->stream)
				 : REAL(cuMemcpyHtoDAsync_v2)(c->at, h->buffer, c->bytes, h->stream);
	if (e == CUDA_SUCCESS) {
		h->chunk = c;
		swap = *h;
		*h = *other;
		*other = swap;
	}
	return e;
}

static void *work(void *arg) {
	struct moving *all = arg;
	struct mover m = { 0 };
	CUresult e = CUDA_SUCCESS, last;
	size_t i;

	while (e == CUDA_SUCCESS && !atomic_load(&all->stop) && (i = atomic_fetch_add(&all->next, 1)) < all->count) {
		e = begin(all, &m, &all->chunks[i]);
	}
	for (i = 0; i < 2; i++) {
		last = finish(all, &m.halves[i]);
		e = e == CUDA_SUCCESS ? last : e;
	}
	if (e != CUDA_SUCCESS) {
		atomic_store(&all->e, e);
		atomic_store(&all->stop, true);
	}
	if (m.buffers != NULL) {
		REAL(cuMemFreeHost)(m.buffers);
	}
	leave(&m);
	atomic_fetch_sub(&all->threads, 1);
	return NULL;
}

/* Cuts the mappings into chunks; SIZE_MAX: there is no memory for that. The program has no blocks on a device if it has
 * no context there: the mappings are empty. */
static size_t cut(const struct hf_mapping *list, size_t count, unsigned char *host, struct moving *all) {
	CUcontext context = NULL;
	size_t i, at, total = 0, offset = 0, chunks = 0;
	int device = -1;

	for (i = 0; i < count; i++) {
		chunks += (list[i].bytes + part - 1) / part;
	}
	if ((all->chunks = calloc(chunks + 1, sizeof *all->chunks)) == NULL) {
		return SIZE_MAX;
	}
	for (i = 0; i < count; i++) {
		if (list[i].device != device) {
			context = hf_context_of(device = list[i].device);
		}
		for (at = 0; context != NULL && at < list[i].bytes; at += part) {
			all->chunks[all->count++] = (struct chunk){ list[i].at + at, host + offset + at,
				list[i].bytes - at < part ? list[i].bytes - at : part, context };
		}
		offset += list[i].bytes;
		total += context != NULL ? list[i].bytes : 0;
	}
	return total;
}

static unsigned threads_of(size_t chunks, size_t most) {
	size_t n = 1;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set) == 0) {
		n = (size_t)CPU_COUNT(&set);
	}
	n = n > most ? most : n;
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
	unsigned n = 0, want = threads_of((bytes + PIECE - 1) / PIECE, MOST);

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
		snprintf(why, HF_WHY, "there is no memory to copy with");
		return false;
	}
	want = threads_of(all.count, out ? MOST_OUT : MOST);
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
