/* holdfast_mpi.h - hf_init by way of the program's MPI. It is compiled with the program, so that the library
 * itself needs no MPI. */
#ifndef HOLDFAST_MPI_H
#define HOLDFAST_MPI_H

#include <limits.h>
#include <mpi.h>

#include "holdfast.h"

static int hf_mpi_allgather(void *all, const void *mine, size_t bytes, void *arg) {
	if (bytes > INT_MAX) {
		return MPI_ERR_COUNT;
	}
	return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, *(MPI_Comm *)arg) != MPI_SUCCESS;
}

/* hf_init for the ranks of comm, which are all of the job. Collective. It makes a communicator of its own for
 * as long as it runs. */
static inline int hf_init_mpi(MPI_Comm comm) {
	hf_config c = HF_CONFIG_INIT;
	MPI_Comm mine;
	int code;

	if (MPI_Comm_dup(comm, &mine) != MPI_SUCCESS || MPI_Comm_rank(mine, &c.rank) != MPI_SUCCESS ||
		MPI_Comm_size(mine, &c.size) != MPI_SUCCESS) {
		return HF_E_ARG;
	}
	c.allgather = hf_mpi_allgather;
	c.arg = &mine;
	code = hf_init(&c);
	MPI_Comm_free(&mine);
	return code;
}

#endif
