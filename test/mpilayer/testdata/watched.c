/* watched.c MODE [SECONDS] - a program without libholdfast, for holdfast run --watch. Modes: circle, all receive from
 * their left before they send; tag, a message waits that nobody asks for; late, rank 0 computes while the others wait;
 * leave, rank 0 comes to its end and rank 1 waits for it; send, sends and persistent, all wait until their right
 * receives a large message by one request, several, or a persistent one; healthy, messages go round and one is matched;
 * threads, as healthy with MPI_THREAD_MULTIPLE. With CHECKPOINTS defined it has libholdfast. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef CHECKPOINTS
#include "holdfast_mpi.h"
#endif

static int rank, size;

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void go_round(double seconds) {
	const int left = (rank + size - 1) % size, right = (rank + 1) % size;
	const double end = now() + seconds;
	int kept = 0;
	MPI_Request own;
	MPI_Message matched; /* no checkpoint can keep one */
	MPI_Isend(&rank, 1, MPI_INT, rank, 6, MPI_COMM_WORLD, &own);
	MPI_Mprobe(rank, 6, MPI_COMM_WORLD, &matched, MPI_STATUS_IGNORE);
	for (int more = 1; more;) {
		int in, out = rank, sum = 0, mine = now() < end;
		MPI_Request requests[2];
		MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
		MPI_Isend(&out, 1, MPI_INT, right, 5, MPI_COMM_WORLD, &requests[1]);
		MPI_Recv(&in, 1, MPI_INT, left, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Status statuses[2];
		MPI_Waitall(2, requests, statuses);
		if (in != left) {
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
		more = sum > 0;
		usleep(1000);
	}
	MPI_Mrecv(&kept, 1, MPI_INT, &matched, MPI_STATUS_IGNORE);
	MPI_Wait(&own, MPI_STATUS_IGNORE);
}

/* send_first waits for its sends before it receives. */
static void send_first(const char *mode, int right, int left) {
	static char large[2][1 << 22];
	MPI_Request sends[3] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL };
	MPI_Status statuses[3];
	if (strcmp(mode, "persistent") == 0) {
		MPI_Send_init(large[0], sizeof large[0], MPI_CHAR, right, 7, MPI_COMM_WORLD, &sends[0]);
		MPI_Start(&sends[0]);
	} else {
		MPI_Isend(large[0], sizeof large[0], MPI_CHAR, right, 7, MPI_COMM_WORLD, &sends[0]);
	}
	if (strcmp(mode, "sends") == 0) {
		MPI_Isend(large[0], 1, MPI_CHAR, rank, 8, MPI_COMM_WORLD, &sends[2]);
		MPI_Waitall(3, sends, statuses);
	} else {
		MPI_Wait(&sends[0], statuses);
	}
	MPI_Recv(large[1], sizeof large[1], MPI_CHAR, left, 7, MPI_COMM_WORLD, statuses);
}

int main(int argc, char **argv) {
	const char *mode = argc > 1 ? argv[1] : "healthy";
	const double seconds = argc > 2 ? atof(argv[2]) : 1;
	int x = 0, provided = 0;
	MPI_Init_thread(&argc, &argv, strcmp(mode, "threads") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	const int left = (rank + size - 1) % size, right = (rank + 1) % size;
#ifdef CHECKPOINTS
	if (hf_init_mpi(MPI_COMM_WORLD) != HF_OK || hf_restore() != 0) {
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
#endif
	if (strcmp(mode, "circle") == 0) {
		MPI_Recv(&x, 1, MPI_INT, left, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(&x, 1, MPI_INT, right, 7, MPI_COMM_WORLD);
	} else if (strcmp(mode, "tag") == 0) {
		MPI_Send(&x, 1, MPI_INT, right, 8, MPI_COMM_WORLD);
		MPI_Recv(&x, 1, MPI_INT, left, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else if (strcmp(mode, "late") == 0) {
		if (rank == 0) {
			for (const double end = now() + seconds; now() < end;) {
				usleep(1000);
			}
		}
		MPI_Barrier(MPI_COMM_WORLD);
	} else if (strncmp(mode, "send", 4) == 0 || strcmp(mode, "persistent") == 0) {
		send_first(mode, right, left);
	} else if (strcmp(mode, "leave") == 0) {
		if (rank == 1) {
			MPI_Recv(&x, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
	} else {
		go_round(seconds);
	}
	MPI_Finalize();
	printf("rank %d of %d is done\n", rank, size);
	return 0;
}
