/* closing.c - with MPI_THREAD_MULTIPLE, on two ranks: a thread of each sends numbers to the other rank, and is slow on
 * its way into each call, as one that the machine has put to sleep. In a first start rank 1 asks for a final
 * checkpoint, which comes long before the last number. After a restart each thread goes on from its protected number,
 * for some more. One that was stopped between a send and the change of its number sends it once more, so one number may
 * come twice; none may be missing. While hf_restore begins, another thread is in a call of MPI: messages of the
 * checkpoint must wait for it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "holdfast_mpi.h"

enum { MOST = 6000, CUT = 50, SLOW = 5000, PAUSE = 100 };

static int rank, other, restored;
static MPI_Comm ring;
static volatile int32_t number, want; /* to be sent next, and to come next */
static int last = MOST;
static atomic_int inside, handed;
static _Thread_local int slow;

/* The layer calls both, and so they are of this program: a thread that is slow has begun its call, and a text of a
 * record is read only when no thread is in one. */
int pthread_rwlock_rdlock(pthread_rwlock_t *lock) {
	int (*real)(pthread_rwlock_t *);
	void *at = dlsym(RTLD_NEXT, "pthread_rwlock_rdlock");
	memcpy(&real, &at, sizeof real);
	const int rc = real(lock);
	if (slow) {
		slow = 0;
		usleep(SLOW);
	}
	return rc;
}

char *strndup(const char *text, size_t most) {
	const size_t n = strnlen(text, most);
	char *copy = malloc(n + 1);
	handed |= inside;
	if (copy != NULL) {
		memcpy(copy, text, n);
		copy[n] = 0;
	}
	return copy;
}

static _Noreturn void fail(const char *what) {
	printf("rank %d: %s: number %d, want %d (%s)\n", rank, what, number, want, hf_error());
	fflush(stdout);
	_exit(1);
}

static void *send_numbers(void *arg) {
	for (int n; (n = number) < last; number = n + 1) {
		slow = 1;
		MPI_Send(&n, 1, MPI_INT, other, 1, ring);
		usleep(PAUSE);
	}
	return arg;
}

static void receive_numbers(void) {
	static int twice;
	for (int flag, got;;) {
		MPI_Iprobe(other, 1, ring, &flag, MPI_STATUS_IGNORE);
		if (!flag) {
			return;
		}
		MPI_Recv(&got, 1, MPI_INT, other, 1, ring, MPI_STATUS_IGNORE);
		if (got == want) {
			want++;
		} else if (!restored || got != want - 1 || twice++) {
			fail("a number is missing");
		}
	}
}

static void stay(MPI_Comm *comm, int *code, ...) {
	(void)comm;
	(void)code;
	inside = 1;
	for (int i = 0; i < 300 && !handed; i++) {
		usleep(1000);
	}
	inside = 0;
}

static void *err(void *arg) {
	MPI_Comm *own = arg;
	MPI_Send(&rank, 1, MPI_INT, 1, 0, *own); /* it has one member */
	return NULL;
}

int main(int argc, char **argv) {
	MPI_Comm own;
	MPI_Errhandler handler;
	pthread_t thread;
	int provided;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	if (provided != MPI_THREAD_MULTIPLE) {
		fail("no MPI_THREAD_MULTIPLE");
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	other = 1 - rank;
	MPI_Comm_dup(MPI_COMM_WORLD, &ring);
	MPI_Comm_dup(MPI_COMM_SELF, &own);
	MPI_Comm_create_errhandler(stay, &handler);
	MPI_Comm_set_errhandler(own, handler);
	if (hf_init_mpi(MPI_COMM_WORLD) != HF_OK || hf_protect("number", (void *)&number, 1, HF_INT32) != HF_OK ||
		hf_protect("want", (void *)&want, 1, HF_INT32) != HF_OK) {
		fail("begin");
	}
	pthread_create(&thread, NULL, err, &own);
	while (!inside) {
		usleep(100);
	}
	restored = hf_restore();
	pthread_join(thread, NULL);
	if (restored < 0 || handed) {
		fail(handed ? "messages are handed over while a thread is in MPI" : "hf_restore");
	}
	printf("rank %d begins at number %d\n", rank, number);
	fflush(stdout);
	if (restored) {
		const int first = number > want ? number : want;
		MPI_Allreduce(&first, &last, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		last += CUT;
	}
	pthread_create(&thread, NULL, send_numbers, NULL);
	for (int asked = restored; want < last;) {
		receive_numbers();
		if (rank == 1 && want >= CUT && !asked) {
			asked = raise(SIGUSR2) == 0;
		}
		usleep(200);
		const int code = hf_point();
		if (code == HF_STOP) {
			raise(SIGKILL);
		}
		if (code < 0) {
			fail("hf_point");
		}
	}
	pthread_join(thread, NULL);
	MPI_Barrier(ring);
	printf("rank %d has got all\n", rank);
	if (hf_finalize() != HF_OK) {
		fail("hf_finalize");
	}
	MPI_Finalize();
	return 0;
}
