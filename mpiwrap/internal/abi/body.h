/* Every call once, against P(function), K(constant) and MPI's types. It is
 * included by one C file per table, which defines those and PFX. */

static int PFX(src)(int s) { return s >= 0 ? s : s == HF_PROC_NULL ? K(PROC_NULL) : K(ANY_SOURCE); }
static int PFX(dst)(int d) { return d >= 0 ? d : K(PROC_NULL); }
static int PFX(rtag)(int t) { return t >= 0 ? t : K(ANY_TAG); }

static void PFX(status)(const MPI_Status *st, hfmpi_status *out)
{
	out->source = st->MPI_SOURCE == K(PROC_NULL) ? HF_PROC_NULL : st->MPI_SOURCE == K(ANY_SOURCE) ? HF_ANY_SOURCE : st->MPI_SOURCE;
	out->tag = st->MPI_TAG == K(ANY_TAG) ? HF_ANY_TAG : st->MPI_TAG;
	out->bytes = HF_STATUS_BYTES(*st);
	out->cancelled = HF_STATUS_CANCELLED(*st) ? 1 : 0;
}

/* A receive that fails may leave the status alone: say so. */
static void PFX(clear)(MPI_Status *st)
{
	memset(st, 0, sizeof *st);
	st->MPI_SOURCE = K(ANY_SOURCE);
	st->MPI_TAG = K(ANY_TAG);
}

static hfmpi_h PFX(req_out)(MPI_Request r) { return r == K(REQUEST_NULL) ? 0 : (hfmpi_h)r; }
static hfmpi_h PFX(comm_out)(MPI_Comm c) { return c == K(COMM_NULL) ? 0 : (hfmpi_h)c; }

#define COMM(h) ((MPI_Comm)(h))
#define REQ(h) ((MPI_Request)(h))
#define MSG(h) ((MPI_Message)(h))
#define WIN(h) ((MPI_Win)(h))

static MPI_Datatype PFX(types)[HF_TYPES];
static MPI_Op PFX(ops)[HF_OPS];
static const int PFX(sizes)[HF_TYPES] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 8, 16};

static void PFX(fill)(void)
{
	MPI_Datatype t[HF_TYPES] = {K(BYTE), K(INT8_T), K(INT16_T), K(INT32_T), K(INT64_T), K(UINT8_T), K(UINT16_T),
		K(UINT32_T), K(UINT64_T), K(FLOAT), K(DOUBLE), K(C_FLOAT_COMPLEX), K(C_DOUBLE_COMPLEX)};
	MPI_Op o[HF_OPS] = {K(SUM), K(PROD), K(MAX), K(MIN), K(LAND), K(BAND), K(LOR), K(BOR), K(LXOR), K(BXOR), K(REPLACE), K(NO_OP)};
	memcpy(PFX(types), t, sizeof t);
	memcpy(PFX(ops), o, sizeof o);
}

/* Not 0 while MPI can explain an error. One that has failed to start or to end cannot: Open MPI ends the process, MPICH
 * 4.0.2 has crashed. */
static int PFX(up);

static int PFX(init)(int level, int *provided, int *was_up)
{
	int rc;
	PFX(fill)();
	if ((rc = P(Initialized)(was_up)) != 0) return rc;
	if (*was_up)
		rc = P(Query_thread)(provided);
	else
		rc = P(Init_thread)(NULL, NULL, level, provided);
	PFX(up) = rc == 0;
	if (rc == 0) rc = P(Comm_set_errhandler)(K(COMM_WORLD), K(ERRORS_RETURN));
	if (rc == 0) rc = P(Comm_set_errhandler)(K(COMM_SELF), K(ERRORS_RETURN));
	return rc;
}

static int PFX(finalize)(void)
{
	PFX(up) = 0;
	return P(Finalize)();
}

static int PFX(abort)(int code) { return P(Abort)(K(COMM_WORLD), code); }

static int PFX(library)(char *buf, int cap)
{
	char text[K(MAX_LIBRARY_VERSION_STRING) + 1];
	int n = 0, rc = P(Get_library_version)(text, &n);
	if (rc != 0) return rc;
	text[n < (int)sizeof text ? n : (int)sizeof text - 1] = 0;
	snprintf(buf, cap, "%s", text);
	return 0;
}

static int PFX(tag_ub)(int *max)
{
	int *value = NULL, found = 0;
	int rc = P(Comm_get_attr)(K(COMM_WORLD), K(TAG_UB), &value, &found);
	*max = rc == 0 && found ? *value : 32767; /* the least MPI promises */
	return rc;
}

static int PFX(class)(int c)
{
	if (c == K(ERR_BUFFER)) return HF_ERR_BUFFER;
	if (c == K(ERR_COUNT)) return HF_ERR_COUNT;
	if (c == K(ERR_TYPE)) return HF_ERR_TYPE;
	if (c == K(ERR_TAG)) return HF_ERR_TAG;
	if (c == K(ERR_COMM)) return HF_ERR_COMM;
	if (c == K(ERR_RANK)) return HF_ERR_RANK;
	if (c == K(ERR_REQUEST)) return HF_ERR_REQUEST;
	if (c == K(ERR_ROOT)) return HF_ERR_ROOT;
	if (c == K(ERR_GROUP)) return HF_ERR_GROUP;
	if (c == K(ERR_OP)) return HF_ERR_OP;
	if (c == K(ERR_ARG)) return HF_ERR_ARG;
	if (c == K(ERR_TRUNCATE)) return HF_ERR_TRUNCATE;
	if (c == K(ERR_INTERN)) return HF_ERR_INTERN;
	if (c == K(ERR_WIN)) return HF_ERR_WIN;
	if (c == K(ERR_RMA_CONFLICT) || c == K(ERR_RMA_SYNC) || c == K(ERR_RMA_RANGE)) return HF_ERR_RMA;
	return HF_ERR_OTHER;
}

static int PFX(error)(int code, int *cls, char *text, int cap)
{
	char buf[K(MAX_ERROR_STRING) + 1];
	int c = 0, n = 0;
	if (!PFX(up)) {
		*cls = PFX(class)(HF_CODE_CLASS(code));
		snprintf(text, cap, "MPI is not up, so that it was not asked for the reason; see what it has printed");
		return 0;
	}
	*cls = P(Error_class)(code, &c) == 0 ? PFX(class)(c) : HF_ERR_OTHER;
	text[0] = 0;
	if (P(Error_string)(code, buf, &n) != 0) return 0;
	buf[n < (int)sizeof buf ? n : (int)sizeof buf - 1] = 0;
	snprintf(text, cap, "%s", buf);
	return 0;
}

static int PFX(world)(hfmpi_h *out)
{
	*out = (hfmpi_h)K(COMM_WORLD);
	return 0;
}

static int PFX(comm_rank)(hfmpi_h c, int *rank, int *size)
{
	int rc = P(Comm_rank)(COMM(c), rank);
	return rc != 0 ? rc : P(Comm_size)(COMM(c), size);
}

static int PFX(made)(int rc, MPI_Comm n, hfmpi_h *out)
{
	*out = rc == 0 ? PFX(comm_out)(n) : 0;
	return rc;
}

static int PFX(dup)(hfmpi_h c, hfmpi_h *out)
{
	MPI_Comm n = K(COMM_NULL);
	int rc = P(Comm_dup)(COMM(c), &n);
	return PFX(made)(rc, n, out);
}

static int PFX(split)(hfmpi_h c, int color, int key, hfmpi_h *out)
{
	MPI_Comm n = K(COMM_NULL);
	int rc = P(Comm_split)(COMM(c), color == HF_UNDEFINED ? K(UNDEFINED) : color, key, &n);
	return PFX(made)(rc, n, out);
}

static int PFX(split_node)(hfmpi_h c, int key, hfmpi_h *out)
{
	MPI_Comm n = K(COMM_NULL);
	int rc = P(Comm_split_type)(COMM(c), K(COMM_TYPE_SHARED), key, K(INFO_NULL), &n);
	return PFX(made)(rc, n, out);
}

static int PFX(group)(hfmpi_h c, const int *ranks, int n, MPI_Group *g)
{
	MPI_Group all;
	int rc = P(Comm_group)(COMM(c), &all);
	if (rc != 0) return rc;
	rc = P(Group_incl)(all, n, ranks, g);
	P(Group_free)(&all);
	return rc;
}

static int PFX(create)(hfmpi_h c, const int *ranks, int n, hfmpi_h *out)
{
	MPI_Group g;
	MPI_Comm made = K(COMM_NULL);
	int rc = PFX(group)(c, ranks, n, &g);
	if (rc != 0) return rc;
	rc = P(Comm_create)(COMM(c), g, &made);
	if (n > 0) P(Group_free)(&g); /* the empty group is predefined */
	return PFX(made)(rc, made, out);
}

static int PFX(create_group)(hfmpi_h c, const int *ranks, int n, int tag, hfmpi_h *out)
{
	MPI_Group g;
	MPI_Comm made = K(COMM_NULL);
	int rc = PFX(group)(c, ranks, n, &g);
	if (rc != 0) return rc;
	rc = P(Comm_create_group)(COMM(c), g, tag, &made);
	P(Group_free)(&g);
	return PFX(made)(rc, made, out);
}

static int PFX(comm_free)(hfmpi_h c)
{
	MPI_Comm m = COMM(c);
	return P(Comm_free)(&m);
}

/* A count that fits goes as it is; a larger one becomes one element of a
 * type made for it, so that a message stays one message. */
typedef struct {
	int count, made;
	MPI_Datatype type;
} PFX(vec);

static int PFX(vec_big)(int64_t n, MPI_Datatype t, int size, PFX(vec) *v)
{
	int64_t q = n / hfmpi_limit, r = n % hfmpi_limit;
	MPI_Datatype chunk;
	int rc = P(Type_contiguous)((int)hfmpi_limit, t, &chunk);
	if (rc != 0) return rc;
	int counts[2] = {(int)q, (int)r};
	MPI_Aint at[2] = {0, (MPI_Aint)(q * hfmpi_limit * size)};
	MPI_Datatype types[2] = {chunk, t};
	rc = P(Type_create_struct)(2, counts, at, types, &v->type);
	P(Type_free)(&chunk);
	if (rc != 0) return rc;
	v->count = v->made = 1;
	return P(Type_commit)(&v->type);
}

static inline int PFX(vec_of)(int64_t n, MPI_Datatype t, int size, PFX(vec) *v)
{
	if (n > hfmpi_limit) return PFX(vec_big)(n, t, size, v);
	v->count = (int)n;
	v->type = t;
	v->made = 0;
	return 0;
}

static inline int PFX(vec_done)(PFX(vec) *v, int rc)
{
	if (v->made) P(Type_free)(&v->type);
	return rc;
}

#define BYTES(v, n) \
	PFX(vec) v; \
	int rc = PFX(vec_of)(n, K(BYTE), 1, &v); \
	if (rc != 0) return rc

static int PFX(send)(int mode, const char *b, int64_t n, int dest, int tag, hfmpi_h c)
{
	BYTES(v, n);
	rc = (mode ? P(Ssend) : P(Send))(b, v.count, v.type, PFX(dst)(dest), tag, COMM(c));
	return PFX(vec_done)(&v, rc);
}

static int PFX(recv)(char *b, int64_t n, int source, int tag, hfmpi_h c, hfmpi_status *st)
{
	MPI_Status s;
	BYTES(v, n);
	PFX(clear)(&s);
	rc = P(Recv)(b, v.count, v.type, PFX(src)(source), PFX(rtag)(tag), COMM(c), &s);
	PFX(status)(&s, st);
	return PFX(vec_done)(&v, rc);
}

static int PFX(sendrecv)(const char *sb, int64_t sn, int dest, int stag, char *rb, int64_t rn, int source, int rtag, hfmpi_h c, hfmpi_status *st)
{
	MPI_Status s;
	PFX(vec) w;
	BYTES(v, sn);
	if ((rc = PFX(vec_of)(rn, K(BYTE), 1, &w)) != 0) return PFX(vec_done)(&v, rc);
	PFX(clear)(&s);
	rc = P(Sendrecv)(sb, v.count, v.type, PFX(dst)(dest), stag, rb, w.count, w.type, PFX(src)(source), PFX(rtag)(rtag), COMM(c), &s);
	PFX(status)(&s, st);
	return PFX(vec_done)(&w, PFX(vec_done)(&v, rc));
}

#define STARTS(call) \
	MPI_Request q = K(REQUEST_NULL); \
	BYTES(v, n); \
	rc = call; \
	*r = PFX(req_out)(q); \
	return PFX(vec_done)(&v, rc)

/* A small send is usually complete at once: found out here, it costs no second
 * call from Go. Then *r is 0. HF_TEST_FROM is the table's: where MPI_Test costs
 * as much as a message, the shortest are better waited for with others. */
static int PFX(isend)(int mode, const char *b, int64_t n, int dest, int tag, hfmpi_h c, hfmpi_h *r)
{
	MPI_Request q = K(REQUEST_NULL);
	MPI_Status s;
	int flag;
	BYTES(v, n);
	rc = (mode ? P(Issend) : P(Isend))(b, v.count, v.type, PFX(dst)(dest), tag, COMM(c), &q);
	if (rc == 0 && mode == 0 && n <= HF_SMALL && n >= HF_TEST_FROM) rc = P(Test)(&q, &flag, &s);
	*r = PFX(req_out)(q);
	return PFX(vec_done)(&v, rc);
}

static int PFX(irecv)(char *b, int64_t n, int source, int tag, hfmpi_h c, hfmpi_h *r)
{
	STARTS(P(Irecv)(b, v.count, v.type, PFX(src)(source), PFX(rtag)(tag), COMM(c), &q));
}

static int PFX(send_init)(int mode, const char *b, int64_t n, int dest, int tag, hfmpi_h c, hfmpi_h *r)
{
	STARTS((mode ? P(Ssend_init) : P(Send_init))(b, v.count, v.type, PFX(dst)(dest), tag, COMM(c), &q));
}

static int PFX(recv_init)(char *b, int64_t n, int source, int tag, hfmpi_h c, hfmpi_h *r)
{
	STARTS(P(Recv_init)(b, v.count, v.type, PFX(src)(source), PFX(rtag)(tag), COMM(c), &q));
}

/* Receives into slots, in order. Goes on after one that fails; returns its code. */
static int PFX(irecvs)(char *slots, int size, hfmpi_receive *q, int n)
{
	int first = 0;
	for (int i = 0; i < n; i++) {
		MPI_Request r = K(REQUEST_NULL);
		int rc = P(Irecv)(slots + (size_t)q[i].slot * size, q[i].bytes, K(BYTE), PFX(src)(q[i].source), PFX(rtag)(q[i].tag), COMM(q[i].comm), &r);
		q[i].request = rc == 0 ? PFX(req_out)(r) : 0;
		if (first == 0) first = rc;
	}
	return first;
}

static int PFX(startall)(const hfmpi_h *r, int n, int *started)
{
	for (*started = 0; *started < n; ++*started) {
		MPI_Request q = REQ(r[*started]);
		int rc = P(Start)(&q);
		if (rc != 0) return rc;
	}
	return 0;
}

static int PFX(probe)(int source, int tag, hfmpi_h c, hfmpi_status *st)
{
	MPI_Status s;
	PFX(clear)(&s);
	int rc = P(Probe)(PFX(src)(source), PFX(rtag)(tag), COMM(c), &s);
	PFX(status)(&s, st);
	return rc;
}

static int PFX(iprobe)(int source, int tag, hfmpi_h c, int *flag, hfmpi_status *st)
{
	MPI_Status s;
	int rc = P(Iprobe)(PFX(src)(source), PFX(rtag)(tag), COMM(c), flag, &s);
	if (rc == 0 && *flag) PFX(status)(&s, st);
	return rc;
}

static int PFX(mprobe)(int source, int tag, hfmpi_h c, hfmpi_h *m, hfmpi_status *st)
{
	MPI_Status s;
	MPI_Message msg = K(MESSAGE_NULL);
	PFX(clear)(&s);
	int rc = P(Mprobe)(PFX(src)(source), PFX(rtag)(tag), COMM(c), &msg, &s);
	*m = (hfmpi_h)msg;
	PFX(status)(&s, st);
	return rc;
}

static int PFX(improbe)(int source, int tag, hfmpi_h c, int *flag, hfmpi_h *m, hfmpi_status *st)
{
	MPI_Status s;
	MPI_Message msg = K(MESSAGE_NULL);
	int rc = P(Improbe)(PFX(src)(source), PFX(rtag)(tag), COMM(c), flag, &msg, &s);
	if (rc == 0 && *flag) {
		*m = (hfmpi_h)msg;
		PFX(status)(&s, st);
	}
	return rc;
}

static int PFX(mrecv)(char *b, int64_t n, hfmpi_h m, hfmpi_status *st)
{
	MPI_Status s;
	MPI_Message msg = MSG(m);
	BYTES(v, n);
	PFX(clear)(&s);
	rc = P(Mrecv)(b, v.count, v.type, &msg, &s);
	PFX(status)(&s, st);
	return PFX(vec_done)(&v, rc);
}

static int PFX(imrecv)(char *b, int64_t n, hfmpi_h m, hfmpi_h *r)
{
	MPI_Message msg = MSG(m);
	STARTS(P(Imrecv)(b, v.count, v.type, &msg, &q));
}

static int PFX(wait)(hfmpi_h r, hfmpi_status *st)
{
	MPI_Status s;
	MPI_Request q = REQ(r);
	PFX(clear)(&s);
	int rc = P(Wait)(&q, &s);
	PFX(status)(&s, st);
	return rc;
}

static int PFX(test)(hfmpi_h r, int *flag, hfmpi_status *st)
{
	MPI_Status s;
	MPI_Request q = REQ(r);
	PFX(clear)(&s);
	int rc = P(Test)(&q, flag, &s);
	if (*flag || rc != 0) PFX(status)(&s, st);
	return rc;
}

/* One MPI_Wait each, not MPI_Waitall: Open MPI 4.1's hangs on a request that
 * has failed already (truncation). Each wait makes progress for all; from the
 * last to the first, most of them find their request complete. */
static int PFX(waitall)(const hfmpi_h *r, int n, hfmpi_status *st, int *failed)
{
	*failed = 0;
	for (int i = n - 1; i >= 0; i--) {
		st[i].code = PFX(wait)(r[i], &st[i]);
		if (st[i].code != 0) ++*failed;
	}
	return 0;
}

static int PFX(waitany)(const hfmpi_h *r, int n, int *index, hfmpi_status *st)
{
	MPI_Request few[HF_BATCH], *q = few;
	MPI_Status s;
	if (n > HF_BATCH && (q = malloc(n * sizeof *q)) == NULL) return K(ERR_INTERN);
	for (int i = 0; i < n; i++) q[i] = REQ(r[i]);
	PFX(clear)(&s);
	*index = -1;
	int rc = P(Waitany)(n, q, index, &s);
	if (*index == K(UNDEFINED)) *index = -1;
	PFX(status)(&s, st);
	if (q != few) free(q);
	return rc;
}

static int PFX(cancel)(hfmpi_h r)
{
	MPI_Request q = REQ(r);
	return P(Cancel)(&q);
}

static int PFX(request_free)(hfmpi_h r)
{
	MPI_Request q = REQ(r);
	return P(Request_free)(&q);
}

static int PFX(win_allocate)(int64_t bytes, int unit, hfmpi_h c, hfmpi_h *w, void **base)
{
	MPI_Win win;
	int rc = P(Win_allocate)((MPI_Aint)bytes, unit, K(INFO_NULL), COMM(c), base, &win);
	if (rc != 0) return rc;
	*w = (hfmpi_h)win;
	return P(Win_set_errhandler)(win, K(ERRORS_RETURN));
}

static int PFX(win_free)(hfmpi_h w)
{
	MPI_Win win = WIN(w);
	return P(Win_free)(&win);
}

static int PFX(win_sync)(int kind, int rank, int shared, hfmpi_h w)
{
	switch (kind) {
	case HF_FENCE: return P(Win_fence)(0, WIN(w));
	case HF_LOCK: return P(Win_lock)(shared ? K(LOCK_SHARED) : K(LOCK_EXCLUSIVE), rank, 0, WIN(w));
	case HF_UNLOCK: return P(Win_unlock)(rank, WIN(w));
	case HF_LOCK_ALL: return P(Win_lock_all)(0, WIN(w));
	case HF_UNLOCK_ALL: return P(Win_unlock_all)(WIN(w));
	case HF_FLUSH: return P(Win_flush)(rank, WIN(w));
	case HF_FLUSH_LOCAL: return P(Win_flush_local)(rank, WIN(w));
	case HF_FLUSH_ALL: return P(Win_flush_all)(WIN(w));
	case HF_SYNC: return P(Win_sync)(WIN(w));
	}
	return K(ERR_ARG);
}

static int PFX(rma)(int kind, const char *o, char *res, const char *cmp, int64_t n, int type, int op, int target, int64_t displ, hfmpi_h w)
{
	MPI_Datatype t = PFX(types)[type];
	MPI_Aint d = (MPI_Aint)displ;
	switch (kind) {
	case HF_PUT: return P(Put)(o, (int)n, t, target, d, (int)n, t, WIN(w));
	case HF_GET: return P(Get)(res, (int)n, t, target, d, (int)n, t, WIN(w));
	case HF_ACCUMULATE: return P(Accumulate)(o, (int)n, t, target, d, (int)n, t, PFX(ops)[op], WIN(w));
	case HF_GET_ACCUMULATE:
		return P(Get_accumulate)(o, (int)n, t, res, (int)n, t, target, d, (int)n, t, PFX(ops)[op], WIN(w));
	case HF_FETCH_AND_OP: return P(Fetch_and_op)(o, res, t, target, d, PFX(ops)[op], WIN(w));
	case HF_COMPARE_AND_SWAP: return P(Compare_and_swap)(o, cmp, res, t, target, d, WIN(w));
	}
	return K(ERR_ARG);
}

#include "collectives.h"

#define X(name, params, args) .name = PFX(name),
static const struct hfmpi_calls PFX(calls) = {HF_CALLS(X)};
#undef X
