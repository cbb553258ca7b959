/* churn.c ROUNDS - communicators that come and go: several threads make some of their own and free them, while what the
 * others do drains, and probe for messages that another of them may receive; then many are duplicated at once, without
 * blocking. Rank 0 prints how many checks have failed. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, AT_ONCE = 8, SHARED = 400 };

static int rank, size, rounds, failed;
static MPI_Comm parents[THREADS];
static int bad[THREADS];

/* All messages are alike, so that it does not matter which the thread receives. */
static void probe(int t, int left, int right) {
	const int out[SHARED] = { 0 };
	int in[SHARED], n = 0;
	MPI_Status st;
	MPI_Send(out, SHARED, MPI_INT, right, SHARED, MPI_COMM_WORLD);
	MPI_Probe(left, SHARED, MPI_COMM_WORLD, &st);
	MPI_Get_count(&st, MPI_INT, &n);
	bad[t] += n != SHARED || st.MPI_SOURCE != left || st.MPI_TAG != SHARED;
	MPI_Recv(in, SHARED, MPI_INT, left, SHARED, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void *churn(void *arg) {
	const int t = (int)(intptr_t)arg, right = (rank + 1) % size, left = (rank + size - 1) % size;
	for (int n = 0; n < rounds; n++) {
		MPI_Comm own;
		MPI_Request r;
		int value = n * 10 + t, got = -1;
		MPI_Comm_dup(parents[t], &own);
		MPI_Isend(&value, 1, MPI_INT, right, n, own, &r);
		MPI_Recv(&got, 1, MPI_INT, left, n, own, MPI_STATUS_IGNORE);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
		bad[t] += got != value;
		MPI_Comm_free(&own);
		probe(t, left, right);
	}
	return NULL;
}

static void at_once(void) {
	MPI_Comm comms[AT_ONCE];
	MPI_Request requests[AT_ONCE];
	MPI_Status all[AT_ONCE];
	for (int i = 0; i < AT_ONCE; i++) {
		MPI_Comm_idup(MPI_COMM_WORLD, &comms[i], &requests[i]);
	}
	MPI_Waitall(AT_ONCE, requests, all);
	for (int i = 0; i < AT_ONCE; i++) {
		int sum = 0;
		MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comms[i]);
		failed += sum != size * (size - 1) / 2;
		MPI_Comm_free(&comms[i]);
	}
}

int main(int argc, char **argv) {
	pthread_t threads[THREADS];
	int provided, all = 0;

	rounds = argc > 1 ? atoi(argv[1]) : 10;
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	if (provided != MPI_THREAD_MULTIPLE) {
		printf("no MPI_THREAD_MULTIPLE\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int t = 0; t < THREADS; t++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &parents[t]);
	}
	for (int t = 0; t < THREADS; t++) {
		pthread_create(&threads[t], NULL, churn, (void *)(intptr_t)t);
	}
	for (int t = 0; t < THREADS; t++) {
		pthread_join(threads[t], NULL);
		failed += bad[t];
	}
	at_once();
	MPI_Reduce(&failed, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("failed checks: %d\n", all);
	}
	MPI_Finalize();
	return 0;
}
