/* holdfast.h - checkpoints of a program in C: protected arrays, points, restart.
 *
 * A program names the memory that it needs to continue, restores it, and calls hf_point in each step. At a point that
 * memory is whole, and none of the program's own messages is in flight. (With libholdfast-mpi they may be:
 * docs/MESSAGES.md.)
 *
 *     MPI_Init(&argc, &argv);
 *     hf_init_mpi(MPI_COMM_WORLD);                       // holdfast_mpi.h
 *     hf_protect("step", &step, 1, HF_INT32);
 *     hf_protect("u", u, cells, HF_DOUBLE);
 *     hf_restore();                                      // a first start changes nothing
 *     while (step < steps) {
 *         if (hf_point() == HF_STOP)
 *             break;                                     // the final checkpoint is durable
 *         ...
 *         step++;
 *     }
 *     hf_finalize();
 *     MPI_Finalize();
 *
 * The library starts `holdfast node`, which takes the checkpoints: docs/NODE.md. HOLDFAST_LOCAL and HOLDFAST_GLOBAL
 * name the directories; `holdfast config` lists all settings. The library needs neither MPI nor a GPU library, and is
 * the same for every MPI.
 *
 * Without checkpoints. With HOLDFAST_GLOBAL=off, HOLDFAST_LOCAL=off or both, and no directory, the program runs
 * without checkpoints and without a daemon. hf_restore and hf_restart_test find nothing. hf_point, hf_checkpoint and
 * hf_wait return HF_OK and do nothing. Only hf_restart_begin and hf_request(1) fail.
 *
 * Signals. hf_init handles the signals that ask for checkpoints: USR1, and USR2 and TERM for a final one (settings
 * signals.checkpoint and signals.stop). It does so if they have their default action, or if a library handles them, as
 * MPICH handles USR1. It leaves the program's own handlers and ignored signals alone. Install a handler that lies in a
 * shared library after hf_init. A handler may call hf_request. hf_finalize restores the signals.
 *
 * Errors. Calls return HF_OK or a positive result, or a negative HF_E_ code; hf_error has the text with the remedy.
 *
 * When the node daemon dies, the first rank of the node writes a line to standard error at its next point, and
 * hf_point returns HF_E_DAEMON once. If all ranks of the job are on this node, continue: another daemon starts with
 * the settings of the first, and takes a checkpoint when all ranks have reached a point. Until then hf_checkpoint
 * with a name and hf_wait return HF_E_DAEMON. If the job has ranks on other nodes, hf_point returns HF_E_LOST.
 *
 * Threads. Only one thread at a time may be in the library, except for hf_error, hf_stop_asked and hf_request. A child
 * after fork must not call the library: calls return HF_E_ORDER. Its signals act as before hf_init.
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The release. A program that was built with an older one of the same major version works with this library. */
#define HF_VERSION_MAJOR 0
#define HF_VERSION_MINOR 2
#define HF_VERSION_PATCH 0

/* Results. */
#define HF_OK 0
#define HF_RESTORED 1 /* hf_restore: an epoch was restored */
#define HF_STOP 1     /* hf_point, hf_checkpoint: the final checkpoint is durable; finish */
#define HF_FOUND 1    /* hf_restart_test: a version is found; hf_test: it is durable; hf_saved: it has the array */

/* Errors. */
#define HF_E_ARG (-1)      /* an argument is wrong */
#define HF_E_ORDER (-2)    /* the call is out of order */
#define HF_E_MEMORY (-3)   /* no memory, or no address space */
#define HF_E_DAEMON (-4)   /* the node daemon cannot be started, or has died; after hf_point, go on */
#define HF_E_PROTOCOL (-5) /* daemon and library are of different releases */
#define HF_E_LOST (-6)     /* another rank has ended: exit, the job is over */
#define HF_E_FAILED (-7)   /* the operation failed; hf_error says why */

/* Types of elements. A checkpoint remembers them, and restores an array into one of its type. */
typedef enum {
	HF_BYTE = 1,
	HF_INT8 = 2,
	HF_INT16 = 3,
	HF_INT32 = 4,
	HF_INT64 = 5,
	HF_UINT8 = 6,
	HF_UINT16 = 7,
	HF_UINT32 = 8,
	HF_UINT64 = 9,
	HF_FLOAT = 10,
	HF_DOUBLE = 11,
	HF_FLOAT_COMPLEX = 12,
	HF_DOUBLE_COMPLEX = 13
} hf_type;

/* Gathers `bytes` bytes at `mine` of every rank into `all`, in order of rank, on all ranks: MPI_Allgather
 * of bytes. Returns 0, or any other number if it failed. hf_init calls it some ten times. */
typedef int hf_allgather_fn(void *all, const void *mine, size_t bytes, void *arg);

/* Arguments of hf_init. Begin with HF_CONFIG_INIT, so that fields of later releases have their default. */
typedef struct {
	size_t size_of;             /* sizeof(hf_config) */
	int rank, size;             /* of this process; -1: from the launcher's environment */
	const char *program;        /* name of the job; NULL: that of the executable */
	hf_allgather_fn *allgather; /* NULL: all ranks are on this node */
	void *arg;                  /* for allgather */
	int world;                  /* processes of MPI_COMM_WORLD; 0: not known */
} hf_config;

#define HF_CONFIG_INIT \
	{ sizeof(hf_config), -1, -1, NULL, NULL, NULL, 0 }

/* Finds or starts the node daemon. Local. Optional: hf_init does it otherwise. Call it before MPI_Init if the MPI does
 * not allow processes to be started later. */
int hf_start(void);

/* Allows the job to continue from a checkpoint of another number of ranks. Local, before hf_init, on all ranks.
 * Protect all state by hf_protect_global or hf_protect_replicated. If any other state is protected, at the
 * checkpoint or now, hf_restore of another number of ranks fails and names it. Without this call hf_init refuses
 * such checkpoints. */
int hf_elastic(void);

/* Connects this rank. Collective: returns when all ranks have called it. c may be NULL. Rank and size
 * come from c, else from the variables of Open MPI, PMI or Slurm, else it is one process. */
int hf_init(const hf_config *c);

/* Makes count elements at ptr part of every checkpoint. Local. name has 1 to 200 bytes without '/', and does not begin
 * with "holdfast.". The caller keeps ptr allocated until hf_unprotect or hf_finalize. The same name with the same type
 * gives a new place or count. Before hf_restore a program protects everything that it had protected at the checkpoint.
 *
 * ptr may be memory of a CUDA or HIP device. The library asks the driver that the program has loaded. A checkpoint
 * waits for all work of that device, then copies the array within device memory, if the setting max_shadow leaves
 * room. A thread of the library brings the copy to the host, while the program continues and may change its memory.
 * hf_wait waits for it. */
int hf_protect(const char *name, void *ptr, size_t count, hf_type type);

/* Makes all device memory of a CUDA program part of every checkpoint, as arrays "cuda.ADDRESS". Local, between hf_init
 * and hf_restore. The program must run with libholdfast-cuda in front of the driver and HOLDFAST_CUDA_ARENA=on, as it
 * does under `holdfast run --cuda` (docs/CUDA.md). The next checkpoint includes later allocations, and no longer the
 * freed ones.
 *
 * A restarted program makes the allocations that lived at the checkpoint again before it calls hf_restore, by the same
 * calls in the same order: each must lie at the same address, since device memory may hold addresses. A variable of a
 * module, "cuda.NAME", is part of checkpoints once the program has asked for its address; a copy to or from it does.
 *
 * Buffers of MPI, UCX and NCCL are left out. Managed memory, mappings that the program has made, memory of graphs,
 * NVSHMEM's heap and memory of ncclMemAlloc are refused: this call, or a later hf_point, fails and names the
 * allocation. Page-locked host memory is not included: use hf_protect. */
int hf_protect_cuda(void);

/* Gives an array another length: returns its new memory, for count elements, or NULL if there is none. The contents of
 * the old memory may be lost. A count of 0 may return NULL. The function must not call the library. */
typedef void *hf_resize_fn(size_t count, void *arg);

/* As hf_protect, for an array whose length a restarted program does not know. Local. If a checkpoint has another
 * number of elements, hf_restore and hf_recover call resize(count, arg) and copy to the result. `item` is the number
 * of elements that belong together: 1, or 3 for points in space, or sizeof(struct cell) for structures as HF_BYTE. A
 * count is a multiple of it. An array that was saved with another item is refused.
 *
 *     static void *resize(size_t count, void *arg)
 *     {
 *         double **trades = arg, *more = realloc(*trades, (ntrades = count) * sizeof **trades);
 *         return more != NULL || count == 0 ? *trades = more : NULL;
 *     }
 *     hf_protect_resizable("trades", trades, ntrades, HF_DOUBLE, 1, resize, &trades);
 *
 * A program that changes the length protects the array again. Alternatively, it calls hf_saved before hf_restore and
 * allocates the saved length. If an array grows without either, a program that begins with another length cannot
 * restore it; the daemon warns at the first checkpoint. */
int hf_protect_resizable(
	const char *name, void *ptr, size_t count, hf_type type, size_t item, hf_resize_fn *resize, void *arg);

/* As hf_protect, for a value that is the same on all ranks, such as the number of a step. Local. It is stored once, or
 * with every rank if it is small. Each checkpoint compares the ranks' bytes, and fails if they differ. */
int hf_protect_replicated(const char *name, void *ptr, size_t count, hf_type type);

#define HF_MAX_DIMS 8

/* A box of a global array that a rank owns, and its place in the memory of the rank. Dimensions are row-major: the
 * last one varies fastest. All numbers are elements. Element i of the box, counted from the box's first one in each
 * dimension d, is memory[offset + the sum of (low[d] + i[d]) * step[d]]. The last step is 1; each other step is the
 * next dimension's step times its pitch. Fields that are 0 may be left out:
 *
 *     hf_box b = {.start = {row0, col0}, .count = {rows, cols}, .low = {1, 1}, .high = {1, 1}}; */
typedef struct {
	int64_t start[HF_MAX_DIMS], count[HF_MAX_DIMS]; /* in the global array; a box with a count of 0 is none */
	int64_t low[HF_MAX_DIMS], high[HF_MAX_DIMS];    /* ghost elements before and behind it, in memory only */
	int64_t pitch[HF_MAX_DIMS];  /* lengths of the array in memory that has the box; 0: low + count + high */
	int64_t block[HF_MAX_DIMS];  /* 0, or the indices come in runs of this length; the last may be shorter */
	int64_t stride[HF_MAX_DIMS]; /* from the begin of one run to that of the next; hf_block_cyclic sets both */
	int64_t offset;              /* in memory, to the begin of the box with its ghosts */
} hf_box;

/* Makes this rank's share of a global array part of every checkpoint, so that any number of ranks can restore it.
 * hf_restore reads only the elements that the rank owns then. Local, but every rank declares the array, with the same
 * name, type and dimensions. Every element must belong to exactly one box. Otherwise the checkpoint fails and names
 * the box and the ranks. Ghosts are not saved: exchange them after hf_restore. Returns HF_OK or an error.
 *
 * ptr is memory of count elements, on the host or a device, that holds all n boxes; n may be 0. The array is size[d]
 * long in each of its dims dimensions. The same name again gives other memory or other boxes. See hf_elastic.
 * `holdfast export` writes the array as one file for NumPy. A checkpoint with a name holds the rank's own share:
 * hf_recover refuses other boxes. */
int hf_protect_global(const char *name, void *ptr, size_t count, hf_type type, int dims, const int64_t *size,
	const hf_box *boxes, size_t n);

/* The common divisions, as the box of a rank. Local; no hf_init is needed. They return the number of boxes of the
 * rank, 1 or 0, or HF_E_ARG. Set low, high, pitch and offset afterwards. grid has the number of ranks along each
 * dimension. The product is the number of all ranks, in row-major order as in MPI_Cart_create.
 *
 * hf_block: along a dimension of n indices, place i of p has those from i*n/p up to (i+1)*n/p.
 * hf_block_cyclic: blocks of block[d] indices are dealt out in turn, as by ScaLAPACK and MPI_Type_create_darray. The
 * rank's blocks make up one array in memory, whose lengths count has.
 * hf_variable: an array of one dimension, in runs of the given lengths, one for each rank; size is set to their
 * sum. */
int hf_block(int dims, const int64_t *size, const int *grid, int rank, hf_box *box);
int hf_block_cyclic(int dims, const int64_t *size, const int *grid, const int64_t *block, int rank, hf_box *box);
int hf_variable(const int64_t *lengths, int ranks, int rank, int64_t *size, hf_box *box);

/* Makes a file part of every checkpoint under name. Local. A checkpoint reads path while the program waits, and
 * fails if the file is missing. A restore or recovery writes a new file, syncs it, and then replaces the one at
 * path. Open the file after hf_restore: what the program writes to the replaced one is lost, as a line on standard
 * error then says. The same name again gives another path. */
int hf_protect_file(const char *name, const char *path);

/* Makes the bytes written to hf_fopen(name, "w") part of every checkpoint under name; until the first fclose there are
 * none. Local. Call it before hf_restore, which needs all names; later hf_fopen does it. */
int hf_protect_stream(const char *name);

/* Opens the bytes that are protected under name as a stream, for a program with its own writer and reader of restart
 * files. Mode "w" starts empty, "a" appends, "r" reads restored bytes. Written bytes count when fclose has returned 0.
 * Local; the memory belongs to the library. Returns NULL on an error: see hf_error. */
FILE *hf_fopen(const char *name, const char *mode);

/* Makes an MPI request part of every checkpoint. Local. holdfast_mpi.h describes it: hf_protect_request calls it with
 * the address of the program's MPI_Request. If fortran is not 0, request is the address of a Fortran integer. */
int hf_protect_handle(const char *name, void *request, int fortran);

/* Takes an array, file, stream or request out of later checkpoints. Local. */
int hf_unprotect(const char *name);

typedef int hf_before_fn(void *arg);

/* Registers fn(arg), which is called just before each checkpoint: in hf_point when one is asked for, in hf_checkpoint
 * and in hf_finalize. Use it to write data, such as a stream, that is costly to keep up to date. Local; NULL for
 * none. fn may protect, and write streams. If it returns anything but 0, the call fails and takes no checkpoint. */
int hf_before(hf_before_fn *fn, void *arg);

/* Reads the newest epoch that all ranks can read into everything protected, and returns HF_RESTORED; HF_OK on
 * a first start. Collective, once, after hf_protect and before the first point. Nothing is written
 * to protected memory unless all ranks have theirs, verified. */
int hf_restore(void);

/* Takes a checkpoint if one is asked for. Collective: all ranks reach the same number of points, and none of their
 * messages is in flight. With libholdfast-mpi neither is required: messages in flight become part of the checkpoint,
 * or it fails on all ranks and names the call. Costs a store and a load if no checkpoint is asked for. Otherwise it
 * waits until all ranks are here and the state is copied; the writing continues behind the program. Returns HF_OK,
 * HF_STOP, or an error. */
int hf_point(void);

/* Takes a checkpoint here and now. Collective. Returns when the state is copied; hf_wait waits until it is durable.
 *
 * With name NULL it takes the same checkpoint as hf_point, counts as a point, and ignores version. Otherwise the
 * checkpoint has a name, of letters, digits, '.', '_' and '-', and a version of 0 or more that the program chooses.
 * Checkpoints of each name are kept and counted separately, in the directory name.NAME of each level. Signals,
 * intervals and hf_restore do not concern them. If the ranks give different names or versions, the call fails on all
 * ranks. A rank that could not save its part, for example in files of its own, passes version -1, so that the call
 * fails on all ranks. */
int hf_checkpoint(const char *name, int64_t version);

/* hf_checkpoint of only the n given arrays; n may be 0. Collective; ranks may give different ones. */
int hf_checkpoint_some(const char *name, int64_t version, const char *const *arrays, size_t n);

/* Sets the number of checkpoints of a name to keep, at least 2. Local, before the name is first used; the same on all
 * ranks. 0, the default, uses the setting keep. */
int hf_keep(const char *name, int versions);

/* Finds the highest version of a name that all ranks can read, and that is not above at_most; negative: any.
 * Collective. Reads that version completely, to verify it, and skips a version that is damaged at all levels.
 * Returns HF_FOUND and the version, or HF_OK if there is none. */
int hf_restart_test(const char *name, int64_t at_most, int64_t *version);

/* Reads a version of a name into memory of the daemon and verifies it, on all ranks or none. Collective. If a
 * version was taken twice, the later one counts. The program's memory does not change. Then call hf_saved and
 * hf_recover until hf_restart_end; no checkpoint may be taken in between. */
int hf_restart_begin(const char *name, int64_t version);

/* Returns HF_FOUND with the count and type of an array in the checkpoint of hf_restart_begin, or HF_OK if it is not
 * there. Local. count and type may be NULL. Bytes and 8-bit unsigned numbers are both HF_BYTE.
 *
 * Before hf_restore, without hf_restart_begin, it describes the checkpoint that hf_restore will restore, so that the
 * program can allocate its arrays:
 *
 *     size_t n = 10;                                      // at a first start
 *     hf_saved("trades", &n, NULL);
 *     hf_protect("trades", trades = malloc(n * sizeof *trades), n, HF_DOUBLE);
 *     hf_restore();
 *
 * Ranks may ask for different names, or not at all. The first call waits until every rank has called it or hf_restore.
 * For a checkpoint of another number of ranks it knows only replicated values. If that checkpoint is damaged,
 * hf_restore does not use an older one with other counts: it fails, and names HOLDFAST_EPOCH. */
int hf_saved(const char *array, size_t *count, hf_type *type);

/* Copies from the checkpoint of hf_restart_begin. Local. With arrays NULL it copies all arrays, each of which must be
 * protected; otherwise the n given ones. An array may be larger than its saved data, and keeps the rest, unless it can
 * be resized. If one is smaller or has another type, nothing is copied. */
int hf_recover(const char *const *arrays, size_t n);

/* Ends the restart of hf_restart_begin. Local. */
int hf_restart_end(void);

/* hf_restart_begin, hf_recover of all, hf_restart_end. Collective. Returns HF_RESTORED. */
int hf_restart(const char *name, int64_t version);

/* Asks for a checkpoint at the next point; with stop other than 0 for a final one. Local, from any thread
 * and from signal handlers. */
int hf_request(int stop);

/* Waits until the newest checkpoint, and the newest of each name, is durable at a level: "local", "partner",
 * "parity" or "global". Local. NULL waits for all levels in use, until this rank has no operation in progress there.
 * When all ranks have returned from that, no file is made or removed in the directories until the next checkpoint or
 * restart. */
int hf_wait(const char *level);

/* Returns HF_FOUND if hf_wait would return at once, HF_OK if not, or the error that it would return. Local. */
int hf_test(const char *level);

/* Returns 1 after hf_point or hf_checkpoint has returned HF_STOP. Local, from any thread. */
int hf_stop_asked(void);

/* Waits until all ranks are here and the last checkpoint is at all levels, and frees everything. Collective. A
 * checkpoint that is asked for after the last point is not taken: a start from there would do one step too many. Its
 * request reports that the program has ended. A process that exits without hf_finalize ends the job as a crash. */
int hf_finalize(void);

/* Copies bytes to host memory from memory of the host or of a device, after all work of the device is complete. Local,
 * at any time. For libraries above this one. */
int hf_read_memory(void *to, const void *from, size_t bytes);

/* Rank and size as hf_init found them; -1 before. Local, from any thread. */
int hf_rank(void);
int hf_size(void);

/* Text of this thread's last error: the failed operation, its object, the cause and the remedy. Never NULL. It stays
 * until the thread's next call. Local, from any thread. */
const char *hf_error(void);

#ifdef __cplusplus
}
#endif
#endif
