/* Requests through memory that the server maps too: it takes them out in their order, without an answer, or with one in
   a slot of the same memory. A byte on the control socket wakes a server that sleeps. */
#define _GNU_SOURCE
#include "../../common/shm.h"
#include "wire.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock; /* of the writer */
	uint8_t *at;
	int control;
	uint64_t count; /* written, by this side's own account */
	uint64_t read;  /* by the server, when this side looked last */
	pthread_mutex_t slots;
	uint64_t busy; /* slots, a bit for each */
	bool spare;    /* there are cores to stay awake on */
} ring = { .lock = PTHREAD_MUTEX_INITIALIZER, .slots = PTHREAD_MUTEX_INITIALIZER };

static _Atomic uint64_t *word64(size_t at) { return (_Atomic uint64_t *)(void *)(ring.at + at); }
static _Atomic uint32_t *word32(size_t at) { return (_Atomic uint32_t *)(void *)(ring.at + at); }

bool hfcl_ring_open(int control) {
	const size_t size = HFCL_RING_DATA + HFCL_RING_BYTES;
	int fd = hf_memfd("holdfast opencl", size);
	if (fd < 0) {
		return false;
	}
	void *at = hf_map(fd, size, PROT_READ | PROT_WRITE, MAP_SHARED);
	bool ok = at != NULL;
	if (ok) {
		ring.at = at;
		ring.control = control;
		ring.spare = sysconf(_SC_NPROCESSORS_ONLN) >= 4;
		ok = hfcl_pass(control, 'R', fd);
	}
	close(fd);
	return ok;
}

uint64_t hfcl_ring_position(void) { return atomic_load(word64(HFCL_RING_WRITTEN)); }

bool hfcl_ring_device_lost(void) { return atomic_load_explicit(word32(HFCL_RING_LOST), memory_order_relaxed) != 0; }

/* has_room reports whether n bytes have room by earlier reads; the lock is held. */
static bool has_room(size_t n) {
	uint64_t used = ring.count - ring.read;
	return used <= HFCL_RING_BYTES && used + n <= HFCL_RING_BYTES;
}

/* wait_for_room returns when n bytes have room; the lock is held. The server takes requests out faster than it carries
   commands out, unless a queue is full. */
static bool wait_for_room(size_t n) {
	long pause = 10000;
	for (;;) {
		if (hfcl_lost()) {
			return false;
		}
		if (has_room(n)) {
			return true;
		}
		ring.read = atomic_load(word64(HFCL_RING_READ)); /* another core's: to look takes long */
		if (has_room(n)) {
			return true;
		}
		struct timespec t = { 0, pause };
		int before = hfcl_no_cancel();
		nanosleep(&t, NULL);
		hfcl_cancel_again(before);
		pause = pause < 1000000 ? 2 * pause : 1000000;
	}
}

bool hfcl_ring_put(const uint8_t *message, size_t n) {
	size_t padded = (n + 7) & ~(size_t)7;
	if (hfcl_lost()) { /* also in a child of fork, whose lock may be taken for ever */
		return false;
	}
	pthread_mutex_lock(&ring.lock);
	bool ok = wait_for_room(padded);
	if (ok) {
		size_t at = ring.count % HFCL_RING_BYTES, first = HFCL_RING_BYTES - at;
		memcpy(ring.at + HFCL_RING_DATA + at, message, n < first ? n : first);
		if (n > first) {
			memcpy(ring.at + HFCL_RING_DATA, message + first, n - first);
		}
		ring.count += padded;
		atomic_store(word64(HFCL_RING_WRITTEN), ring.count);
	}
	pthread_mutex_unlock(&ring.lock);
	if (ok && atomic_load(word32(HFCL_RING_ASLEEP)) != 0 && atomic_exchange(word32(HFCL_RING_ASLEEP), 0) != 0) {
		hfcl_pass(ring.control, 'D', -1); /* where that fails the server is gone, and the receiver notices */
	}
	return ok;
}

_Atomic uint32_t *hfcl_ring_word(size_t at) { return word32(at); }

static size_t slot_at(int slot) { return HFCL_RING_REPLIES + (size_t)slot * HFCL_RING_SLOT; }

int hfcl_ring_ask(void) {
	if (hfcl_lost()) {
		return -1;
	}
	pthread_mutex_lock(&ring.slots);
	uint64_t idle = ~(ring.busy | 1), mine = idle & (~idle + 1); /* the lowest; slot 0 is none */
	ring.busy |= mine;
	pthread_mutex_unlock(&ring.slots);
	if (mine == 0) {
		return -1;
	}
	int slot = __builtin_ctzll(mine);
	atomic_store(word32(slot_at(slot)), HFCL_SLOT_ASKED);
	return slot;
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value) {
	const struct timespec second = { 1, 0 }; /* no waking is lost; this bounds the wait for a broken server */
	syscall(SYS_futex, word, op, value, op == FUTEX_WAIT ? &second : NULL, NULL, 0);
}

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void relax(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

void hfcl_ring_wake(_Atomic uint32_t *word) { futex(word, FUTEX_WAKE, INT32_MAX); }

void hfcl_ring_sleep(_Atomic uint32_t *word, uint32_t value) { futex(word, FUTEX_WAIT, value); }

/* How long a thread stays awake that waits, in ns: waking takes up to 0.1 ms, and drivers stay awake, too. */
enum { AWAKE = 2000000 };

bool hfcl_ring_awake(_Atomic uint32_t *word, uint32_t value) {
	if (!ring.spare) {
		return false;
	}
	for (uint64_t end = now() + AWAKE; now() < end;) {
		for (int i = 0; i < 64; i++) {
			if (atomic_load_explicit(word, memory_order_acquire) != value) {
				return true;
			}
			relax();
		}
	}
	return false;
}

void hfcl_ring_unask(int slot) {
	atomic_store(word32(slot_at(slot)), HFCL_SLOT_FREE);
	pthread_mutex_lock(&ring.slots);
	ring.busy &= ~(UINT64_C(1) << slot);
	pthread_mutex_unlock(&ring.slots);
}

cl_int hfcl_ring_answer(int slot, uint64_t *deliveries) {
	_Atomic uint32_t *state = word32(slot_at(slot));
	if (!hfcl_ring_awake(state, HFCL_SLOT_ASKED)) {
		uint32_t asked = HFCL_SLOT_ASKED;
		atomic_compare_exchange_strong(state, &asked, HFCL_SLOT_SLEEPS);
		while (atomic_load(state) != HFCL_SLOT_ANSWERED && !hfcl_lost()) {
			futex(state, FUTEX_WAIT, HFCL_SLOT_SLEEPS);
		}
	}
	cl_int status = CL_DEVICE_NOT_AVAILABLE;
	*deliveries = 0;
	if (atomic_load(state) == HFCL_SLOT_ANSWERED) {
		memcpy(&status, ring.at + slot_at(slot) + 4, sizeof status);
		memcpy(deliveries, ring.at + slot_at(slot) + 8, sizeof *deliveries);
	}
	hfcl_ring_unask(slot);
	return status;
}

/* hfcl_ring_end wakes all threads that wait for a server that is gone. */
void hfcl_ring_end(void) {
	for (int slot = 1; slot < HFCL_RING_SLOTS; slot++) {
		hfcl_ring_wake(word32(slot_at(slot)));
	}
	for (size_t slot = 0; slot < HFCL_SLOTS; slot++) {
		hfcl_ring_wake(word32(HFCL_RING_WORDS + slot * HFCL_RING_SLOT));
	}
}
