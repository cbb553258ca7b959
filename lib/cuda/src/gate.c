/* gate.c - holds calls of other threads while memory is looked at. A call pays two stores and two loads of its own
 * thread's; the thread that shuts the gate pays for the order between them. */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "library.h"

__thread struct hf_thread *hf_self __attribute__((tls_model("initial-exec")));
_Atomic bool hf_gate_shut, hf_gate_fences;

static _Atomic(struct hf_thread *) threads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t closing = PTHREAD_MUTEX_INITIALIZER; /* of the thread that keeps the gate shut */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int cancels; /* of the thread that keeps the gate shut: whether it can be cancelled otherwise */

static int barrier(int command) { return (int)syscall(SYS_membarrier, command, 0, 0); }

/* The kernel registers a process without threads at once. The driver starts some, and then it takes 5 to 20 ms. So does
 * a program with threads that opens the library: one without the gate is not registered. */
__attribute__((constructor)) static void early(void) {
	if (getenv("HOLDFAST_CUDA_PAUSE") != NULL || getenv("HOLDFAST_CUDA_CHECK") != NULL) {
		(void)barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
	}
}

/* A thread that is cancelled may be in a call. */
static void ends(void *thread) {
	struct hf_thread *t = thread;

	hf_self = NULL;
	atomic_store(&t->waits, 0);
	atomic_store(&t->inside, 0);
	atomic_store(&t->gone, true);
}

static void start(void) {
	if (pthread_key_create(&key, ends) != 0) {
		abort();
	}
	if (hf_settings.gate) {
		atomic_store(&hf_gate_fences, barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0);
	}
}

struct hf_thread *hf_gate_join(void) {
	struct hf_thread *t;
	bool gone;

	pthread_once(&once, start);
	for (t = atomic_load(&threads); t != NULL; t = t->next) {
		gone = true;
		if (atomic_compare_exchange_strong(&t->gone, &gone, false)) {
			break;
		}
	}
	if (t == NULL) {
		if ((t = calloc(1, sizeof *t)) == NULL) {
			hf_say("no memory for a thread's first call");
			abort();
		}
		t->next = atomic_load(&threads);
		while (!atomic_compare_exchange_weak(&threads, &t->next, t)) {
		}
	}
	pthread_setspecific(key, t);
	return hf_self = t;
}

/* The thread is not cancelled here: it would keep the lock, and the gate could not be opened. */
void hf_gate_wait(struct hf_thread *self) {
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	do {
		atomic_store(&self->inside, 0);
		pthread_mutex_lock(&lock);
		while (atomic_load(&hf_gate_shut)) {
			pthread_cond_wait(&opened, &lock);
		}
		pthread_mutex_unlock(&lock);
		atomic_store(&self->inside, 1);
	} while (atomic_load(&hf_gate_shut)); /* another roll back has begun */
	pthread_setcancelstate(before, NULL);
}

unsigned hf_gate_close(double until) {
	struct timespec nap = { .tv_nsec = 20000 };
	struct hf_thread *self = hf_self != NULL ? hf_self : hf_gate_join(), *t;
	unsigned call;
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	pthread_mutex_lock(&closing);
	cancels = before;
	atomic_store(&self->inside, 1);
	atomic_store(&hf_gate_shut, true);
	if (!atomic_load(&hf_gate_fences)) {
		barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
	}
	for (t = atomic_load(&threads); t != NULL; t = t->next) {
		while (t != self && atomic_load(&t->inside) != 0) {
			if (hf_now() > until) {
				call = atomic_load(&t->call);
				hf_gate_open();
				return call;
			}
			nanosleep(&nap, NULL);
		}
	}
	return HF_COUNT;
}

unsigned hf_gate_drain(double until) {
	struct timespec nap = { .tv_nsec = 20000 };
	const struct hf_thread *t;

	for (t = atomic_load(&threads); t != NULL; t = t->next) {
		while (atomic_load(&t->waits) != 0) {
			if (hf_now() > until) {
				return atomic_load(&t->call);
			}
			nanosleep(&nap, NULL);
		}
	}
	return HF_COUNT;
}

void hf_gate_open(void) {
	int before = cancels;

	pthread_mutex_lock(&lock);
	atomic_store(&hf_gate_shut, false);
	pthread_cond_broadcast(&opened);
	pthread_mutex_unlock(&lock);
	atomic_store(&hf_self->inside, 0);
	pthread_mutex_unlock(&closing);
	pthread_setcancelstate(before, NULL);
}

void hf_gate_child(void) {
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_init(&closing, NULL);
	if (hf_self != NULL) {
		hf_self->next = NULL;
	}
	atomic_store(&threads, hf_self);
	atomic_store(&hf_gate_shut, false);
}

unsigned hf_gate_call(hf_word stream) {
	const struct hf_thread *t;

	for (t = atomic_load(&threads); t != NULL; t = t->next) {
		if (atomic_load(&t->streams[hf_place_of(stream)]) == stream &&
			atomic_load(&t->calls[hf_place_of(stream)]) != 0) {
			return atomic_load(&t->calls[hf_place_of(stream)]);
		}
	}
	return HF_COUNT;
}
