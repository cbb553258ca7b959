/* threads.c STEPS - as ring.c, with MPI_THREAD_MULTIPLE: two threads of each rank send to the right neighbour, each on
 * a communicator of its own, and receive what came from the left behind the next point, where they have met. A third
 * sends to itself all the time. In a first start rank 1 asks for a final checkpoint in the middle. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "holdfast_mpi.h"

enum { THREADS = 2, MOST = 5 };

static int rank, size, steps;
static MPI_Comm rings[THREADS], own;
static uint64_t sums[THREADS];
static int32_t step;
static pthread_barrier_t meet;
static atomic_int over;

static _Noreturn void fail(const char *what) {
	fprintf(stderr, "rank %d: %s: %s\n", rank, what, hf_error());
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

/* Some small messages, on the tags 0, 1, ... */
static void send_some(int t, int of) {
	for (int i = 0; i < 1 + of % MOST; i++) {
		const int value = rank * 100000 + of * 10 + i;
		MPI_Send(&value, 1, MPI_INT, (rank + 1) % size, i, rings[t]);
	}
}

/* Receives them in another order. */
static void receive_some(int t, int of) {
	const int left = (rank + size - 1) % size;
	for (int i = of % MOST; i >= 0; i--) {
		int value = -1;
		MPI_Status st;
		MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, i, rings[t], &st);
		if (st.MPI_SOURCE != left || value != left * 100000 + of * 10 + i) {
			printf("rank %d, thread %d, step %d: got %d from %d\n", rank, t, of, value, st.MPI_SOURCE);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
		sums[t] = sums[t] * 31 + (uint64_t)value;
	}
}

static void *work(void *arg) {
	const int t = *(const int *)arg;
	for (;;) {
		pthread_barrier_wait(&meet); /* behind the point */
		if (atomic_load(&over)) {
			return NULL;
		}
		receive_some(t, step);
		if (step + 1 < steps) {
			send_some(t, step + 1);
		}
		pthread_barrier_wait(&meet);
	}
}

static void *chat(void *arg) {
	int got, left = 1;
	(void)arg;
	while (left) { /* what it had said to itself at the checkpoint */
		MPI_Iprobe(0, 0, own, &left, MPI_STATUS_IGNORE);
		if (left) {
			MPI_Recv(&got, 1, MPI_INT, 0, 0, own, MPI_STATUS_IGNORE);
		}
	}
	for (int n = 0; !atomic_load(&over); n++) {
		MPI_Request r;
		MPI_Isend(&n, 1, MPI_INT, 0, 0, own, &r);
		MPI_Recv(&got, 1, MPI_INT, 0, 0, own, MPI_STATUS_IGNORE);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
		if (got != n) {
			printf("rank %d: said %d to itself, heard %d\n", rank, n, got);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
	return NULL;
}

int main(int argc, char **argv) {
	const int numbers[THREADS] = { 0, 1 };
	pthread_t threads[THREADS], talker;
	int provided;

	steps = argc > 1 ? atoi(argv[1]) : 100;
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	if (provided != MPI_THREAD_MULTIPLE) {
		printf("no MPI_THREAD_MULTIPLE\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int t = 0; t < THREADS; t++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &rings[t]);
	}
	MPI_Comm_dup(MPI_COMM_SELF, &own);
	if (hf_init_mpi(MPI_COMM_WORLD) != HF_OK || hf_protect("sums", sums, THREADS, HF_UINT64) != HF_OK ||
		hf_protect("step", &step, 1, HF_INT32) != HF_OK) {
		fail("begin");
	}
	const int restored = hf_restore();
	if (restored < 0) {
		fail("hf_restore");
	}
	printf("rank %d begins at step %d\n", rank, step);
	fflush(stdout);
	for (int t = 0; t < THREADS && restored == 0; t++) {
		send_some(t, 0);
	}
	pthread_barrier_init(&meet, NULL, THREADS + 1);
	for (int t = 0; t < THREADS; t++) {
		pthread_create(&threads[t], NULL, work, (void *)(uintptr_t)&numbers[t]);
	}
	pthread_create(&talker, NULL, chat, NULL);
	for (; step < steps; step++) {
		if (restored == 0 && rank == 1 && step == steps / 2) {
			raise(SIGUSR2);
		}
		const int code = hf_point();
		if (code == HF_STOP) {
			raise(SIGKILL);
		}
		if (code < 0) {
			fail("hf_point");
		}
		pthread_barrier_wait(&meet);
		pthread_barrier_wait(&meet);
	}
	atomic_store(&over, 1);
	pthread_barrier_wait(&meet);
	pthread_join(talker, NULL);
	for (int t = 0; t < THREADS; t++) {
		pthread_join(threads[t], NULL);
	}
	printf("rank %d sum %llu %llu\n", rank, (unsigned long long)sums[0], (unsigned long long)sums[1]);
	if (hf_finalize() != HF_OK) {
		fail("hf_finalize");
	}
	MPI_Finalize();
	return 0;
}
