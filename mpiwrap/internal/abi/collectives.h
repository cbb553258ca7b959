/* Part of body.h: the collectives, blocking when req is NULL. */


static int PFX(coll_run)(int kind, const char *s, const int *sc, const int *sd, char *r, const int *rc, const int *rd,
	PFX(vec) *v, MPI_Op op, int root, MPI_Comm c, MPI_Request *q)
{
	MPI_Datatype t = v->type;
	int n = v->count;
#define BOTH(blocking, starting, ...) (q == NULL ? P(blocking)(__VA_ARGS__) : P(starting)(__VA_ARGS__, q))
	switch (kind) {
	case HF_BARRIER: return BOTH(Barrier, Ibarrier, c);
	case HF_BCAST: return BOTH(Bcast, Ibcast, r, n, t, root, c);
	case HF_GATHER: return BOTH(Gather, Igather, s, n, t, r, n, t, root, c);
	case HF_GATHERV: return BOTH(Gatherv, Igatherv, s, n, t, r, rc, rd, t, root, c);
	case HF_SCATTER: return BOTH(Scatter, Iscatter, s, n, t, r, n, t, root, c);
	case HF_SCATTERV: return BOTH(Scatterv, Iscatterv, s, sc, sd, t, r, n, t, root, c);
	case HF_ALLGATHER: return BOTH(Allgather, Iallgather, s, n, t, r, n, t, c);
	case HF_ALLGATHERV: return BOTH(Allgatherv, Iallgatherv, s, n, t, r, rc, rd, t, c);
	case HF_ALLTOALL: return BOTH(Alltoall, Ialltoall, s, n, t, r, n, t, c);
	case HF_ALLTOALLV: return BOTH(Alltoallv, Ialltoallv, s, sc, sd, t, r, rc, rd, t, c);
	case HF_REDUCE: return BOTH(Reduce, Ireduce, s, r, n, t, op, root, c);
	case HF_ALLREDUCE: return BOTH(Allreduce, Iallreduce, s, r, n, t, op, c);
	case HF_REDUCE_SCATTER_BLOCK: return BOTH(Reduce_scatter_block, Ireduce_scatter_block, s, r, n, t, op, c);
	case HF_REDUCE_SCATTER: return BOTH(Reduce_scatter, Ireduce_scatter, s, r, rc, t, op, c);
	case HF_SCAN: return BOTH(Scan, Iscan, s, r, n, t, op, c);
	case HF_EXSCAN: return BOTH(Exscan, Iexscan, s, r, n, t, op, c);
	}
	return K(ERR_ARG);
#undef BOTH
}

/* In place means the receive buffer everywhere but at the root of a scatter. */
static int PFX(coll)(int kind, const char *s, const int *sc, const int *sd, char *r, const int *rc, const int *rd,
	int64_t n, int type, int op, int root, int in_place, hfmpi_h c, hfmpi_h *req)
{
	MPI_Request q = K(REQUEST_NULL);
	PFX(vec) v;
	int code;
	if (kind >= HF_REDUCE) { /* operators need the type itself; longer vectors come in parts */
		v = (PFX(vec)){.count = (int)n, .made = 0, .type = PFX(types)[type]};
	} else if ((code = PFX(vec_of)(n, PFX(types)[type], PFX(sizes)[type], &v)) != 0) {
		return code;
	}
	if (in_place && (kind == HF_SCATTER || kind == HF_SCATTERV))
		r = K(IN_PLACE);
	else if (in_place)
		s = K(IN_PLACE);
	code = PFX(coll_run)(kind, s, sc, sd, r, rc, rd, &v, PFX(ops)[op], root, COMM(c), req == NULL ? NULL : &q);
	if (req != NULL) *req = PFX(req_out)(q);
	return PFX(vec_done)(&v, code);
}

static int PFX(allreduce)(const char *s, char *r, int n, int type, int op, int in_place, hfmpi_h c)
{
	return P(Allreduce)(in_place ? K(IN_PLACE) : s, r, n, PFX(types)[type], PFX(ops)[op], COMM(c));
}
