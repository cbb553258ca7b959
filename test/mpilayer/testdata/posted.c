/* posted.c STEPS [HOW] - each rank exchanges with both neighbours, by a receive and a send that are posted anew, of a
 * vector, and by persistent ones. Their requests are protected: the receives wait across points, before their messages
 * are sent and after. In a first start rank 1 asks for a final checkpoint by USR2 in the middle, and all kill
 * themselves behind it. Each prints a sum. HOW says what no checkpoint can keep: "outside", a buffer that is not
 * protected, or "order", a receive that is not protected and was posted before one that is. Then the error of
 * hf_checkpoint is printed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "holdfast_mpi.h"

enum { CELLS = 60, RECEIVED = 2, REQUESTS = 4 };
enum { FROM_LEFT, FROM_RIGHT, TO_RIGHT, TO_LEFT };

static int rank, size, left, right;
static double cells[REQUESTS][CELLS]; /* of each request */
static MPI_Comm ring;
static MPI_Datatype pairs;
static MPI_Request r[REQUESTS];

static _Noreturn void fail(const char *what, int step) {
	printf("rank %d, step %d: %s: %s\n", rank, step, what, hf_error());
	fflush(stdout);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static void point(int step) {
	const int code = hf_point();
	if (code == HF_STOP) {
		raise(SIGKILL);
	}
	if (code < 0) {
		fail("hf_point", step);
	}
}

static double value(int from, int which, int i, int step) { return from * 1000 + which * 100 + i + step % 50; }

static void post(void) {
	for (int i = 0; i < RECEIVED * CELLS; i++) {
		cells[i / CELLS][i % CELLS] = -1;
	}
	MPI_Irecv(cells[FROM_LEFT], 1, pairs, MPI_ANY_SOURCE, 3, ring, &r[FROM_LEFT]);
	MPI_Start(&r[FROM_RIGHT]);
}

static void send(int step) {
	for (int i = 0; i < CELLS; i++) {
		cells[TO_RIGHT][i] = value(rank, TO_RIGHT, i, step);
		cells[TO_LEFT][i] = value(rank, TO_LEFT, i, step);
	}
	MPI_Isend(cells[TO_RIGHT], 1, pairs, right, 3, ring, &r[TO_RIGHT]);
	MPI_Start(&r[TO_LEFT]);
}

/* Waits for each of the four once. */
static uint64_t receive(int step, uint64_t sum) {
	int seen = 0, which;
	MPI_Status st;
	for (int n = 0; n < REQUESTS; n++) {
		MPI_Waitany(REQUESTS, r, &which, &st);
		if (which == MPI_UNDEFINED || (seen & 1 << which) != 0 || (which == FROM_LEFT && st.MPI_SOURCE != left) ||
			(which == FROM_RIGHT && st.MPI_SOURCE != right)) {
			fail("another request, or another source", step);
		}
		seen |= 1 << which;
	}
	for (int i = 0; i < CELLS; i++) {
		if (cells[FROM_LEFT][i] != (i % 5 < 2 ? value(left, TO_RIGHT, i, step) : -1) ||
			cells[FROM_RIGHT][i] != value(right, TO_LEFT, i, step)) {
			fail("contents", step);
		}
		sum = sum * 31 + (uint64_t)(cells[FROM_LEFT][i] + cells[FROM_RIGHT][i] + 1);
	}
	return sum;
}

static void refused(const char *how) {
	double outside[CELLS];
	MPI_Request other = MPI_REQUEST_NULL;
	if (strcmp(how, "order") == 0) {
		MPI_Irecv(outside, CELLS, MPI_DOUBLE, left, MPI_ANY_TAG, ring, &other);
		MPI_Irecv(cells[FROM_LEFT], 1, pairs, MPI_ANY_SOURCE, 3, ring, &r[FROM_LEFT]);
	} else {
		MPI_Irecv(outside, CELLS, MPI_DOUBLE, left, 3, ring, &r[FROM_LEFT]);
	}
	const int code = hf_checkpoint(NULL, 0);
	printf("rank %d: %d: %s\n", rank, code, hf_error());
	fflush(stdout);
	MPI_Barrier(ring);
	MPI_Send(cells, 1, MPI_DOUBLE, right, 3, ring);
	MPI_Send(cells, 1, MPI_DOUBLE, right, 3, ring);
	MPI_Wait(&r[FROM_LEFT], MPI_STATUS_IGNORE);
	MPI_Wait(&other, MPI_STATUS_IGNORE);
	hf_finalize();
	MPI_Finalize();
	exit(0);
}

int main(int argc, char **argv) {
	const int steps = argc > 1 ? atoi(argv[1]) : 100;
	static const char *const names[REQUESTS] = { "from left", "from right", "to right", "to left" };
	uint64_t sum = 0;
	int32_t step = 0, sent = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_dup(MPI_COMM_WORLD, &ring);
	MPI_Type_vector(CELLS / 5, 2, 5, MPI_DOUBLE, &pairs);
	MPI_Type_commit(&pairs);
	right = (rank + 1) % size;
	left = (rank + size - 1) % size;
	for (int i = 0; i < REQUESTS; i++) {
		r[i] = MPI_REQUEST_NULL;
	}
	if (hf_init_mpi(MPI_COMM_WORLD) != HF_OK || hf_protect("sum", &sum, 1, HF_UINT64) != HF_OK ||
		hf_protect("step", &step, 1, HF_INT32) != HF_OK || hf_protect("sent", &sent, 1, HF_INT32) != HF_OK ||
		hf_protect("cells", cells, REQUESTS * CELLS, HF_DOUBLE) != HF_OK) {
		fail("begin", 0);
	}
	for (int i = 0; i < REQUESTS; i++) {
		if (hf_protect_request(names[i], &r[i]) != HF_OK) {
			fail("hf_protect_request", 0);
		}
	}
	const int restored = hf_restore();
	if (restored < 0) {
		fail("hf_restore", 0);
	}
	printf("rank %d begins at step %d\n", rank, step);
	fflush(stdout);
	if (argc > 2) {
		refused(argv[2]);
	}
	if (restored == 0) {
		MPI_Recv_init(cells[FROM_RIGHT], CELLS, MPI_DOUBLE, MPI_ANY_SOURCE, 5, ring, &r[FROM_RIGHT]);
		MPI_Send_init(cells[TO_LEFT], CELLS, MPI_DOUBLE, left, 5, ring, &r[TO_LEFT]);
		post();
	}
	while (step < steps) {
		if (restored == 0 && rank == 1 && step == steps / 2) {
			raise(SIGUSR2);
		}
		if (restored == 0 && rank == 1 && step > steps / 2) {
			usleep(1000); /* the daemon has time to hear of it */
		}
		if (sent == 0) {
			if (step % (rank + 2) == 0) {
				point(step);
			}
			send(step);
			sent = 1;
		}
		if (step % (rank + 2) == 1) {
			point(step);
		}
		sum = receive(step, sum);
		sent = 0;
		step++;
		if (step < steps) {
			post();
		}
	}
	printf("rank %d sum %llu\n", rank, (unsigned long long)sum);
	MPI_Request_free(&r[FROM_RIGHT]);
	MPI_Request_free(&r[TO_LEFT]);
	MPI_Type_free(&pairs);
	MPI_Comm_free(&ring);
	if (hf_finalize() != HF_OK) {
		fail("hf_finalize", step);
	}
	MPI_Finalize();
	return 0;
}
