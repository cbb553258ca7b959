/* The C twin of worker.go: the same calls, the same counts, MPI_BYTE where Go
 * sends bytes. Prints "case, tab, seconds" per line, where seconds is the best
 * round's time per message or call. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 200, WINDOW = 64 };

static int rank, peer;

static double pingpong(int bytes, int reps)
{
	/* Go's large slices begin at a page too: the speed of a copy depends on it. */
	char *buf = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	double best = 1e9;
	if (buf == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
	memset(buf, 1, bytes);
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Barrier(MPI_COMM_WORLD);
		double t = MPI_Wtime();
		for (int i = 0; i < reps; i++) {
			if (rank == 0) {
				MPI_Send(buf, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
				MPI_Recv(buf, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			} else {
				MPI_Recv(buf, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
				MPI_Send(buf, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
			}
		}
		t = (MPI_Wtime() - t) / (2.0 * reps);
		if (t < best) best = t;
	}
	free(buf);
	return best;
}

static double allreduce(int reps)
{
	double in = 1, out = 0, best = 1e9;
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Barrier(MPI_COMM_WORLD);
		double t = MPI_Wtime();
		for (int i = 0; i < reps; i++) MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		t = (MPI_Wtime() - t) / reps;
		if (t < best) best = t;
	}
	return best;
}

/* Both ranks keep WINDOW receives and WINDOW sends outstanding. */
static double rate(int reps)
{
	static char in[WINDOW][8], out[WINDOW][8];
	MPI_Request req[2 * WINDOW];
	double best = 1e9;
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Barrier(MPI_COMM_WORLD);
		double t = MPI_Wtime();
		for (int i = 0; i < reps; i++) {
			for (int k = 0; k < WINDOW; k++) MPI_Irecv(in[k], 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &req[k]);
			for (int k = 0; k < WINDOW; k++) MPI_Isend(out[k], 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &req[WINDOW + k]);
			MPI_Waitall(2 * WINDOW, req, MPI_STATUSES_IGNORE);
		}
		t = (MPI_Wtime() - t) / ((double)reps * WINDOW);
		if (t < best) best = t;
	}
	return best;
}

/* The same with requests that are prepared once. */
static double persistent(int reps)
{
	static char in[WINDOW][8], out[WINDOW][8];
	MPI_Request req[2 * WINDOW];
	double best = 1e9;
	for (int k = 0; k < WINDOW; k++) {
		MPI_Recv_init(in[k], 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &req[k]);
		MPI_Send_init(out[k], 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &req[WINDOW + k]);
	}
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Barrier(MPI_COMM_WORLD);
		double t = MPI_Wtime();
		for (int i = 0; i < reps; i++) {
			MPI_Startall(2 * WINDOW, req);
			MPI_Waitall(2 * WINDOW, req, MPI_STATUSES_IGNORE);
		}
		t = (MPI_Wtime() - t) / ((double)reps * WINDOW);
		if (t < best) best = t;
	}
	for (int k = 0; k < 2 * WINDOW; k++) MPI_Request_free(&req[k]);
	return best;
}

int main(int argc, char **argv)
{
	int provided;
	MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	peer = 1 - rank;
	struct { const char *name; double s; } r[] = {
		{"ping-pong 8 B", pingpong(8, 1000)},
		{"ping-pong 64 KiB", pingpong(65536, 60)},
		{"ping-pong 1 MiB", pingpong(1 << 20, 6)},
		{"ping-pong 4 MiB", pingpong(4 << 20, 2)},
		{"Allreduce 8 B", allreduce(1000)},
		{"64 Isend and Irecv of 8 B", rate(20)},
		{"64 persistent of 8 B", persistent(20)},
	};
	if (rank == 0)
		for (unsigned i = 0; i < sizeof r / sizeof r[0]; i++) printf("%s\t%.12g\n", r[i].name, r[i].s);
	MPI_Finalize();
	return 0;
}
