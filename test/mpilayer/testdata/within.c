/* within.c STEPS [threads] - what a program does within calls of MPI that call it back: copies and deletions of
 * attributes, error handlers, generalized requests. In each step each of these sends a message to the right, and behind
 * a point each receives the one from the left; the copies also duplicate a communicator, which messages are on. In a
 * first start rank 1 asks for a final checkpoint by USR2 in the middle, and all kill themselves behind it. Each rank
 * prints a sum. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "holdfast_mpi.h"

enum { COPIED, DELETED, TYPE_COPIED, TYPE_DELETED, WINDOW_DELETED, RAISED, WINDOW_RAISED, FILE_RAISED };
enum { QUERIED = FILE_RAISED + 1, RELEASED, CANCELLED, DIRECT };

static int rank, size, left, right, key, type_key, window_key;
static int32_t step;
static uint64_t sum;
static enum { QUIET, SENDS, RECEIVES } mode;
static MPI_Comm handled;

static _Noreturn void fail(const char *what, int code) {
	printf("rank %d, step %d: %s: %d, %s\n", rank, step, what, code, hf_error());
	fflush(stdout);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static int value(int from, int tag) { return from * 10000 + step * 100 + tag; }

static void pass(int tag, MPI_Comm comm) {
	int v = value(rank, tag);
	if (mode == SENDS) {
		MPI_Send(&v, 1, MPI_INT, right, tag, comm);
	} else if (mode == RECEIVES) {
		MPI_Recv(&v, 1, MPI_INT, left, tag, comm, MPI_STATUS_IGNORE);
		sum = sum * 31 + (uint64_t)v;
		if (v != value(left, tag)) {
			fail("another message", v);
		}
	}
}

/* The attribute of a communicator is one of its own, as a library has it. */
static int copied(MPI_Comm comm, int k, void *state, void *own, void *copy, int *flag) {
	(void)k, (void)state;
	MPI_Comm *inner = malloc(sizeof *inner);
	pass(COPIED, comm);
	MPI_Comm_dup(*(MPI_Comm *)own, inner);
	*(MPI_Comm **)copy = inner;
	*flag = 1;
	return MPI_SUCCESS;
}

static int deleted(MPI_Comm comm, int k, void *own, void *state) {
	(void)comm, (void)k, (void)state;
	pass(DELETED, MPI_COMM_WORLD);
	MPI_Comm_free(own);
	free(own);
	return MPI_SUCCESS;
}

static int type_copied(MPI_Datatype type, int k, void *state, void *own, void *copy, int *flag) {
	(void)type, (void)k, (void)state;
	pass(TYPE_COPIED, MPI_COMM_WORLD);
	*(void **)copy = own;
	*flag = 1;
	return MPI_SUCCESS;
}

static int type_deleted(MPI_Datatype type, int k, void *own, void *state) {
	(void)type, (void)k, (void)own, (void)state;
	pass(TYPE_DELETED, MPI_COMM_WORLD);
	return MPI_SUCCESS;
}

static int window_deleted(MPI_Win win, int k, void *own, void *state) {
	(void)win, (void)k, (void)own, (void)state;
	pass(WINDOW_DELETED, MPI_COMM_WORLD);
	return MPI_SUCCESS;
}

static void raised(MPI_Comm *comm, int *code, ...) {
	(void)code;
	pass(RAISED, *comm);
}

static void window_raised(MPI_Win *win, int *code, ...) {
	(void)win, (void)code;
	pass(WINDOW_RAISED, MPI_COMM_WORLD);
}

static void file_raised(MPI_File *file, int *code, ...) {
	(void)file, (void)code;
	pass(FILE_RAISED, MPI_COMM_WORLD);
}

static int queried(void *state, MPI_Status *st) {
	(void)state;
	pass(QUERIED, MPI_COMM_WORLD);
	MPI_Status_set_elements(st, MPI_INT, 0);
	MPI_Status_set_cancelled(st, 0);
	return MPI_SUCCESS;
}

static int released(void *state) {
	(void)state;
	pass(RELEASED, MPI_COMM_WORLD);
	return MPI_SUCCESS;
}

static int cancelled(void *state, int complete) {
	(void)state, (void)complete;
	pass(CANCELLED, MPI_COMM_WORLD);
	return MPI_SUCCESS;
}

/* all has each of them called once. */
static void all(int how, MPI_Comm outer, MPI_Datatype pair) {
	MPI_Comm made;
	MPI_Errhandler handler;
	MPI_Datatype other;
	MPI_Request request;
	MPI_Win win;
	MPI_File file;
	int v = 0, *memory;
	mode = how;
	MPI_Comm_dup(outer, &made);
	MPI_Comm_free(&made);
	MPI_Type_dup(pair, &other);
	MPI_Type_free(&other);
	MPI_Win_allocate(sizeof *memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_set_attr(win, window_key, NULL);
	MPI_Win_create_errhandler(window_raised, &handler);
	MPI_Win_set_errhandler(win, handler);
	MPI_Errhandler_free(&handler);
	MPI_Win_lock(MPI_LOCK_SHARED, size + 5, 0, win);
	MPI_Win_free(&win);
	MPI_Send(&v, 1, MPI_INT, size + 5, 0, handled);
	MPI_File_open(MPI_COMM_SELF, "/nowhere/at all", MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
	MPI_Grequest_start(queried, released, cancelled, NULL, &request);
	MPI_Cancel(&request);
	MPI_Grequest_complete(request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	mode = QUIET;
}

static void point(void) {
	const int code = hf_point();
	if (code == HF_STOP) {
		raise(SIGKILL);
	}
	if (code < 0) {
		fail("hf_point", code);
	}
}

int main(int argc, char **argv) {
	const int steps = argc > 1 ? atoi(argv[1]) : 10;
	MPI_Comm outer, *inner = malloc(sizeof *inner);
	MPI_Datatype pair;
	MPI_Errhandler handler;
	int level;

	MPI_Init_thread(&argc, &argv, argc > 2 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	right = (rank + 1) % size;
	left = (rank + size - 1) % size;
	MPI_Comm_create_keyval(copied, deleted, &key, NULL);
	MPI_Type_create_keyval(type_copied, type_deleted, &type_key, NULL);
	MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, window_deleted, &window_key, NULL);
	MPI_Comm_dup(MPI_COMM_WORLD, &handled);
	MPI_Comm_create_errhandler(raised, &handler);
	MPI_Comm_set_errhandler(handled, handler);
	MPI_Errhandler_free(&handler);
	MPI_File_create_errhandler(file_raised, &handler);
	MPI_File_set_errhandler(MPI_FILE_NULL, handler);
	MPI_Errhandler_free(&handler);
	MPI_Comm_dup(MPI_COMM_WORLD, &outer);
	MPI_Comm_dup(MPI_COMM_WORLD, inner);
	MPI_Comm_set_attr(outer, key, inner);
	MPI_Type_contiguous(2, MPI_INT, &pair);
	MPI_Type_commit(&pair);
	MPI_Type_set_attr(pair, type_key, &pair);

	if (hf_init_mpi(MPI_COMM_WORLD) != HF_OK || hf_protect("sum", &sum, 1, HF_UINT64) != HF_OK ||
		hf_protect("step", &step, 1, HF_INT32) != HF_OK) {
		fail("begin", 0);
	}
	const int restored = hf_restore();
	if (restored < 0) {
		fail("hf_restore", restored);
	}
	printf("rank %d begins at step %d\n", rank, step);
	fflush(stdout);
	for (bool again = restored > 0; step < steps; step++, again = false) {
		MPI_Comm made, *own;
		int found, v = value(rank, DIRECT);
		if (!again) {
			all(SENDS, outer, pair);
		}
		MPI_Comm_dup(outer, &made);
		MPI_Comm_get_attr(made, key, &own, &found);
		if (!again) {
			MPI_Send(&v, 1, MPI_INT, right, DIRECT, *own);
		}
		if (restored == 0 && rank == 1 && step == steps / 2) {
			hf_request(1);
		}
		if (restored == 0 && rank == 1 && step > steps / 2) {
			usleep(1000); /* the daemon has time to hear of it */
		}
		point();
		all(RECEIVES, outer, pair);
		mode = RECEIVES;
		pass(DIRECT, *own);
		mode = QUIET;
		MPI_Comm_free(&made);
	}
	printf("rank %d sum %llu\n", rank, (unsigned long long)sum);
	MPI_Type_free(&pair);
	if (hf_finalize() != HF_OK) {
		fail("hf_finalize", 0);
	}
	MPI_Finalize();
	return 0;
}
