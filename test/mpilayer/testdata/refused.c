/* refused.c DIRECTORY - what may be open at a checkpoint and what may not: a checkpoint with each must fail by the name
 * of the call, or succeed, and one behind it must succeed. Two ranks. Says "right" at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holdfast_mpi.h"

static int rank, other, version;
static char path[4096];
static MPI_File file;
static MPI_Win window;
static MPI_Group group;
static MPI_Request request;
static MPI_Message message;
static MPI_Comm twin;
static int *cells, mine, in[2];

static void open_split(void) { MPI_File_write_all_begin(file, &mine, 1, MPI_INT); }
static void end_split(void) { MPI_File_write_all_end(file, &mine, MPI_STATUS_IGNORE); }

static void open_lock(void) { MPI_Win_lock(MPI_LOCK_SHARED, other, 0, window); }
static void end_lock(void) { MPI_Win_unlock(other, window); }

static void open_start(void) {
	MPI_Win_post(group, 0, window);
	MPI_Win_start(group, 0, window);
}

static void end_start(void) { MPI_Win_complete(window); }
static void open_nothing(void) {}
static void end_post(void) { MPI_Win_wait(window); }

static void open_fence(void) {
	MPI_Win_fence(0, window);
	MPI_Put(&mine, 1, MPI_INT, other, 0, 1, MPI_INT, window);
}

static void end_fence(void) { MPI_Win_fence(0, window); }

static void open_lock_all(void) {
	MPI_Win_lock_all(0, window);
	MPI_Put(&mine, 1, MPI_INT, other, 0, 1, MPI_INT, window);
}

static void end_lock_all(void) { MPI_Win_unlock_all(window); }

static void open_write(void) { MPI_File_iwrite_at(file, rank * 4, &mine, 1, MPI_INT, &request); }
static void open_write_all(void) { MPI_File_iwrite_at_all(file, rank * 4, &mine, 1, MPI_INT, &request); }
static void end_request(void) { MPI_Wait(&request, MPI_STATUS_IGNORE); }

static void open_probe(void) {
	MPI_Send(&mine, 1, MPI_INT, other, 4, MPI_COMM_WORLD);
	MPI_Mprobe(other, 4, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
}

static void end_probe(void) { MPI_Mrecv(in, 1, MPI_INT, &message, MPI_STATUS_IGNORE); }

/* A message that is too long for its receive: the error is the program's to see. */
static void open_truncated(void) {
	const int two[2] = { mine, mine };
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Irecv(in, 1, MPI_INT, other, 6, MPI_COMM_WORLD, &request);
	MPI_Send(two, 2, MPI_INT, other, 6, MPI_COMM_WORLD);
}

static void end_truncated(void) {
	int class = MPI_SUCCESS;
	MPI_Error_class(MPI_Wait(&request, MPI_STATUS_IGNORE), &class);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	if (class != MPI_ERR_TRUNCATE) {
		printf("rank %d: a message that is too long: class %d\n", rank, class);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static void open_collective(void) { MPI_Iallgather(&mine, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD, &request); }

static void end_collective(void) {
	end_request();
	if (in[rank] != rank + 1 || in[other] != other + 1) {
		printf("rank %d: gathered %d and %d\n", rank, in[0], in[1]);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

/* One rank has its communicator, and sends on it, before the other has been told. */
static void open_idup(void) {
	MPI_Comm_idup(MPI_COMM_WORLD, &twin, &request);
	if (rank == 0) {
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		MPI_Send(&mine, 1, MPI_INT, 1, 5, twin);
	}
}

static void end_idup(void) {
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (rank == 1) {
		MPI_Recv(in, 1, MPI_INT, 0, 5, twin, MPI_STATUS_IGNORE);
	}
	MPI_Comm_free(&twin);
}

static int query(void *state, MPI_Status *st) {
	(void)state;
	MPI_Status_set_elements(st, MPI_INT, 0);
	MPI_Status_set_cancelled(st, 0);
	return MPI_SUCCESS;
}

static int release(void *state) { return state != NULL; }

static int cancel(void *state, int complete) { return state != NULL && complete; }

/* The page has room for 1024 at a time: those that are freed leave it, in any order. */
static void open_many(void) {
	MPI_Comm comms[40];
	for (int round = 0; round < 30; round++) {
		for (int i = 0; i < 40; i++) {
			MPI_Comm_dup(i % 2 == 0 ? MPI_COMM_WORLD : comms[i - 1], &comms[i]);
		}
		for (int i = 0; i < 40; i++) {
			MPI_Comm_free(&comms[(i * 7 + round) % 40]);
		}
	}
}

/* A message that is too long for its receive counts as received, whatever call the program learns it by. */
static void wait_truncated(void) {
	const int out[3] = { 1, 2, 3 };
	int got[3], code[3], errors = 0;
	MPI_Request two[2];
	MPI_Comm_dup(MPI_COMM_WORLD, &twin);
	MPI_Comm_set_errhandler(twin, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* MPICH calls that of MPI_Waitall's error */
	for (int i = 0; i < 3; i++) {
		MPI_Irecv(&got[0], 1, MPI_INT, other, 20, twin, &two[0]);
		MPI_Irecv(&got[1], 1, MPI_INT, other, 21, twin, &two[1]);
		MPI_Send(out, i == 1 ? 1 : 3, MPI_INT, other, 20, twin);
		MPI_Send(out, i == 1 ? 3 : 1, MPI_INT, other, 21, twin);
		if (i == 2) {
			code[i] = MPI_Wait(&two[0], MPI_STATUS_IGNORE);
			MPI_Wait(&two[1], MPI_STATUS_IGNORE);
		} else {
			code[i] = MPI_Waitall(2, two, MPI_STATUSES_IGNORE);
		}
		for (int k = 0; k < 2; k++) { /* some libraries leave the one with the error */
			if (two[k] != MPI_REQUEST_NULL) {
				MPI_Wait(&two[k], MPI_STATUS_IGNORE);
			}
		}
		errors += code[i] != MPI_SUCCESS;
	}
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Comm_free(&twin);
	if (errors != 3) {
		printf("rank %d: messages that are too long: codes %d, %d, %d\n", rank, code[0], code[1], code[2]);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static void open_generalized(void) { MPI_Grequest_start(query, release, cancel, NULL, &request); }

static void complete_generalized(void) {
	open_generalized();
	MPI_Grequest_complete(request);
}

static void end_generalized(void) {
	MPI_Grequest_complete(request);
	end_request();
}

#if MPI_VERSION >= 4
/* The message waits in the mailbox when it is received. */
static void open_isendrecv(void) {
	MPI_Request sent;
	MPI_Isend(&mine, 1, MPI_INT, other, 6, MPI_COMM_WORLD, &sent);
	if (hf_checkpoint(NULL, 0) != HF_OK) {
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Wait(&sent, MPI_STATUS_IGNORE);
	in[0] = mine + 10;
	MPI_Isendrecv_replace(&in[0], 1, MPI_INT, other, 7, other, 6, MPI_COMM_WORLD, &request);
}

static void end_isendrecv(void) {
	MPI_Status st;
	MPI_Wait(&request, &st);
	const int first = in[0], source = st.MPI_SOURCE, tag = st.MPI_TAG;
	MPI_Isendrecv(&mine, 1, MPI_INT, other, 8, &in[1], 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, &st);
	if (first != other + 1 || source != other || tag != 6 || in[1] != other + 11 || st.MPI_TAG != 7) {
		printf("rank %d: got %d from %d with %d, then %d with %d\n", rank, first, source, tag, in[1], st.MPI_TAG);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Recv(&in[1], 1, MPI_INT, other, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void open_partitioned(void) {
	MPI_Psend_init(&mine, 1, 1, MPI_INT, other, 9, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
	MPI_Request_free(&request);
}
#endif

static const struct {
	const char *refused; /* NULL: it may be open */
	void (*open)(void), (*end)(void);
	int for_ever;
} cases[] = {
	{ "MPI_File_write_all_begin", open_split, end_split, 0 },
	{ "MPI_Win_lock", open_lock, end_lock, 0 },
	{ "MPI_Win_start", open_start, end_start, 1 }, /* MPI_Win_post is open still */
	{ "MPI_Win_post", open_nothing, end_post, 0 },
	{ "MPI_Put", open_fence, end_fence, 0 },
	{ NULL, open_lock_all, end_lock_all, 0 },
	{ NULL, open_write, end_request, 0 },
	{ NULL, open_write_all, end_request, 0 },
	{ "MPI_Mprobe", open_probe, end_probe, 0 },
	{ "MPI_Irecv", open_truncated, end_truncated, 0 },
	{ NULL, open_collective, end_collective, 0 },
	{ NULL, open_idup, end_idup, 0 },
	{ NULL, open_many, open_nothing, 0 },
	{ NULL, wait_truncated, open_nothing, 0 },
	{ "MPI_Grequest_start", open_generalized, end_generalized, 0 },
	{ NULL, complete_generalized, end_request, 0 },
#if MPI_VERSION >= 4
	{ NULL, open_isendrecv, end_isendrecv, 0 },
	{ "MPI_Psend_init", open_partitioned, open_nothing, 1 },
#endif
};

/* checkpoint takes one, and compares what comes of it. */
static void checkpoint(const char *refused) {
	const int code = hf_checkpoint(NULL, 0);
	version++;
	if (code != (refused == NULL ? HF_OK : HF_E_FAILED) || (refused != NULL && strstr(hf_error(), refused) == NULL)) {
		printf("rank %d: checkpoint %d: code %d, %s; it should be %s\n", rank, version, code, hf_error(),
			refused == NULL ? "taken" : refused);
		fflush(stdout);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

/* named takes one that keeps no messages, while one is in the network, in the mailbox, and received. */
static void named(void) {
	static const char *const places[] = { "in the network", "in the mailbox", "received" };
	if (rank == 0) {
		MPI_Send(&mine, 1, MPI_INT, 1, 10, MPI_COMM_WORLD);
	}
	for (int i = 0; i < 3; i++) {
		if (i == 1) {
			checkpoint(NULL);
		} else if (i == 2 && rank == 1) {
			MPI_Recv(in, 1, MPI_INT, 0, 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
		const int code = hf_checkpoint("named", i);
		if (i == 2 ? code != HF_OK : code != HF_E_FAILED || strstr(hf_error(), "in flight") == NULL) {
			printf("rank %d: a named checkpoint with a message %s: code %d, %s\n", rank, places[i], code, hf_error());
			fflush(stdout);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
}

/* freed has a checkpoint find a receive complete, and frees it behind that: its message counts once. One that is
 * cancelled and freed has no message. */
static void freed(void) {
	MPI_Irecv(in, 1, MPI_INT, other, 11, MPI_COMM_WORLD, &request);
	MPI_Send(&mine, 1, MPI_INT, other, 11, MPI_COMM_WORLD);
	checkpoint(NULL);
	MPI_Request_free(&request);
	checkpoint(NULL);
	MPI_Irecv(in, 1, MPI_INT, other, 12, MPI_COMM_WORLD, &request);
	MPI_Cancel(&request);
	MPI_Request_free(&request);
	checkpoint(NULL);
}

int main(int argc, char **argv) {
	MPI_Group world;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	other = 1 - rank;
	mine = rank + 1;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &other, &group);
	MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &cells, &window);
	*cells = 0;
	snprintf(path, sizeof path, "%s/file", argv[1]);
	if (hf_init_mpi(MPI_COMM_WORLD) != HF_OK || hf_protect("cell", cells, 1, HF_INT32) != HF_OK || hf_restore() < 0 ||
		MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	freed();
	named();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		cases[i].open();
		checkpoint(cases[i].refused);
		cases[i].end();
		if (!cases[i].for_ever) {
			checkpoint(NULL);
		}
	}
	if (*cells != other + 1) {
		printf("rank %d: the window has %d\n", rank, *cells);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	printf("rank %d: right\n", rank);
	fflush(stdout);
	MPI_File_close(&file);
	MPI_Win_free(&window);
	hf_finalize();
	MPI_Finalize();
	return 0;
}
