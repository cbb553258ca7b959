/* Go's view of MPI: no type of any MPI library appears here. */
#ifndef HF_NEUTRAL_H
#define HF_NEUTRAL_H

#include <stddef.h>
#include <stdint.h>

typedef intptr_t hfmpi_h; /* a handle of any kind; 0 is none */

/* driver.Status and driver.Receive. */
typedef struct {
	int32_t source, tag;
	uint8_t cancelled;
	int32_t code;
	int64_t bytes;
} hfmpi_status;
typedef struct {
	int32_t slot, bytes, source, tag;
	hfmpi_h comm, request;
} hfmpi_receive;
enum { HF_AT_CANCELLED = offsetof(hfmpi_status, cancelled), HF_AT_CODE = offsetof(hfmpi_status, code),
	HF_AT_BYTES = offsetof(hfmpi_status, bytes) };

enum { HF_ANY_SOURCE = -1, HF_ANY_TAG = -1, HF_PROC_NULL = -2, HF_UNDEFINED = -32766 };
enum { HF_TYPES = 13, HF_OPS = 12, HF_BATCH = 128, HF_TEXT = 512, HF_SMALL = 4096 };

/* Collectives, in the order of driver.Kind. */
enum {
	HF_BARRIER, HF_BCAST, HF_GATHER, HF_GATHERV, HF_SCATTER, HF_SCATTERV, HF_ALLGATHER,
	HF_ALLGATHERV, HF_ALLTOALL, HF_ALLTOALLV, HF_REDUCE, HF_ALLREDUCE,
	HF_REDUCE_SCATTER_BLOCK, HF_REDUCE_SCATTER, HF_SCAN, HF_EXSCAN
};
/* Synchronisations, in the order of driver.WinSyncKind. */
enum { HF_FENCE, HF_LOCK, HF_UNLOCK, HF_LOCK_ALL, HF_UNLOCK_ALL, HF_FLUSH, HF_FLUSH_LOCAL, HF_FLUSH_ALL, HF_SYNC };
/* Accesses, in the order of driver.RmaKind. */
enum { HF_PUT, HF_GET, HF_ACCUMULATE, HF_GET_ACCUMULATE, HF_FETCH_AND_OP, HF_COMPARE_AND_SWAP };
/* Error classes, in the order of driver.Class. */
enum {
	HF_NONE, HF_ERR_BUFFER, HF_ERR_COUNT, HF_ERR_TYPE, HF_ERR_TAG, HF_ERR_COMM, HF_ERR_RANK,
	HF_ERR_REQUEST, HF_ERR_ROOT, HF_ERR_GROUP, HF_ERR_OP, HF_ERR_ARG, HF_ERR_TRUNCATE,
	HF_ERR_INTERN, HF_ERR_WIN, HF_ERR_RMA, HF_ERR_OTHER
};

/* Every call: name, parameters, arguments. All return MPI's code, 0 for success. */
#define HF_CALLS(X) \
	X(init, (int level, int *provided, int *was_up), (level, provided, was_up)) \
	X(finalize, (void), ()) \
	X(abort, (int code), (code)) \
	X(library, (char *buf, int cap), (buf, cap)) \
	X(tag_ub, (int *max), (max)) \
	X(error, (int code, int *cls, char *text, int cap), (code, cls, text, cap)) \
	X(world, (hfmpi_h *out), (out)) \
	X(comm_rank, (hfmpi_h c, int *rank, int *size), (c, rank, size)) \
	X(dup, (hfmpi_h c, hfmpi_h *out), (c, out)) \
	X(split, (hfmpi_h c, int color, int key, hfmpi_h *out), (c, color, key, out)) \
	X(split_node, (hfmpi_h c, int key, hfmpi_h *out), (c, key, out)) \
	X(create, (hfmpi_h c, const int *ranks, int n, hfmpi_h *out), (c, ranks, n, out)) \
	X(create_group, (hfmpi_h c, const int *ranks, int n, int tag, hfmpi_h *out), (c, ranks, n, tag, out)) \
	X(comm_free, (hfmpi_h c), (c)) \
	X(send, (int mode, const char *b, int64_t n, int dest, int tag, hfmpi_h c), (mode, b, n, dest, tag, c)) \
	X(recv, (char *b, int64_t n, int source, int tag, hfmpi_h c, hfmpi_status *st), (b, n, source, tag, c, st)) \
	X(sendrecv, (const char *s, int64_t sn, int dest, int stag, char *r, int64_t rn, int source, int rtag, hfmpi_h c, hfmpi_status *st), \
	  (s, sn, dest, stag, r, rn, source, rtag, c, st)) \
	X(isend, (int mode, const char *b, int64_t n, int dest, int tag, hfmpi_h c, hfmpi_h *r), (mode, b, n, dest, tag, c, r)) \
	X(irecv, (char *b, int64_t n, int source, int tag, hfmpi_h c, hfmpi_h *r), (b, n, source, tag, c, r)) \
	X(send_init, (int mode, const char *b, int64_t n, int dest, int tag, hfmpi_h c, hfmpi_h *r), (mode, b, n, dest, tag, c, r)) \
	X(recv_init, (char *b, int64_t n, int source, int tag, hfmpi_h c, hfmpi_h *r), (b, n, source, tag, c, r)) \
	X(irecvs, (char *slots, int size, hfmpi_receive *q, int n), (slots, size, q, n)) \
	X(startall, (const hfmpi_h *r, int n, int *started), (r, n, started)) \
	X(probe, (int source, int tag, hfmpi_h c, hfmpi_status *st), (source, tag, c, st)) \
	X(iprobe, (int source, int tag, hfmpi_h c, int *flag, hfmpi_status *st), (source, tag, c, flag, st)) \
	X(mprobe, (int source, int tag, hfmpi_h c, hfmpi_h *m, hfmpi_status *st), (source, tag, c, m, st)) \
	X(improbe, (int source, int tag, hfmpi_h c, int *flag, hfmpi_h *m, hfmpi_status *st), (source, tag, c, flag, m, st)) \
	X(mrecv, (char *b, int64_t n, hfmpi_h m, hfmpi_status *st), (b, n, m, st)) \
	X(imrecv, (char *b, int64_t n, hfmpi_h m, hfmpi_h *r), (b, n, m, r)) \
	X(wait, (hfmpi_h r, hfmpi_status *st), (r, st)) \
	X(test, (hfmpi_h r, int *flag, hfmpi_status *st), (r, flag, st)) \
	X(waitall, (const hfmpi_h *r, int n, hfmpi_status *st, int *failed), (r, n, st, failed)) \
	X(waitany, (const hfmpi_h *r, int n, int *index, hfmpi_status *st), (r, n, index, st)) \
	X(cancel, (hfmpi_h r), (r)) \
	X(request_free, (hfmpi_h r), (r)) \
	X(coll, (int kind, const char *s, const int *sc, const int *sd, char *r, const int *rc, const int *rd, \
	         int64_t n, int type, int op, int root, int in_place, hfmpi_h c, hfmpi_h *req), \
	  (kind, s, sc, sd, r, rc, rd, n, type, op, root, in_place, c, req)) \
	X(allreduce, (const char *s, char *r, int n, int type, int op, int in_place, hfmpi_h c), (s, r, n, type, op, in_place, c)) \
	X(win_allocate, (int64_t bytes, int unit, hfmpi_h c, hfmpi_h *w, void **base), (bytes, unit, c, w, base)) \
	X(win_free, (hfmpi_h w), (w)) \
	X(win_sync, (int kind, int rank, int shared, hfmpi_h w), (kind, rank, shared, w)) \
	X(rma, (int kind, const char *o, char *res, const char *cmp, int64_t n, int type, int op, int target, int64_t displ, hfmpi_h w), \
	  (kind, o, res, cmp, n, type, op, target, displ, w))

#define X(name, params, args) int (*name) params;
struct hfmpi_calls { HF_CALLS(X) };
#undef X

extern const struct hfmpi_calls *hfmpi_lib; /* the table of the library that was opened */
extern int64_t hfmpi_limit;              /* longest count that goes to MPI as it is */
extern int hfmpi_skip_disconnect;        /* not 0: UCX is not to disconnect from peers, see disconnect.c */

#define X(name, params, args) static inline int hfmpi_##name params { return hfmpi_lib->name args; }
HF_CALLS(X)
#undef X

#endif
