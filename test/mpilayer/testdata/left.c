/* left.c HOW - rank 0 leaves MPI_Send ("send", "point") or MPI_Recv ("receive") from the handler of an error by
 * longjmp, or asks for a checkpoint there ("within"). Then all ranks ask for one, print how that ends, and send and
 * receive as before; but for "point" and "within" they also do so in between. */
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holdfast_mpi.h"

static jmp_buf out;
static int rank, size;
static bool nested;

static void raised(MPI_Comm *comm, int *code, ...) {
	(void)comm, (void)code;
	if (nested) {
		printf("rank %d: %d: %s\n", rank, hf_checkpoint(NULL, 0), hf_error());
	} else {
		longjmp(out, 1);
	}
}

static void ring(void) {
	int v = rank, got = -1;
	MPI_Request r;
	MPI_Isend(&v, 1, MPI_INT, (rank + 1) % size, 3, MPI_COMM_WORLD, &r);
	MPI_Recv(&got, 1, MPI_INT, (rank + size - 1) % size, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	if (got != (rank + size - 1) % size) {
		printf("rank %d: another message\n", rank);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

int main(int argc, char **argv) {
	const char *how = argc > 1 ? argv[1] : "send";
	MPI_Errhandler handler;
	MPI_Comm comm;
	int v[2] = { 0 };

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_create_errhandler(raised, &handler);
	MPI_Comm_set_errhandler(comm, handler);
	if (hf_init_mpi(MPI_COMM_WORLD) != HF_OK || hf_protect("v", v, 2, HF_INT32) != HF_OK || hf_restore() < 0) {
		printf("%s\n", hf_error());
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	nested = strcmp(how, "within") == 0;
	if (rank == 0 && strcmp(how, "receive") == 0) {
		MPI_Request r;
		MPI_Isend(v, 2, MPI_INT, 0, 5, comm, &r);
		if (setjmp(out) == 0) {
			MPI_Recv(v, 1, MPI_INT, 0, 5, comm, MPI_STATUS_IGNORE);
		}
		MPI_Wait(&r, MPI_STATUS_IGNORE);
	} else if (rank == 0 && setjmp(out) == 0) {
		MPI_Send(v, 1, MPI_INT, size == 1 ? -5 : size + 3, 5, comm);
	}
	if (strcmp(how, "point") != 0 && !nested) {
		ring();
	}
	if (!nested || rank != 0) {
		printf("rank %d: %d: %s\n", rank, hf_checkpoint(NULL, 0), hf_error());
	}
	ring();
	printf("rank %d right\n", rank);
	fflush(stdout);
	hf_finalize();
	MPI_Finalize();
	return 0;
}
