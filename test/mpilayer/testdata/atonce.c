/* atonce.c - requests that are over when they are started, which may all have the same handle: a checkpoint keeps each
 * under its name, and one MPI_Waitall ends all. A matched message that was too long is none any more. */
#include <stdio.h>
#include <stdlib.h>

#include "holdfast_mpi.h"

enum { REQUESTS = 6 };

static _Noreturn void fail(const char *what) {
	fprintf(stderr, "%s: %s\n", what, hf_error());
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

int main(int argc, char **argv) {
	MPI_Request r[REQUESTS];
	MPI_Status statuses[REQUESTS];
	MPI_Message message;
	double in[2], out[2] = { 1, 2 }, sum;
	char name[32];
	int rank;

	MPI_Init(&argc, &argv);
	for (int i = 0; i < REQUESTS; i++) {
		r[i] = MPI_REQUEST_NULL;
	}
	if (hf_init_mpi(MPI_COMM_WORLD) != HF_OK || hf_protect("in", in, 2, HF_DOUBLE) != HF_OK) {
		fail("begin");
	}
	for (int i = 0; i < REQUESTS; i++) {
		snprintf(name, sizeof name, "request %d", i);
		if (hf_protect_request(name, &r[i]) != HF_OK) {
			fail("hf_protect_request");
		}
	}
	if (hf_restore() != 0) {
		fail("hf_restore");
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Isend(out, 2, MPI_DOUBLE, 1 - rank, 3, MPI_COMM_WORLD, &r[0]);
	MPI_Mprobe(1 - rank, 3, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
	if (MPI_Mrecv(in, 1, MPI_DOUBLE, &message, MPI_STATUS_IGNORE) == MPI_SUCCESS) {
		fail("MPI_Mrecv of a message that is too long");
	}
	MPI_Wait(&r[0], MPI_STATUS_IGNORE);
	MPI_Irecv(&in[0], 1, MPI_DOUBLE, 0, 1, MPI_COMM_SELF, &r[0]);
	MPI_Irecv(&in[1], 1, MPI_DOUBLE, 0, 2, MPI_COMM_SELF, &r[1]);
	MPI_Issend(&out[0], 1, MPI_DOUBLE, 0, 1, MPI_COMM_SELF, &r[2]);
	MPI_Isend(&out[1], 1, MPI_DOUBLE, 0, 2, MPI_COMM_SELF, &r[3]);
	MPI_Ibarrier(MPI_COMM_SELF, &r[4]);
	MPI_Iallreduce(&out[0], &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF, &r[5]);
	if (hf_checkpoint(NULL, 0) != HF_OK) {
		fail("hf_checkpoint");
	}
	MPI_Waitall(REQUESTS, r, statuses);
	printf("%s\n", in[0] == out[0] && in[1] == out[1] && sum == out[0] ? "right" : "WRONG");
	if (hf_finalize() != HF_OK) {
		fail("hf_finalize");
	}
	MPI_Finalize();
	return 0;
}
