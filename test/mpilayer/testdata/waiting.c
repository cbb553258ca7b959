/* waiting.c STEPS THREADS - with MPI_THREAD_MULTIPLE and 2 or 4 threads beside the first, each on a communicator of its
 * own. In each step a rank's threads wait for those of the left neighbour: by MPI_Recv, MPI_Irecv and MPI_Wait,
 * MPI_Probe, and MPI_Allreduce. Ranks call hf_point unequally often, so that threads wait for a rank that stands at a
 * point; in the last quarter at each step. One more thread serves: it waits in MPI_Recv for ever, at each checkpoint
 * too, and answers the right neighbour. In a first start rank 1 asks for a final checkpoint in the middle. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "holdfast_mpi.h"

enum { MOST = 4, SERVE = 5, ANSWER = 6, END = -1 };

static int rank, size, left, right, steps, threads;
static MPI_Comm rings[MOST], service;
static uint64_t sums[MOST], served;
static int32_t step;
static pthread_barrier_t meet;
static int over;

static _Noreturn void fail(const char *what) {
	fprintf(stderr, "rank %d: %s: %s\n", rank, what, hf_error());
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static int value_of(int of, int t, int at) { return of * 100000 + t * 10000 + at % 9973; }

static void expect(int t, int got, int want) {
	if (got != want) {
		printf("rank %d, thread %d, step %d: got %d, want %d\n", rank, t, step, got, want);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

/* Passes a value to the right, and takes that of the left in one of four ways. */
static void one_step(int t) {
	const int mine = value_of(rank, t, step), want = value_of(left, t, step);
	int got = -1, sum = 0;
	MPI_Request r, out = MPI_REQUEST_NULL;
	MPI_Status st;
	switch (t % 4) {
	case 0:
		MPI_Send(&mine, 1, MPI_INT, right, t, rings[t]);
		MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, t, rings[t], &st);
		break;
	case 1:
		MPI_Irecv(&got, 1, MPI_INT, left, t, rings[t], &r);
		MPI_Isend(&mine, 1, MPI_INT, right, t, rings[t], &out);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
		MPI_Wait(&out, MPI_STATUS_IGNORE);
		break;
	case 2:
		MPI_Isend(&mine, 1, MPI_INT, right, t, rings[t], &out);
		MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, rings[t], &st);
		MPI_Recv(&got, 1, MPI_INT, st.MPI_SOURCE, st.MPI_TAG, rings[t], MPI_STATUS_IGNORE);
		MPI_Waitall(1, &out, &st);
		break;
	default:
		MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, rings[t]);
		got = sum - mine;
		for (int k = 0; k < size; k++) {
			got -= k == rank || k == left ? 0 : value_of(k, t, step);
		}
		break;
	}
	expect(t, got, want);
	sums[t] = sums[t] * 31 + (uint64_t)got;
}

static void *work(void *arg) {
	const int t = *(const int *)arg;
	for (;;) {
		pthread_barrier_wait(&meet);
		if (over) {
			return NULL;
		}
		one_step(t);
		pthread_barrier_wait(&meet);
	}
}

static void *serve(void *arg) {
	int got;
	(void)arg;
	for (;;) {
		MPI_Status st;
		MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, SERVE, service, &st);
		if (got == END) {
			return NULL;
		}
		served += (uint64_t)got;
		MPI_Send(&got, 1, MPI_INT, st.MPI_SOURCE, ANSWER, service);
	}
}

int main(int argc, char **argv) {
	const int numbers[MOST] = { 0, 1, 2, 3 };
	pthread_t workers[MOST], server;
	int provided;

	steps = argc > 1 ? atoi(argv[1]) : 100;
	threads = argc > 2 ? atoi(argv[2]) : MOST;
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	if (provided != MPI_THREAD_MULTIPLE) {
		printf("no MPI_THREAD_MULTIPLE\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	left = (rank + size - 1) % size;
	right = (rank + 1) % size;
	for (int t = 0; t < threads; t++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &rings[t]);
	}
	MPI_Comm_dup(MPI_COMM_WORLD, &service);
	if (hf_init_mpi(MPI_COMM_WORLD) != HF_OK || hf_protect("sums", sums, MOST, HF_UINT64) != HF_OK ||
		hf_protect("served", &served, 1, HF_UINT64) != HF_OK || hf_protect("step", &step, 1, HF_INT32) != HF_OK) {
		fail("begin");
	}
	const int restored = hf_restore();
	if (restored < 0) {
		fail("hf_restore");
	}
	printf("rank %d begins at step %d\n", rank, step);
	fflush(stdout);
	pthread_barrier_init(&meet, NULL, (unsigned)threads + 1);
	for (int t = 0; t < threads; t++) {
		pthread_create(&workers[t], NULL, work, (void *)(uintptr_t)&numbers[t]);
	}
	pthread_create(&server, NULL, serve, NULL);
	for (; step < steps; step++) {
		if (restored == 0 && rank == 1 && step == steps / 2) {
			raise(SIGUSR2);
		}
		if (restored == 0 && rank == 1 && step > steps / 2) {
			usleep(2000); /* the daemon has time to hear of it */
		}
		if (step % (rank + 2) == 0 || step > steps * 3 / 4) {
			const int code = hf_point();
			if (code == HF_STOP) {
				raise(SIGKILL);
			}
			if (code < 0) {
				fail("hf_point");
			}
		}
		int said = value_of(rank, 7, step), heard = 0;
		MPI_Send(&said, 1, MPI_INT, left, SERVE, service);
		MPI_Recv(&heard, 1, MPI_INT, left, ANSWER, service, MPI_STATUS_IGNORE);
		expect(7, heard, said);
		pthread_barrier_wait(&meet);
		pthread_barrier_wait(&meet);
	}
	over = 1;
	pthread_barrier_wait(&meet);
	for (int t = 0; t < threads; t++) {
		pthread_join(workers[t], NULL);
	}
	MPI_Barrier(MPI_COMM_WORLD); /* all have been answered */
	const int end = END;
	MPI_Send(&end, 1, MPI_INT, rank, SERVE, service);
	pthread_join(server, NULL);
	char line[200]; /* in one piece, between those of others */
	int n = snprintf(line, sizeof line, "rank %d sum", rank);
	for (int t = 0; t < threads; t++) {
		n += snprintf(line + n, sizeof line - (size_t)n, " %llu", (unsigned long long)sums[t]);
	}
	printf("%s served %llu\n", line, (unsigned long long)served);
	if (hf_finalize() != HF_OK) {
		fail("hf_finalize");
	}
	MPI_Finalize();
	return 0;
}
