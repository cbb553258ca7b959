/* others.c WHICH - hf_init with other ranks than those of MPI_COMM_WORLD: all but
 * the last, or all in other places. Each says the error. "hidden": MPI is found by
 * dlsym, as Julia does, and hf_init has the launcher's ranks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "holdfast_mpi.h"

static void *of_mpi(const char *name) {
	void *openmpi = dlopen("libmpi.so.40", RTLD_NOW | RTLD_NOLOAD);
	void *library = openmpi != NULL ? openmpi : dlopen("libmpich.so.12", RTLD_NOW | RTLD_NOLOAD);
	void *function = library != NULL ? dlsym(library, name) : NULL;
	if (function == NULL) {
		printf("%s: not found\n", name);
	}
	return function;
}

static int hidden(void) {
	int (*init)(int *, char ***) = (int (*)(int *, char ***))of_mpi("MPI_Init");
	int (*finalize)(void) = (int (*)(void))of_mpi("MPI_Finalize");
	if (init == NULL || finalize == NULL || init(NULL, NULL) != MPI_SUCCESS) {
		return 1;
	}
	const int code = hf_init(NULL);
	printf("hidden: %d: %s\n", code, hf_error());
	fflush(stdout);
	return finalize();
}

int main(int argc, char **argv) {
	int rank, size, code = HF_OK;
	MPI_Comm some;
	if (strcmp(argv[1], "hidden") == 0) {
		return hidden();
	}
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
