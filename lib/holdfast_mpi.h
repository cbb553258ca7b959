/* holdfast_mpi.h - hf_init with the program's MPI. It is compiled with the program, so that the library itself needs
 * no MPI. */
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

/* hf_init for the ranks of comm, which must be all ranks of the job. Collective. It duplicates comm, and frees the
 * duplicate before it returns. */
static inline int hf_init_mpi(MPI_Comm comm) {
	hf_config c = HF_CONFIG_INIT;
	MPI_Comm mine;
	int code;

	if (MPI_Comm_dup(comm, &mine) != MPI_SUCCESS || MPI_Comm_rank(mine, &c.rank) != MPI_SUCCESS ||
		MPI_Comm_size(mine, &c.size) != MPI_SUCCESS || MPI_Comm_size(MPI_COMM_WORLD, &c.world) != MPI_SUCCESS) {
		return HF_E_ARG;
	}
	c.allgather = hf_mpi_allgather;
	c.arg = &mine;
	code = hf_init(&c);
	MPI_Comm_free(&mine);
	return code;
}

/* Makes the request in a variable part of every checkpoint under name, for a program with libholdfast-mpi. Local.
 * The program waits for the request in this variable, and keeps the variable until hf_unprotect or hf_finalize. The
 * same name again names another variable. Its value at a point counts, even MPI_REQUEST_NULL:
 *
 *     hf_protect("ghosts", ghosts, cells, HF_DOUBLE);
 *     hf_protect_request("from left", &request);
 *     if (hf_restore() != HF_RESTORED)
 *         MPI_Irecv(ghosts, 1, column, left, tag, comm, &request);
 *
 * After a restart, under whatever MPI, hf_restore posts a receive that was pending again, into the same place of the
 * same array, and stores its handle in the variable. It makes a persistent request again, and starts a receive that
 * was started. A send, and a receive whose message had arrived, is complete, and the first wait returns at once. A
 * request of a communicator that the program makes after hf_restore is made again then.
 *
 * At the point the buffer must be part of one protected array, on the host or a device. Its type is made of basic
 * types, derived in any way. Otherwise the checkpoint fails and names the request. If two receives can get the same
 * message and the second is protected, protect the first too. */
static inline int hf_protect_request(const char *name, MPI_Request *request) {
	return hf_protect_handle(name, request, 0);
}

#endif
