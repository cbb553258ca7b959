/* ring.c STEPS - each rank sends a vector to its right neighbour, and receives the one from its left after the next
 * point: a message is in flight to every rank at every point. Ranks call points unequally often. In a first start rank
 * 1 asks for a final checkpoint by USR2 in the middle, and all kill themselves behind it. Each prints a sum. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "holdfast_mpi.h"

enum { CELLS = 60 };

static int rank, size;

static void fail(const char *what) {
	fprintf(stderr, "rank %d: %s: %s\n", rank, what, hf_error());
	MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv) {
	const int steps = argc > 1 ? atoi(argv[1]) : 100;
	double out[CELLS], in[CELLS];
	uint64_t sum = 0;
	int32_t step = 0;
	MPI_Comm ring;
	MPI_Datatype pairs;
	MPI_Request sent = MPI_REQUEST_NULL;
	MPI_Status st;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_dup(MPI_COMM_WORLD, &ring);
	MPI_Type_vector(CELLS / 5, 2, 5, MPI_DOUBLE, &pairs);
	MPI_Type_commit(&pairs);
	if (hf_init_mpi(MPI_COMM_WORLD) != HF_OK || hf_protect("sum", &sum, 1, HF_UINT64) != HF_OK ||
		hf_protect("step", &step, 1, HF_INT32) != HF_OK) {
		fail("begin");
	}
	const int restored = hf_restore();
	if (restored < 0) {
		fail("hf_restore");
	}
	const int right = (rank + 1) % size, left = (rank + size - 1) % size;
	printf("rank %d begins at step %d\n", rank, step);
	fflush(stdout);
	if (restored == 0) {
		for (int i = 0; i < CELLS; i++) {
			out[i] = rank + i;
		}
		MPI_Isend(out, 1, pairs, right, 3, ring, &sent);
	}
	for (; step < steps; step++) {
		if (restored == 0 && rank == 1 && step == steps / 2) {
			raise(SIGUSR2);
		}
		if (restored == 0 && rank == 1 && step > steps / 2) {
			usleep(1000); /* the daemon has time to hear of it */
		}
		if (step % (rank + 2) == 0) {
			const int code = hf_point();
			if (code == HF_STOP) {
				raise(SIGKILL);
			}
			if (code < 0) {
				fail("hf_point");
			}
		}
		for (int i = 0; i < CELLS; i++) {
			in[i] = -1;
		}
		MPI_Recv(in, 1, pairs, MPI_ANY_SOURCE, MPI_ANY_TAG, ring, &st);
		int n;
		MPI_Get_count(&st, MPI_DOUBLE, &n);
		if (st.MPI_SOURCE != left || st.MPI_TAG != (step == 0 ? 3 : step % 7) || n != CELLS / 5 * 2) {
			printf("rank %d, step %d: a message of %d from %d with tag %d\n", rank, step, n, st.MPI_SOURCE, st.MPI_TAG);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
		for (int i = 0; i < CELLS; i++) {
			const double want = i % 5 < 2 ? left + i + step : -1;
			if (in[i] != want) {
				printf("rank %d, step %d: element %d is %g, want %g\n", rank, step, i, in[i], want);
				MPI_Abort(MPI_COMM_WORLD, 1);
			}
			sum = sum * 31 + (uint64_t)(in[i] + 1);
		}
		MPI_Wait(&sent, MPI_STATUS_IGNORE);
		if (step + 1 < steps) {
			for (int i = 0; i < CELLS; i++) {
				out[i] = rank + i + step + 1;
			}
			MPI_Isend(out, 1, pairs, right, (step + 1) % 7, ring, &sent);
		}
	}
	printf("rank %d sum %llu\n", rank, (unsigned long long)sum);
	MPI_Type_free(&pairs);
	MPI_Comm_free(&ring);
	if (hf_finalize() != HF_OK) {
		fail("hf_finalize");
	}
	MPI_Finalize();
	return 0;
}
