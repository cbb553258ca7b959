/* tight.c TIMES SECONDS - with MPI_THREAD_MULTIPLE: one thread of each rank does nothing but MPI_Allreduce, without a
 * pause, while the first takes checkpoints. It ends itself after so many seconds. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "holdfast_mpi.h"

static MPI_Comm own;
static atomic_int over;

static void *reduce(void *arg) {
	for (int mine, all = 0; !all;) {
		mine = over;
		MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, own);
	}
	return arg;
}

int main(int argc, char **argv) {
	const int times = argc > 1 ? atoi(argv[1]) : 1;
	int provided, rank, taken = 0;
	pthread_t thread;

	alarm(argc > 2 ? (unsigned)atoi(argv[2]) : 0);
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_dup(MPI_COMM_WORLD, &own);
	if (provided != MPI_THREAD_MULTIPLE || hf_init_mpi(MPI_COMM_WORLD) != HF_OK || hf_restore() != 0) {
		printf("rank %d cannot begin: %s\n", rank, hf_error());
		return 1;
	}
	pthread_create(&thread, NULL, reduce, NULL);
	for (int i = 0; i < times; i++) {
		taken += hf_checkpoint(NULL, 0) >= 0;
		usleep(1000);
	}
	over = 1;
	pthread_join(thread, NULL);
	printf("rank %d has taken %d\n", rank, taken);
	if (hf_finalize() != HF_OK) {
		printf("rank %d: %s\n", rank, hf_error());
	}
	MPI_Finalize();
	return 0;
}
