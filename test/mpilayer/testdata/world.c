/* world.c STEPS DIRECTORY [CUT] - what programs do beside messages between two
 * ranks, all of it under way at the points: non-blocking collectives,
 * neighbourhood collectives of a cartesian grid, files, one-sided communication
 * under a lock of all, and messages and collectives of intercommunicators.
 * Ranks call points unequally often. With CUT rank 1 asks for a final
 * checkpoint by USR2 at that step of the first start, and all kill themselves
 * behind it. Each rank prints a sum of all that it has got. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "holdfast_mpi.h"

enum { CELLS = 8, RANKS = 16, SECOND = 5 };

static int rank, size, group, in_group, remote, local;
static int32_t step;
static uint64_t sum, total, around[2], *cells;
static MPI_Comm line, grid, inter, whole;
static MPI_Win window;
static MPI_File file;

static _Noreturn void fail(const char *what) {
	fprintf(stderr, "rank %d: step %d: %s: %s\n", rank, step, what, hf_error());
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static void add(uint64_t v) { sum = sum * 31 + v; }

static uint64_t value(int s, int r) { return (uint64_t)(s * 1000 + r + 1); }

static void make_inter(void) { MPI_Intercomm_create(line, 0, MPI_COMM_WORLD, 1 - group, 7, &inter); }

/* From some step on the intercommunicator is another between the same ranks. */
static void change_inter(void) {
	MPI_Comm first = inter;
	make_inter();
	MPI_Comm_free(&first);
}

static void make_all(const char *dir) {
	char path[4096];
	int ones = 1, half[3] = { rank % 2, size - 1, 2 };
	MPI_Group world, parity;
	group = rank % 2;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_range_incl(world, 1, &half, &parity);
	MPI_Comm_create_group(MPI_COMM_WORLD, parity, 11, &line);
	MPI_Comm_rank(line, &in_group);
	MPI_Comm_size(line, &local);
	make_inter();
	MPI_Comm_remote_size(inter, &remote);
	MPI_Intercomm_merge(inter, group, &whole);
	MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &ones, 0, &grid);
	MPI_Win_allocate(CELLS * sizeof *cells, sizeof *cells, MPI_INFO_NULL, MPI_COMM_WORLD, &cells, &window);
	for (int i = 0; i < CELLS; i++) {
		cells[i] = 0;
	}
	snprintf(path, sizeof path, "%s/file", dir);
	if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
		fail("MPI_File_open");
	}
}

/* What is under way at a point. */
static uint64_t mine, out, record;
static MPI_Request requests[5];

static void start(void) {
	const MPI_Offset at = ((MPI_Offset)step * size + rank) * (MPI_Offset)sizeof record;
	mine = out = record = value(step, rank);
	MPI_Iallreduce(&mine, &total, 1, MPI_UINT64_T, MPI_SUM, whole, &requests[0]);
	MPI_Ineighbor_allgather(&mine, 1, MPI_UINT64_T, around, 1, MPI_UINT64_T, grid, &requests[1]);
	MPI_Isend(&out, 1, MPI_UINT64_T, (in_group + step) % remote, step % 3, inter, &requests[2]);
	if (step % 3 == 0) {
		MPI_File_iwrite_at(file, at, &record, 1, MPI_UINT64_T, &requests[3]);
	} else if (step % 3 == 1) {
		MPI_File_iwrite_at_all(file, at, &record, 1, MPI_UINT64_T, &requests[3]);
	} else {
		MPI_File_write_at_all(file, at, &record, 1, MPI_UINT64_T, MPI_STATUS_IGNORE);
	}
	MPI_Accumulate(&mine, 1, MPI_UINT64_T, (rank + 1) % size, step % CELLS, 1, MPI_UINT64_T, MPI_SUM, window);
	MPI_Ibarrier(inter, &requests[4]);
}

static void finish(void) {
	uint64_t got, most = 0;
	MPI_Status st, all[5];
	MPI_Waitall(5, requests, all);
	MPI_Win_flush_local_all(window); /* mine is used again */
	add(total);
	add(around[0]);
	add(around[1]);
	for (int i = 0; i < remote; i++) {
		if ((i + step) % local == in_group) {
			MPI_Recv(&got, 1, MPI_UINT64_T, MPI_ANY_SOURCE, step % 3, inter, &st);
			if (got != value(step, 2 * st.MPI_SOURCE + 1 - group)) {
				fail("a message that is not of its source");
			}
			most += got;
		}
	}
	add(most);
	if (step % 4 == 0) {
		MPI_Allreduce(&mine, &most, 1, MPI_UINT64_T, MPI_MAX, inter);
		add(most);
	}
}

static void check(int steps) {
	uint64_t want[CELLS] = { 0 }, *all = malloc((size_t)(steps * size) * sizeof *all);
	for (int s = 0; s < steps; s++) {
		want[s % CELLS] += value(s, (rank + size - 1) % size);
	}
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < CELLS; i++) {
		if (cells[i] != want[i]) {
			printf("rank %d: cell %d has %llu, not %llu\n", rank, i, (unsigned long long)cells[i],
				(unsigned long long)want[i]);
			fail("the window");
		}
	}
	MPI_File_sync(file);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_File_read_at_all(file, 0, all, steps * size, MPI_UINT64_T, MPI_STATUS_IGNORE);
	for (int i = 0; i < steps * size; i++) {
		if (all[i] != value(i / size, i % size)) {
			fail("the file");
		}
	}
	free(all);
}

int main(int argc, char **argv) {
	const int steps = argc > 1 ? atoi(argv[1]) : 100, cut = argc > 3 ? atoi(argv[3]) : -1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	make_all(argv[2]);
	for (int i = 0; i < 5; i++) {
		requests[i] = MPI_REQUEST_NULL;
	}
	if (hf_init_mpi(MPI_COMM_WORLD) != HF_OK || hf_protect("sum", &sum, 1, HF_UINT64) != HF_OK ||
		hf_protect("step", &step, 1, HF_INT32) != HF_OK || hf_protect("total", &total, 1, HF_UINT64) != HF_OK ||
		hf_protect("mine", &mine, 1, HF_UINT64) != HF_OK || hf_protect("around", around, 2, HF_UINT64) != HF_OK ||
		hf_protect("cells", cells, CELLS, HF_UINT64) != HF_OK) {
		fail("begin");
	}
	const int restored = hf_restore();
	if (restored < 0) {
		fail("hf_restore");
	}
	if (restored == 1 && step >= SECOND) {
		change_inter();
	}
	MPI_Win_lock_all(0, window);
	printf("rank %d begins at step %d\n", rank, step);
	fflush(stdout);
	for (int first = 1; step < steps; step++, first = 0) {
		if (restored == 0 || !first) { /* else the restart is behind it */
			if (step == SECOND) {
				change_inter();
			}
			start();
		}
		if (restored == 0 && rank == 1 && step == cut) {
			raise(SIGUSR2);
		}
		if (restored == 0 && rank == 1 && cut >= 0 && step > cut) {
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
		finish();
	}
	check(steps);
	printf("rank %d sum %llu\n", rank, (unsigned long long)sum);
	fflush(stdout);
	if (hf_finalize() != HF_OK) {
		fail("hf_finalize");
	}
	MPI_File_close(&file);
	MPI_Win_free(&window);
	MPI_Finalize();
	return 0;
}
