/* others.c WHICH - hf_init with other ranks than those of MPI_COMM_WORLD: all but
 * the last, or all in other places. Each says the error. */
#include <stdio.h>
#include <string.h>

#include "holdfast_mpi.h"

int main(int argc, char **argv) {
	int rank, size, code = HF_OK;
	MPI_Comm some;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	const int few = strcmp(argv[1], "few") == 0;
	MPI_Comm_split(MPI_COMM_WORLD, few && rank == size - 1, few ? rank : (rank + 1) % size, &some);
	if (!few || rank < size - 1) {
		code = hf_init_mpi(some);
		printf("world rank %d: %d: %s\n", rank, code, hf_error());
		fflush(stdout);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Comm_free(&some);
	MPI_Finalize();
	return 0;
}
