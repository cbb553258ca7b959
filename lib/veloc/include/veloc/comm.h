/* veloc/comm.h - how the library reaches the ranks of a communicator.
 *
 * These functions are compiled with the program, by its own MPI. The library calls them by pointer, so it needs no
 * MPI symbol and one libveloc-client.so serves Open MPI, MPICH and programs without MPI. The latter, where there is no
 * mpi.h, define VELOC_WITHOUT_MPI. */
#ifndef VELOC_COMM_H
#define VELOC_COMM_H

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#ifndef VELOC_WITHOUT_MPI
#include <mpi.h>
#endif

#if defined(__GNUC__)
#define VELOC_LOCAL static __attribute__((unused))
#else
#define VELOC_LOCAL static
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The ranks that checkpoint together. allgather gathers `bytes` bytes of every rank, in order of rank, and returns 0;
 * release frees arg. */
struct veloc_comm {
	int rank, size;
	int first, world; /* rank of the first in MPI_COMM_WORLD, and the size of that */
	int (*allgather)(void *all, const void *mine, size_t bytes, void *arg);
	void (*release)(void *arg);
	void *arg;
};

#ifndef VELOC_WITHOUT_MPI

VELOC_LOCAL int veloc_comm_allgather(void *all, const void *mine, size_t bytes, void *arg) {
	int over = 0;

	if (bytes > INT_MAX || MPI_Finalized(&over) != MPI_SUCCESS || over) {
		return 1;
	}
	return MPI_Allgather((void *)mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, *(MPI_Comm *)arg) !=
		MPI_SUCCESS;
}

VELOC_LOCAL void veloc_comm_release(void *arg) {
	int over = 0;

	if (MPI_Finalized(&over) == MPI_SUCCESS && !over) {
		MPI_Comm_free((MPI_Comm *)arg);
	}
	free(arg);
}

/* Finds where rank 0 of comm is in MPI_COMM_WORLD. */
VELOC_LOCAL int veloc_comm_first(MPI_Comm comm, struct veloc_comm *c) {
	MPI_Group mine, all;
	int zero = 0, bad;

	if (MPI_Comm_size(MPI_COMM_WORLD, &c->world) != MPI_SUCCESS || MPI_Comm_group(comm, &mine) != MPI_SUCCESS) {
		return 1;
	}
	bad = MPI_Comm_group(MPI_COMM_WORLD, &all) != MPI_SUCCESS;
	if (!bad) {
		bad = MPI_Group_translate_ranks(mine, 1, &zero, all, &c->first) != MPI_SUCCESS;
		MPI_Group_free(&all);
	}
	MPI_Group_free(&mine);
	return bad;
}

/* Describes comm by a duplicate of it. Collective over comm. Returns 0, or 1 if comm is none. */
VELOC_LOCAL int veloc_comm_of(MPI_Comm comm, struct veloc_comm *c) {
	MPI_Comm *mine;
	int begun = 0, over = 0;

	c->arg = NULL;
	if (MPI_Initialized(&begun) != MPI_SUCCESS || !begun || MPI_Finalized(&over) != MPI_SUCCESS || over ||
		comm == MPI_COMM_NULL) {
		return 1;
	}
	mine = (MPI_Comm *)malloc(sizeof *mine);
	if (mine == NULL) {
		return 1;
	}
	if (MPI_Comm_dup(comm, mine) != MPI_SUCCESS || MPI_Comm_rank(*mine, &c->rank) != MPI_SUCCESS ||
		MPI_Comm_size(*mine, &c->size) != MPI_SUCCESS || veloc_comm_first(*mine, c) != 0) {
		free(mine);
		return 1;
	}
	c->allgather = veloc_comm_allgather;
	c->release = veloc_comm_release;
	c->arg = mine;
	return 0;
}

#endif

#ifdef __cplusplus
}
#endif
#endif
