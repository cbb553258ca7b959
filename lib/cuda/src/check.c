/* check.c - HOLDFAST_CUDA_CHECK: at random moments all device memory is copied to the host, scribbled over and copied
 * back, and the program goes on. If it then computes the usual result, all its memory is in the ledger. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "library.h"

_Atomic int hf_captures;

/* The copies of a roll back. */
struct saved {
	const struct hf_block *block;
	CUcontext context;
	unsigned char *bytes;
};

static struct {
	_Atomic uint64_t calls, next; /* calls so far, and the one that the next roll back is due at */

	pthread_mutex_t turn; /* of the thread that makes a roll back; guards: */
	uint64_t *moments;    /* sorted */
	unsigned at, made, failed, postponed;
	size_t blocks, bytes, left[HF_KINDS]; /* of the last */
	double seconds;

	pthread_mutex_t lock; /* guards: */
	CUstream captured;    /* the last whose capture began */
	CUdeviceptr lacks[256];
	unsigned lack_count, unknown;
} check = { .turn = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .next = UINT64_MAX };

void hf_say(const char *format, ...) {
	char line[512];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	if (n >= 0) {
		dprintf(STDERR_FILENO, "holdfast-cuda: %s\n", line);
	}
}

double hf_now(void) {
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *hf_error(CUresult e) {
	const char *name = NULL;

	if (REAL(cuGetErrorName) == NULL || REAL(cuGetErrorName)(e, &name) != CUDA_SUCCESS || name == NULL) {
		return "an unknown error";
	}
	return name;
}

/* splitmix64, so that a seed means the same moments everywhere. */
static uint64_t draw(uint64_t *state) {
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static int ascending(const void *a, const void *b) {
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The first moment is among the first calls, and each further one is drawn from a range that is twice as long, up to
 * HOLDFAST_CUDA_CALLS: a program of few calls has some, too. */
void hf_check_start(void) {
	unsigned k = hf_settings.moments, i;
	uint64_t state = hf_settings.seed, range;

	if (k == 0 || (check.moments = calloc(k, sizeof *check.moments)) == NULL) {
		return;
	}
	for (i = 0; i < k; i++) {
		range = k - 1 - i < 63 ? hf_settings.calls >> (k - 1 - i) : 0;
		check.moments[i] = 1 + draw(&state) % (range > 4 ? range : 4);
	}
	qsort(check.moments, k, sizeof *check.moments, ascending);
	atomic_store(&check.next, check.moments[0]);
}

void hf_check_captures(CUstream stream) {
	if (hf_settings.moments == 0) {
		return;
	}
	pthread_mutex_lock(&check.lock);
	check.captured = stream;
	pthread_mutex_unlock(&check.lock);
}

/* Waits for a stream, which is looked at rather than waited for: its work may never end. */
static bool idle(const struct hf_stream *s, double until) {
	struct timespec nap = { .tv_nsec = 20000 };
	CUresult e;

	while ((e = REAL(cuStreamQuery)((CUstream)s->stream)) == CUDA_ERROR_NOT_READY) {
		if (hf_now() > until) {
			hf_say("no roll back at call %llu: stream %#zx has been busy for %g s; its last call is %s, call %llu",
				(unsigned long long)atomic_load(&check.calls), (size_t)s->stream, hf_settings.wait,
				s->call == HF_COUNT ? "none" : hf_names[s->call], (unsigned long long)s->number);
			return false;
		}
		nanosleep(&nap, NULL);
	}
	if (e != CUDA_SUCCESS) {
		hf_say("no roll back: stream %#zx: %s", (size_t)s->stream, hf_error(e));
	}
	return e == CUDA_SUCCESS;
}

/* Whether nothing is under way in a context. */
static bool quiet(CUcontext context, double until) {
	CUresult e = REAL(cuCtxPushCurrent_v2)(context);
	bool is = true;
	size_t i;

	if (e != CUDA_SUCCESS) {
		hf_say("no roll back: context %p: %s", (void *)context, hf_error(e));
		return false;
	}
	for (i = 0; is && i < hf_streams.count; i++) {
		is = hf_streams.list[i].context != context || idle(&hf_streams.list[i], until);
	}
	if (is && (e = REAL(cuCtxSynchronize)()) != CUDA_SUCCESS) {
		hf_say("no roll back: context %p: %s", (void *)context, hf_error(e));
		is = false;
	}
	REAL(cuCtxPopCurrent_v2)(&context);
	return is;
}

/* Whether a roll back covers a block. The rest is counted, and reported at the end. */
static bool kept(const struct hf_block *b) {
	switch (b->kind) {
	case HF_DEVICE:
	case HF_PITCHED:
	case HF_POOL:
	case HF_VARIABLE:
	case HF_ARRAY:
	case HF_MIPMAPPED:
		return b->bytes != 0 && (b->asker == NULL || !b->asker->transport);
	case HF_MAPPED:
		return b->reachable && (b->asker == NULL || !b->asker->transport);
	default:
		return false;
	}
}

/* Copies a block to the host or back. */
static bool copy(const struct saved *s, unsigned char *bytes, bool out) {
	const struct hf_block *b = s->block;
	CUresult e = REAL(cuCtxPushCurrent_v2)(s->context);
	CUcontext popped;

	if (e == CUDA_SUCCESS) {
		e = hf_is_array(b->kind) ? hf_array_copy(b, bytes, out)
			: out                ? REAL(cuMemcpyDtoH_v2)(bytes, b->at, b->bytes)
								 : REAL(cuMemcpyHtoD_v2)(b->at, bytes, b->bytes);
		REAL(cuCtxPopCurrent_v2)(&popped);
	}
	if (e != CUDA_SUCCESS) {
		hf_say("%s memory at %#llx, %zu bytes, cannot be copied %s: %s", hf_kinds[b->kind], b->at, b->bytes,
			out ? "to the host" : "back", hf_error(e));
	}
	return e == CUDA_SUCCESS;
}

/* Whether a block holds the saved bytes. */
static bool same(const struct saved *s) {
	unsigned char *now = malloc(s->block->bytes);
	bool is = now != NULL && copy(s, now, true) && memcmp(now, s->bytes, s->block->bytes) == 0;

	free(now);
	return is;
}

static bool scribble(const struct saved *s) {
	unsigned char *other, value = (unsigned char)(0xa5 + check.at);
	CUcontext popped;
	CUresult e;
	bool done;

	if (hf_is_array(s->block->kind)) {
		if ((other = malloc(s->block->bytes)) == NULL) {
			return false;
		}
		memset(other, value, s->block->bytes);
		done = copy(s, other, false);
		free(other);
		return done;
	}
	if ((e = REAL(cuCtxPushCurrent_v2)(s->context)) == CUDA_SUCCESS) {
		if ((e = REAL(cuMemsetD8_v2)(s->block->at, value, s->block->bytes)) == CUDA_SUCCESS) {
			e = REAL(cuCtxSynchronize)();
		}
		REAL(cuCtxPopCurrent_v2)(&popped);
	}
	return e == CUDA_SUCCESS;
}

/* Copies all that is kept to the host. Nothing has changed on the device if that fails. */
static bool save(struct saved *all, size_t *count) {
	const struct hf_block *b;
	struct saved *s;
	size_t i;

	check.blocks = check.bytes = 0;
	memset(check.left, 0, sizeof check.left);
	for (i = 0; i < hf_ledger.count; i++) {
		b = hf_ledger.blocks[i];
		s = &all[*count];
		if (!kept(b) || (s->context = hf_ledger_context_for(b)) == NULL) {
			check.left[b->kind]++;
			continue;
		}
		s->block = b;
		if ((s->bytes = malloc(b->bytes)) == NULL) {
			hf_say("no roll back: the host has no %zu bytes for a copy", b->bytes);
			return false;
		}
		++*count;
		if (!copy(s, s->bytes, true)) {
			return false;
		}
		check.blocks++;
		check.bytes += b->bytes;
	}
	for (i = 0; i < *count; i++) {
		if (!same(&all[i])) {
			hf_say("no roll back: memory at %#llx, %zu bytes, changes while all calls are held", all[i].block->at,
				all[i].block->bytes);
			return false;
		}
	}
	return true;
}

static bool roll(void) {
	struct saved *all = calloc(hf_ledger.count + 1, sizeof *all);
	size_t count = 0, written = 0, i;
	bool done = all != NULL && save(all, &count);

	while (done && written < count) {
		if (!(done = scribble(&all[written++]))) {
			hf_say("no roll back: memory at %#llx cannot be written", all[written - 1].block->at);
		}
	}
	for (i = 0; i < written; i++) {
		if (!copy(&all[i], all[i].bytes, false) || !same(&all[i])) {
			hf_say("memory at %#llx, %zu bytes, is not what was copied back: the program cannot go on",
				all[i].block->at, all[i].block->bytes);
			abort();
		}
	}
	for (i = 0; i < count; i++) {
		free(all[i].bytes);
	}
	free(all);
	return done;
}

enum outcome { FAILED, DONE, LATER };

/* Holds all calls, waits for the device and rolls back. */
static enum outcome roll_back(double until) {
	unsigned other = hf_gate_close(until);
	bool done = true;
	size_t i;

	if (other != HF_COUNT) {
		hf_say("no roll back at call %llu: another thread has been in %s for %g s",
			(unsigned long long)atomic_load(&check.calls), hf_names[other], hf_settings.wait);
		return FAILED;
	}
	if (atomic_load(&hf_captures) > 0) { /* since this thread has looked */
		hf_gate_open();
		return LATER;
	}
	hf_ledger_lock();
	if (hf_ledger.lost) {
		hf_say("no roll back: there was no memory to write down all allocations");
		done = false;
	}
	hf_streams_lock();
	for (i = 0; done && i < hf_ledger.context_count; i++) {
		done = quiet(hf_ledger.contexts[i].context, until);
	}
	hf_streams_unlock();
	done = done && roll();
	hf_ledger_unlock();
	hf_gate_open();
	return done ? DONE : FAILED;
}

/* Makes the roll back that is due, unless another thread does so or a stream is being captured: then the next call
 * tries. */
static void moment(uint64_t number) {
	double began = hf_now();
	enum outcome is;
	uint64_t next;

	if (pthread_mutex_trylock(&check.turn) != 0) {
		return;
	}
	if (number < atomic_load(&check.next) || atomic_load(&hf_captures) > 0 ||
		(is = roll_back(began + hf_settings.wait)) == LATER) {
		check.postponed += number >= atomic_load(&check.next);
		pthread_mutex_unlock(&check.turn);
		return;
	}
	if (is == DONE) {
		check.made++;
		check.seconds += hf_now() - began;
	} else {
		check.failed++;
	}
	next = ++check.at < hf_settings.moments ? check.moments[check.at] : UINT64_MAX;
	atomic_store(&check.next, next > number ? next : number + 1);
	pthread_mutex_unlock(&check.turn);
}

/* Unregistered host memory is unknown to the driver. */
static bool on_device(CUdeviceptr at) {
	int type = 0, managed = 0;

	return REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) == CUDA_SUCCESS &&
		type == CU_MEMORYTYPE_DEVICE &&
		(REAL(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at) != CUDA_SUCCESS || !managed);
}

void hf_check_lacks(unsigned call, CUdeviceptr at) {
	CUdeviceptr base = at;
	size_t bytes = 0;
	unsigned i;

	if (REAL(cuMemGetAddressRange_v2)(&base, &bytes, at) != CUDA_SUCCESS) {
		base = at;
	}
	pthread_mutex_lock(&check.lock);
	for (i = 0; i < check.lack_count && i < sizeof check.lacks / sizeof *check.lacks; i++) {
		if (check.lacks[i] == base) {
			pthread_mutex_unlock(&check.lock);
			return;
		}
	}
	if (i < sizeof check.lacks / sizeof *check.lacks) {
		check.lacks[i] = base;
	}
	check.lack_count++;
	pthread_mutex_unlock(&check.lock);
	hf_say("%s uses device memory at %#llx, %zu bytes from %#llx, that is not in the ledger", hf_names[call], at, bytes,
		base);
}

void hf_check_unknown(const char *name, int version) {
	if (!hf_settings.gate) {
		return;
	}
	pthread_mutex_lock(&check.lock);
	check.unknown++;
	pthread_mutex_unlock(&check.lock);
	hf_say("the driver's %s of version %d is none that it exports: the library does not see its calls", name, version);
}

/* The first address behind a block, as the end of a range is. If a block of the driver begins there, it is meant. */
static bool ends_block(CUdeviceptr at) {
	CUdeviceptr base;

	return hf_ledger_covers(at - 1) && (REAL(cuMemGetAddressRange_v2)(&base, NULL, at) != CUDA_SUCCESS || base != at);
}

void hf_check_address(unsigned call, CUdeviceptr at) {
	if (at != 0 && atomic_load(&hf_captures) == 0 && !hf_ledger_covers(at) && on_device(at) && !ends_block(at)) {
		hf_check_lacks(call, at);
	}
}

void hf_check_look(unsigned call, hf_word stream, CUdeviceptr first, CUdeviceptr second) {
	uint64_t number;

	if (hf_self != NULL && atomic_load_explicit(&hf_self->inside, memory_order_relaxed) != 0) {
		return; /* the driver's own */
	}
	number = atomic_fetch_add(&check.calls, 1) + 1;
	if (number >= atomic_load(&check.next)) {
		moment(number);
	}
	hf_check_address(call, first);
	hf_check_address(call, second);
	hf_streams_note(stream, call, number);
}

/* The last word, for people and tests. */
__attribute__((destructor)) static void report(void) {
	char left[256] = "nothing";
	size_t n = 0, i;

	if (hf_settings.moments == 0) {
		return;
	}
	for (i = 0; i < HF_KINDS; i++) {
		if (check.left[i] != 0 && n < sizeof left) {
			n += (size_t)snprintf(left + n, sizeof left - n, "%s%zu %s", n > 0 ? ", " : "", check.left[i], hf_kinds[i]);
		}
	}
	hf_say(
		"%u of %u roll backs in %.3f s, %u failed, during %llu calls; the last one of %zu blocks, %zu bytes; left as "
		"they were: %s; not in the ledger: %u; calls not seen: %u functions; "
		"launches not looked at: %llu",
		check.made, hf_settings.moments, check.seconds, check.failed, (unsigned long long)atomic_load(&check.calls),
		check.blocks, check.bytes, left, check.lack_count, check.unknown, (unsigned long long)hf_kernel_unknown());
	if (check.at < hf_settings.moments && check.postponed > 0) {
		hf_say("%u calls came while a stream was being captured, the last was %p", check.postponed,
			(void *)check.captured);
	} else if (check.at < hf_settings.moments) {
		hf_say("set HOLDFAST_CUDA_CALLS=%llu for roll backs among the calls that the program makes",
			(unsigned long long)atomic_load(&check.calls));
	}
}
