/* synchronous.c STEPS [SECONDS] - in each step a rank sends to its right neighbour by MPI_Isend, MPI_Issend and
 * MPI_Ssend_init, takes a checkpoint, and receives what its left neighbour has sent: a synchronous send ends then, and
 * not before. One that a rank waits for has its receiver go on from a point. In a first start rank 1 asks for a final
 * checkpoint in the middle, and all kill themselves behind it. Each prints a sum. One that takes longer than SECONDS is
 * ended. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "holdfast_mpi.h"

enum { VALUES = 6 };

static int rank, size, left, right, in[VALUES], out[VALUES];
static MPI_Comm ring;
static MPI_Request sent[VALUES], posted = MPI_REQUEST_NULL;
static int32_t step;

static _Noreturn void fail(const char *what) {
	printf("rank %d, step %d: %s: %s\n", rank, step, what, hf_error());
	fflush(stdout);
	_exit(1); /* after MPI_Abort MPICH's launcher may end before it has passed this on */
}

static void late(int number) {
	static const char text[] = "a synchronous send does not end\n";
	_exit(write(1, text, sizeof text - 1) > 0 ? number : 1);
}

static int value(int of, int i) { return of * 10000 + step * 10 + i; }

/* Sends 0 and 2 are as others. */
static void send_all(void) {
	MPI_Irecv(&in[5], 1, MPI_INT, left, 3, ring, &posted);
	for (int i = 0; i < VALUES; i++) {
		out[i] = value(rank, i);
	}
	MPI_Isend(&out[0], 1, MPI_INT, right, 1, ring, &sent[0]);
	MPI_Issend(&out[1], 1, MPI_INT, right, 1, ring, &sent[1]);
	MPI_Isend(&out[2], 1, MPI_INT, right, 1, ring, &sent[2]);
	MPI_Issend(&out[3], 1, MPI_INT, right, 1, ring, &sent[3]);
	MPI_Start(&sent[4]);
	MPI_Issend(&out[5], 1, MPI_INT, right, 3, ring, &sent[5]);
}

/* The sends from one on, but for the last, are under way until all ranks go on. */
static void expect_pending(int first) {
	int flag, index, n, indices[VALUES];
	MPI_Status all[VALUES];
	for (int k = 0; k < 3; k++) {
		for (int i = first; i < 5; i++) {
			MPI_Status st;
			MPI_Request_get_status(sent[i], &flag, &st);
			if (i != 2 && flag) {
				fail("a synchronous send has ended before its receive");
			}
			MPI_Test(&sent[i], &flag, &st);
			if (i != 2 && flag) {
				fail("MPI_Test: a synchronous send has ended before its receive");
			}
		}
		MPI_Testall(5 - first, sent + first, &flag, all);
		MPI_Testany(2, sent + 3, &index, &n, MPI_STATUS_IGNORE);
		MPI_Testsome(2, sent + 3, &index, indices, all);
		if (flag || n || index != 0) {
			fail("some synchronous send has ended before its receive");
		}
		usleep(1000);
	}
	MPI_Barrier(ring);
}

static void receive_one(int i, int tag) {
	MPI_Status st;
	MPI_Recv(&in[i], 1, MPI_INT, MPI_ANY_SOURCE, tag, ring, &st);
	if (in[i] != value(left, i) || st.MPI_SOURCE != left) {
		fail("another value");
	}
}

/* running: this is no restart, and the sends are under way. */
static void receive_all(int running) {
	for (int i = 0; i < 4; i++) {
		if (running) {
			expect_pending(i == 0 ? 1 : i);
		}
		receive_one(i, 1);
		if (running && i > 0) {
			MPI_Wait(&sent[i], MPI_STATUS_IGNORE);
		}
	}
	if (running) {
		expect_pending(4);
	}
	receive_one(4, 2);
	if (running) {
		int done = 0, index;
		for (int k = 0; k < 2; k++) { /* of the two left one has been received at the point */
			MPI_Waitany(2, sent + 4, &index, MPI_STATUS_IGNORE);
			done |= 1 << index;
		}
		MPI_Wait(&sent[0], MPI_STATUS_IGNORE);
		if (done != 3) {
			fail("MPI_Waitany");
		}
	}
	MPI_Wait(&posted, MPI_STATUS_IGNORE);
	if (in[5] != value(left, 5)) {
		fail("another value by the protected receive");
	}
}

/* Rank 0 waits for rank 1, which stands at a point and has asked for the final checkpoint. What it sends behind has not
 * been sent when rank 1 goes on. */
static void release(void) {
	int flag, got = 0;
	MPI_Request r;
	if (rank == 0) {
		MPI_Ssend(&rank, 1, MPI_INT, 1, 9, ring);
		MPI_Send(&rank, 1, MPI_INT, 1, 10, ring);
		MPI_Issend(&rank, 1, MPI_INT, 1, 9, ring, &r);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
		MPI_Send(&rank, 1, MPI_INT, 1, 10, ring);
	} else if (rank == 1) {
		raise(SIGUSR2);
		usleep(20000);
		for (int k = 0; k < 2; k++) {
			if (hf_point() != HF_OK) {
				fail("hf_point");
			}
			MPI_Iprobe(0, 10, ring, &flag, MPI_STATUS_IGNORE);
			if (flag) {
				fail("a synchronous send has ended while its receiver stood at a point");
			}
			MPI_Recv(&got, 1, MPI_INT, 0, 9, ring, MPI_STATUS_IGNORE);
			MPI_Recv(&got, 1, MPI_INT, 0, 10, ring, MPI_STATUS_IGNORE);
		}
	}
}

int main(int argc, char **argv) {
	const int steps = argc > 1 ? atoi(argv[1]) : 4;
	int code = 0;
	uint64_t sum = 0;

	signal(SIGALRM, late);
	alarm(argc > 2 ? (unsigned)atoi(argv[2]) : 0);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_dup(MPI_COMM_WORLD, &ring);
	right = (rank + 1) % size;
	left = (rank + size - 1) % size;
	if (hf_init_mpi(MPI_COMM_WORLD) != HF_OK || hf_protect("sum", &sum, 1, HF_UINT64) != HF_OK ||
		hf_protect("step", &step, 1, HF_INT32) != HF_OK || hf_protect("in", in, VALUES, HF_INT32) != HF_OK ||
		hf_protect_request("posted", &posted) != HF_OK) {
		fail("begin");
	}
	const int restored = hf_restore();
	if (restored < 0) {
		fail("hf_restore");
	}
	printf("rank %d begins at step %d\n", rank, step);
	fflush(stdout);
	MPI_Ssend_init(&out[4], 1, MPI_INT, right, 2, ring, &sent[4]);
	if (restored > 0) {
		receive_all(0);
	}
	while (step < steps) {
		if (restored == 0 || sum > 0) {
			send_all();
			if (restored == 0 && step == steps / 2) {
				release();
			}
			code = restored == 0 && step < steps / 2 ? hf_checkpoint(NULL, 0) : hf_point();
			while (restored == 0 && step == steps / 2 && code >= 0 && code != HF_STOP) {
				usleep(1000);
				code = hf_point();
			}
			if (code == HF_STOP) {
				raise(SIGKILL);
			}
			if (code < 0) {
				fail("the checkpoint");
			}
			receive_all(1);
		}
		for (int i = 0; i < VALUES; i++) {
			sum = sum * 31 + (uint64_t)in[i];
		}
		step++;
	}
	printf("rank %d sum %llu\n", rank, (unsigned long long)sum);
	MPI_Request_free(&sent[4]);
	MPI_Comm_free(&ring);
	if (hf_finalize() != HF_OK) {
		fail("hf_finalize");
	}
	MPI_Finalize();
	return 0;
}
