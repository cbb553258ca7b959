/* pause.c - gives up all device memory of the program and takes it again: the library itself copies the contents of the
 * arena, to the host or, in a move, by the holder from device to device; the driver's own checkpoint takes the rest.
 * Addresses, streams and graphs stay as they are. Only the door's thread calls this. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "library.h"

enum { LOCK_MS = 10000, LEAVE = 10 /* seconds */, DEVICES = 64 };

static struct {
	enum hf_phase phase;
	struct hf_mapping *list;
	size_t count, bytes;
	unsigned char *host;
	size_t room;  /* of host */
	double since; /* by hf_now, while it is HF_STOPPED */
	/* Devices, in the order of their numbers, and behind them others that a resume has named: as they were before
	 * the stop, and the place of the program now. */
	struct place {
		CUuuid was, is;
	} places[DEVICES];
	size_t place_count;
} stop;

enum hf_phase hf_pause_phase(void) { return stop.phase; }

double hf_pause_seconds(void) { return stop.phase == HF_STOPPED ? hf_now() - stop.since : 0; }

/* Waits for all contexts in a thread of its own, since work may never end. It outlives an attempt. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool runs;
	CUcontext in; /* the context that it waits for, or NULL */
	CUresult e;
	struct hf_used *contexts;
	size_t count;
} waiter = { .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER };

/* The program may go on meanwhile, and end contexts: the driver does not notice that one is pushed which has ended. */
static void *wait_for_all(void *arg) {
	CUcontext context, popped;
	CUresult e = CUDA_SUCCESS;
	size_t i;

	pthread_mutex_lock(&waiter.lock);
	for (i = 0; i < waiter.count && e == CUDA_SUCCESS; i++) {
		if ((context = waiter.in = waiter.contexts[i].context) == NULL) {
			continue;
		}
		pthread_mutex_unlock(&waiter.lock);
		if ((e = REAL(cuCtxPushCurrent_v2)(context)) == CUDA_SUCCESS) {
			e = REAL(cuCtxSynchronize)();
			REAL(cuCtxPopCurrent_v2)(&popped);
		}
		pthread_mutex_lock(&waiter.lock);
		waiter.in = NULL;
		pthread_cond_broadcast(&waiter.ended);
	}
	waiter.e = e;
	waiter.runs = false;
	pthread_cond_broadcast(&waiter.ended);
	pthread_mutex_unlock(&waiter.lock);
	return arg;
}

/* A child has no waiter. */
void hf_pause_child(void) {
	pthread_mutex_init(&waiter.lock, NULL);
	waiter.runs = false;
}

static bool start_waiter(void) {
	struct hf_used *own;
	pthread_t thread;
	bool has;

	hf_ledger_lock();
	own = realloc(waiter.contexts, (hf_ledger.context_count + 1) * sizeof *own);
	if ((has = own != NULL)) {
		waiter.contexts = own;
		waiter.count = hf_ledger.context_count;
		memcpy(own, hf_ledger.contexts, waiter.count * sizeof *own);
	}
	hf_ledger_unlock();
	if (!has || pthread_create(&thread, NULL, wait_for_all, NULL) != 0) {
		return false;
	}
	pthread_detach(thread);
	return waiter.runs = true;
}

/* Waits for the waiter to come further, for some seconds at most. The lock is held. */
static void await(double seconds) {
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += (time_t)seconds;
	t.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&waiter.ended, &waiter.lock, &t);
}

/* Whether the waiter ends in time. The lock is held. */
static bool ended(double until) {
	double left;

	while (waiter.runs && (left = until - hf_now()) > 0) {
		await(left);
	}
	return !waiter.runs;
}

/* Work of a context that ends may never end. */
void hf_pause_leave(CUcontext context) {
	double until = hf_now() + LEAVE, left;
	size_t i;

	pthread_mutex_lock(&waiter.lock);
	for (i = 0; waiter.runs && i < waiter.count; i++) {
		if (waiter.contexts[i].context == context) {
			waiter.contexts[i].context = NULL;
		}
	}
	while (waiter.runs && waiter.in == context && (left = until - hf_now()) > 0) {
		await(left);
	}
	pthread_mutex_unlock(&waiter.lock);
}

/* Names the stream that is busy, and the last call that submitted work to it. */
static void name_busy(char why[HF_WHY]) {
	unsigned call = HF_COUNT;
	const struct hf_stream *s;
	CUstream busy = NULL;
	CUcontext popped;
	size_t i;

	hf_streams_lock();
	for (i = 0; i < hf_streams.count && busy == NULL; i++) {
		s = &hf_streams.list[i];
		if (s->stream > CU_STREAM_PER_THREAD && REAL(cuCtxPushCurrent_v2)(s->context) == CUDA_SUCCESS) {
			if (REAL(cuStreamQuery)((CUstream)s->stream) == CUDA_ERROR_NOT_READY) {
				busy = (CUstream)s->stream;
			}
			REAL(cuCtxPopCurrent_v2)(&popped);
		}
	}
	hf_streams_unlock();
	call = hf_gate_call((hf_word)busy);
	if (busy != NULL) {
		snprintf(why, HF_WHY, "stream %p is busy; the last call of it is %s", (void *)busy,
			call == HF_COUNT ? "not known" : hf_names[call]);
	} else {
		snprintf(why, HF_WHY, "a default stream is busy; the last call of one is %s",
			call == HF_COUNT ? "not known" : hf_names[call]);
	}
}

static bool idle(double until, char why[HF_WHY]) {
	size_t i;
	bool is;

	pthread_mutex_lock(&waiter.lock);
	is = ended(until); /* the event that an earlier attempt waits for */
	if (is) {
		if (!start_waiter()) {
			snprintf(why, HF_WHY, "no thread could be started");
			pthread_mutex_unlock(&waiter.lock);
			return false;
		}
		is = ended(until);
	}
	if (!is) {
		name_busy(why);
		for (i = 0; i < waiter.count; i++) { /* the program goes on: its captures would be spoilt */
			waiter.contexts[i].context = NULL;
		}
	} else if (waiter.e != CUDA_SUCCESS) {
		snprintf(why, HF_WHY, "the device reports %s", hf_error(waiter.e));
		is = false;
	}
	pthread_mutex_unlock(&waiter.lock);
	return is;
}

/* Obstacles to the driver's checkpoint, found before anything has changed. */
static bool device_refuses(char why[HF_WHY]) {
	CUuuid whole, part;
	int count = 0, i, mps;

	if (REAL(cuDeviceGetCount)(&count) != CUDA_SUCCESS) {
		count = 0;
	}
	for (i = 0; i < count; i++) {
		if (REAL(cuDeviceGetAttribute)(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, i) == CUDA_SUCCESS && mps) {
			snprintf(why, HF_WHY, "device %d is shared by MPS", i);
			return true;
		}
		if (REAL(cuDeviceGetUuid) != NULL && REAL(cuDeviceGetUuid_v2) != NULL &&
			REAL(cuDeviceGetUuid)(&whole, i) == CUDA_SUCCESS && REAL(cuDeviceGetUuid_v2)(&part, i) == CUDA_SUCCESS &&
			memcmp(&whole, &part, sizeof whole) != 0) {
			snprintf(why, HF_WHY, "device %d is a part of a GPU (MIG)", i);
			return true;
		}
	}
	return false;
}

bool hf_pause_refused(char why[HF_WHY]) {
	const struct hf_block *b;
	size_t i;

	*why = 0;
	if (REAL(cuCheckpointProcessLock) == NULL || REAL(cuCheckpointProcessCheckpoint) == NULL ||
		REAL(cuCheckpointProcessRestore) == NULL || REAL(cuCheckpointProcessUnlock) == NULL) {
		snprintf(why, HF_WHY, "the driver cannot take a checkpoint; version 570 is the first that can");
		return true;
	}
	hf_ledger_lock();
	if (hf_ledger.lost) {
		snprintf(why, HF_WHY, "there was no memory to write down all its allocations");
	}
	for (i = 0; i < hf_ledger.count && *why == 0; i++) {
		b = hf_ledger.blocks[i];
		if (b->kind == HF_MANAGED || b->kind == HF_FOREIGN) {
			snprintf(why, HF_WHY, "it uses %s at %#llx, %zu bytes, asked for by %.200s+%#zx",
				b->kind == HF_MANAGED ? "managed memory" : "memory of another process", b->at, b->bytes,
				b->asker != NULL && b->asker->file != NULL ? b->asker->file : "?",
				b->asker != NULL ? b->asker->offset : 0);
		}
	}
	hf_ledger_unlock();
	return *why != 0 || hf_memory_held(why) || device_refuses(why);
}

bool hf_pause_quiet(double wait, char why[HF_WHY]) {
	double until = hf_now() + wait;
	unsigned other = hf_gate_close(until);
	bool is = other == HF_COUNT;

	if (!is) {
		snprintf(why, HF_WHY, "a thread is in %s", hf_names[other]);
		return false;
	}
	if (atomic_load(&hf_captures) > 0) {
		snprintf(why, HF_WHY, "a stream is being captured");
		is = false;
	}
	/* A thread that waits for the device reads memory that the driver's checkpoint takes away. */
	if (is && (is = idle(until, why)) && (other = hf_gate_drain(until)) != HF_COUNT) {
		snprintf(why, HF_WHY, "a thread is in %s", hf_names[other]);
		is = false;
	}
	if (is) {
		stop.phase = HF_QUIET;
	} else {
		hf_gate_open();
	}
	return is;
}

void hf_pause_bytes(size_t *arena, size_t *other) {
	const struct hf_block *b;
	struct hf_mapping *list;
	size_t count = hf_arena_list(&list), i;

	*arena = *other = 0;
	for (i = 0; count != SIZE_MAX && i < count; i++) {
		*arena += list[i].bytes;
	}
	free(list);
	hf_ledger_lock();
	for (i = 0; i < hf_ledger.count; i++) {
		b = hf_ledger.blocks[i];
		if (!b->arena && b->kind != HF_HOST && b->kind != HF_FOREIGN && b->kind != HF_VARIABLE) {
			*other += b->bytes;
		}
	}
	hf_ledger_unlock();
}

void hf_pause_forget(void) {
	hf_hold_end();
	free(stop.list);
	if (stop.room != 0) {
		munmap(stop.host, stop.room);
	}
	stop.list = NULL;
	stop.host = NULL;
	stop.count = stop.bytes = stop.room = 0;
}

/* Host memory for bytes, unless there is as much already. */
static bool room_for(size_t bytes, char why[HF_WHY]) {
	void *host;

	if (bytes <= stop.room) {
		return true;
	}
	hf_pause_forget();
	host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (host == MAP_FAILED) {
		snprintf(why, HF_WHY, "the host has no %zu bytes for a copy: %s", bytes, strerror(errno));
		return false;
	}
	(void)madvise(host, bytes, MADV_HUGEPAGE);
	(void)madvise(host, bytes, MADV_DONTFORK);
	stop.host = host;
	stop.room = bytes;
	return true;
}

bool hf_pause_prepare(char why[HF_WHY]) {
	size_t arena, other;

	hf_hold_end();
	hf_pause_bytes(&arena, &other);
	if (!room_for(arena, why)) {
		return false;
	}
	hf_touch(stop.host, stop.room);
	return true;
}

bool hf_pause_save(hf_progress *progress, char why[HF_WHY]) {
	struct hf_mapping *list;
	size_t count = hf_arena_list(&list), bytes = 0, i;

	if (count == SIZE_MAX) {
		snprintf(why, HF_WHY, "there is no memory for a list of the device memory");
		return false;
	}
	for (i = 0; i < count; i++) {
		bytes += list[i].bytes;
	}
	if (!hf_hold_is() && !room_for(bytes, why)) {
		free(list);
		return false;
	}
	free(stop.list); /* of an attempt before */
	stop.list = list;
	stop.count = count;
	stop.bytes = bytes;
	if (hf_hold_is() ? !hf_hold_keep(list, count, why)
					 : bytes != 0 && !hf_move(list, count, stop.host, true, progress, why)) {
		hf_pause_forget();
		return false;
	}
	stop.phase = HF_SAVED;
	return true;
}

static bool never_mind(size_t moved, size_t total) {
	(void)moved;
	(void)total;
	return true;
}

/* The program has no other copy of its memory than ours, so it cannot go on without. */
static void lost(const char *what, const char *why) {
	hf_say("the program cannot go on: %s: %s", what, why);
	abort();
}

/* Maps so many mappings again where the program is now, and has the holder fill each behind it. Returns how many are
 * mapped. */
static size_t take_from_holder(size_t count, char why[HF_WHY]) {
	CUresult e;
	size_t i;

	for (i = 0; i < count; i++) {
		if ((e = hf_arena_map(&stop.list[i], 1)) != CUDA_SUCCESS) {
			snprintf(why, HF_WHY, "its %zu bytes of device memory are not to be had: %s", stop.bytes, hf_error(e));
			return i;
		}
		if (!hf_hold_pass(&stop.list[i], i, &stop.places[stop.list[i].device].is, why)) {
			return i + 1;
		}
	}
	return count;
}

/* Has memory behind the first mappings again, with its contents, or behind none. */
static bool put_back(size_t count, hf_progress *progress, char why[HF_WHY]) {
	char ignored[HF_WHY];
	bool done = true;
	size_t mapped;
	CUresult e;

	if (hf_hold_is()) {
		*why = 0;
		mapped = take_from_holder(count, why);
		done = hf_hold_ready(*why == 0 ? why : ignored) && *why == 0;
	} else if ((e = hf_arena_map(stop.list, count)) != CUDA_SUCCESS) {
		snprintf(why, HF_WHY, "its %zu bytes of device memory are not to be had: %s", stop.bytes, hf_error(e));
		return false;
	} else {
		mapped = count;
		done = hf_move(stop.list, count, stop.host, false, progress, why);
	}
	if (!done && hf_arena_unmap(stop.list, mapped, &e) != mapped) {
		lost(why, "and the GPU cannot be given up again");
	}
	return done;
}

/* Puts the memory back that a failed stop has given up. */
static void back(size_t gone) {
	char why[HF_WHY];

	if (!put_back(gone, never_mind, why)) {
		lost("its device memory cannot be put back", why);
	}
}

static bool same(const CUuuid *a, const CUuuid *b) { return memcmp(a, b, sizeof *a) == 0; }

/* Notes on which devices the program is. */
static void note_places(void) {
	int count = 0, i;

	if (REAL(cuDeviceGetCount)(&count) != CUDA_SUCCESS || REAL(cuDeviceGetUuid) == NULL) {
		count = 0;
	}
	stop.place_count = 0;
	for (i = 0; i < count && i < DEVICES && REAL(cuDeviceGetUuid)(&stop.places[i].was, i) == CUDA_SUCCESS; i++) {
		stop.places[i].is = stop.places[i].was;
		stop.place_count++;
	}
}

/* The driver's list of devices: those of the pairs, by their names from before the stop, move; all others stay. Returns
 * how many pairs that are; 0: all stay where they are. */
static unsigned directions(const CUcheckpointGpuPair *pairs, unsigned count, CUcheckpointGpuPair to[DEVICES]) {
	bool moves = count != 0;
	struct place *p;
	unsigned i, n;

	for (i = 0; i < count; i++) {
		for (n = 0; n < stop.place_count && !same(&stop.places[n].was, &pairs[i].oldUuid); n++) {
		}
		if (n == stop.place_count && n < DEVICES) {
			stop.places[stop.place_count++] = (struct place){ pairs[i].oldUuid, pairs[i].oldUuid };
		}
	}
	for (n = 0; n < stop.place_count; n++) {
		p = &stop.places[n];
		to[n] = (CUcheckpointGpuPair){ p->is, p->was };
		for (i = 0; i < count; i++) {
			if (same(&pairs[i].oldUuid, &p->was)) {
				to[n].newUuid = pairs[i].newUuid;
			}
		}
		moves = moves || !same(&to[n].oldUuid, &to[n].newUuid);
	}
	return moves ? n : 0;
}

/* The driver gives up the rest, or still has all. */
static CUresult checkpoint(char why[HF_WHY]) {
	CUcheckpointLockArgs args = { .timeoutMs = LOCK_MS };
	struct hf_spans before;
	int pid = (int)getpid();
	CUresult e = REAL(cuCheckpointProcessLock)(pid, &args);

	if (e != CUDA_SUCCESS) {
		snprintf(why, HF_WHY, "the driver cannot be locked: %s", hf_error(e));
		return e;
	}
	if (!hf_spans_read(&before)) {
		e = CUDA_ERROR_OUT_OF_MEMORY;
		snprintf(why, HF_WHY, "/proc/self/maps cannot be read");
	} else if ((e = REAL(cuCheckpointProcessCheckpoint)(pid, NULL)) != CUDA_SUCCESS) {
		snprintf(why, HF_WHY, "the driver's checkpoint fails: %s", hf_error(e));
	} else if (!hf_spans_fill(&before)) {
		lost("while its GPU was given up", "it has mapped memory where the driver's was");
	}
	free(before.list);
	if (e != CUDA_SUCCESS) {
		REAL(cuCheckpointProcessUnlock)(pid, NULL);
	}
	return e;
}

bool hf_pause_stop(char why[HF_WHY]) {
	CUresult e;
	size_t gone;

	note_places();
	if (hf_hold_is() && !hf_hold_ready(why)) {
		return false;
	}
	gone = hf_arena_unmap(stop.list, stop.count, &e);
	if (e != CUDA_SUCCESS) {
		snprintf(why, HF_WHY, "its device memory cannot be given up: %s", hf_error(e));
	} else if ((e = checkpoint(why)) == CUDA_SUCCESS) {
		stop.phase = HF_STOPPED;
		stop.since = hf_now();
		return true;
	}
	back(gone);
	return false;
}

bool hf_pause_resume(const CUcheckpointGpuPair *pairs, unsigned count, hf_progress *progress, char why[HF_WHY]) {
	CUcheckpointGpuPair to[DEVICES];
	CUcheckpointRestoreArgs args = { .gpuPairs = to, .gpuPairsCount = directions(pairs, count, to) };
	char again[HF_WHY];
	int pid = (int)getpid();
	CUresult e = REAL(cuCheckpointProcessRestore)(pid, args.gpuPairsCount == 0 ? NULL : &args);
	unsigned i;

	if (e != CUDA_SUCCESS) {
		snprintf(why, HF_WHY, "the driver cannot restore it: %s", hf_error(e));
		return false;
	}
	if ((e = REAL(cuCheckpointProcessUnlock)(pid, NULL)) != CUDA_SUCCESS) {
		lost("the driver stays locked", hf_error(e));
	}
	for (i = 0; i < args.gpuPairsCount; i++) {
		stop.places[i].is = to[i].newUuid;
	}
	if (put_back(stop.count, progress, why)) {
		stop.phase = HF_SAVED;
		hf_pause_open();
		return true;
	}
	/* As before: the copy on the host, or of the holder, is still there. */
	if (hf_hold_is() && !hf_hold_ready(again)) {
		lost(why, again);
	}
	if (checkpoint(again) != CUDA_SUCCESS) {
		lost(why, "and the GPU cannot be given up again");
	}
	return false;
}

void hf_pause_open(void) {
	stop.phase = HF_RUNNING;
	hf_gate_open();
}
