/* protect.inc.h - requests that the program protects: a checkpoint keeps their description, and a restart makes them
 * again under the communicator's name, into the same place of the same array. */

enum { NOBODY = -2 }; /* MPI_PROC_NULL in a record */

static MPI_Request named_request(const struct hfm_named *w) {
	if (!w->fortran) {
		return *(const MPI_Request *)w->variable;
	}
	const int number = *(const int *)w->variable;
	return hfm_real[HFM_Request_f2c] != NULL ? REAL(Request_f2c)(number) : HANDLE(MPI_Request, (unsigned)number);
}

static void set_named(const struct hfm_named *w, MPI_Request request) {
	if (!w->fortran) {
		*(MPI_Request *)w->variable = request;
	} else {
		*(int *)w->variable = hfm_real[HFM_Request_c2f] != NULL ? REAL(Request_c2f)(request) : (int)WORD(request);
	}
}

/* extent_of finds the bytes that count elements at buffer reach over; none for 0 elements. */
static bool extent_of(MPI_Datatype type, long count, int64_t *from, size_t *bytes) {
	MPI_Aint lb, extent, true_lb, true_extent;
	int size = 0;
	*from = 0;
	*bytes = 0;
	if (REAL(Type_get_extent)(type, &lb, &extent) != MPI_SUCCESS || REAL(Type_size)(type, &size) != MPI_SUCCESS ||
		REAL(Type_get_true_extent)(type, &true_lb, &true_extent) != MPI_SUCCESS) {
		return false;
	}
	if (count > 0 && size != 0) {
		const MPI_Aint last = (MPI_Aint)(count - 1) * extent;
		*from = true_lb + (last < 0 ? last : 0);
		*bytes = (size_t)(true_extent + (last < 0 ? -last : last));
	}
	return true;
}

static const char *how_named(const struct hfm_request *r) {
	return r->kind == HFM_PERSISTENT_SEND && r->call != HFM_Recv_init ? "sends from" : "receives into";
}

static void add_kept(struct saving *s, const char *name, const char *comm, const char *call, const char *array,
	const struct hfm_text *type, const uint32_t numbers[4], const int64_t sizes[2]) {
	struct hfm_text *t = &s->requests;
	hfm_add_text(t, name);
	hfm_add_text(t, comm);
	hfm_add_text(t, call);
	hfm_add_text(t, array);
	hfm_add_u32(t, (uint32_t)type->bytes);
	hfm_add(t, type->at, type->bytes);
	hfm_add(t, numbers, 4 * sizeof numbers[0]);
	hfm_add(t, sizes, 2 * sizeof sizes[0]);
	s->requests_n++;
}

/* save_named describes a protected request: receive is its number among those that were under way, or 0. */
static void save_named(struct saving *s, const struct hfm_request *r, uint32_t receive) {
	struct hfm_text type = { 0 };
	int64_t from = 0, sizes[2] = { 0, r->count };
	size_t bytes = 0;
	const char *array = "";
	const char *name = r->named->name, *call = hfm_names[r->call], *comm = r->comm->name;
	if (r->kind != HFM_RECEIVE && r->kind != HFM_PERSISTENT_RECEIVE && r->kind != HFM_PERSISTENT_SEND) {
		refuse(s, "the request \"%s\" is of MPI_%s; only receives and sends can be protected", name, call);
		return;
	}
	if (r->comm->freed) {
		refuse(s, "the communicator %s of the request \"%s\" was freed; free the request first", comm, name);
		return;
	}
	if (r->count > INT32_MAX || !extent_of(HANDLE(MPI_Datatype, r->datatype), r->count, &from, &bytes) ||
		!add_type(&type, HANDLE(MPI_Datatype, r->datatype), 0)) {
		refuse(s,
			"the datatype of the request \"%s\" (MPI_%s on %s) cannot be made again after a restart: it has large "
			"counts, or is none of those that MPI_Type_get_contents describes; use another type, or wait for the "
			"request before the point and take it out by hf_unprotect",
			name, call, comm);
		free(type.at);
		return;
	}
	if (bytes > 0) {
		array = hfm_memory->array_of((const char *)r->buffer + from, bytes, r->buffer, &sizes[0]);
	}
	if (array == NULL) {
		refuse(s,
			"the request \"%s\" (MPI_%s on %s) %s memory that is in no protected array; protect all of it by one "
			"hf_protect",
			name, call, comm, how_named(r));
	} else {
		const int peer = r->source == MPI_PROC_NULL ? NOBODY : any_source(r->source);
		const uint32_t numbers[4] = { (uint32_t)peer, (uint32_t)any_tag(r->tag), receive,
			r->active ? HFM_REQUEST_STARTED : 0 };
		add_kept(s, name, comm, call, array, &type, numbers, sizes);
	}
	free(type.at);
}

/* save_over describes a request that is over, of which the program has not been told. */
static void save_over(struct saving *s, const char *name) {
	const struct hfm_text none = { 0 };
	const uint32_t numbers[4] = { 0, 0, 0, HFM_REQUEST_STARTED };
	const int64_t sizes[2] = { 0, 0 };
	add_kept(s, name, "", "", "", &none, numbers, sizes);
}

/* note_named finds the requests of the program's names. One that the layer does not know is a send, or is over. */
static void note_named(struct saving *s) {
	for (size_t i = 0; i < hfm_requests.room; i++) {
		struct hfm_request *r = hfm_requests.values[i];
		if (r != NULL) {
			r->named = NULL;
			r->waiting = false;
		}
	}
	for (const struct hfm_named *w = hfm_named; w != NULL; w = w->next) {
		const MPI_Request request = named_request(w);
		struct hfm_request *r = request_of(request);
		if (r != NULL && r->named != NULL) {
			refuse(s, "\"%s\" and \"%s\" are the same request; protect it under one name", r->named->name, w->name);
		} else if (r != NULL) {
			r->named = w;
		} else if (request != MPI_REQUEST_NULL) {
			save_over(s, w->name);
		}
	}
}

/* can_share reports whether two receives could get the same message. Ranks and tags are those of a record. */
static bool can_share(int source, int tag, int other, int other_tag) {
	return (source == other || source == -1 || other == -1) && (tag == other_tag || tag == -1 || other_tag == -1);
}

/* check_order refuses a protected receive that would be posted before one that is not protected, if that was posted
 * before and both wait for the same message. */
static void check_order(struct saving *s, struct hfm_request *const *all, size_t n) {
	for (size_t i = 0; i < n; i++) {
		const struct hfm_request *r = all[i];
		for (size_t k = 0; r->named == NULL && r->waiting && k < n; k++) {
			const struct hfm_request *p = all[k];
			if (p->named != NULL && p->waiting && p->order > r->order && p->comm == r->comm &&
				can_share(any_source(r->source), any_tag(r->tag), any_source(p->source), any_tag(p->tag))) {
				refuse(s,
					"the request \"%s\" and a receive posted before it by MPI_%s on %s can get the same message, and "
					"only "
					"the first is protected; protect both or none",
					p->named->name, hfm_names[r->call], r->comm->name);
				return;
			}
		}
	}
}

/* make_receive posts a receive again; its earlier data comes to it by way of the loop. */
static int make_receive(struct hfm_kept *k, struct hfm_comm *c, void *buffer, MPI_Datatype type, MPI_Request *request) {
	const int source = k->peer == -1 ? MPI_ANY_SOURCE : k->peer, tag = k->tag == -1 ? MPI_ANY_TAG : k->tag;
	const int count = (int)k->count;
	struct hfm_mail *m = k->mail;
	int missed,
		rc = m != NULL ? by_loop(m, buffer, count, type, NULL, request, &missed)
					   : REAL(Irecv)(buffer, count, type, source, tag, HANDLE(MPI_Comm, c->handle), request);
	if (rc == MPI_SUCCESS) {
		track_receive(HFM_Irecv, c, m, *request, buffer, count, type, source, tag)->own_type = true;
	}
	return rc;
}

typedef int send_init(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

/* make_persistent makes a persistent request again, and starts a receive that was. A send that was is complete, and
 * the program has not been told. */
static int make_persistent(
	struct hfm_kept *k, struct hfm_comm *c, void *buffer, MPI_Datatype type, MPI_Request *request) {
	static const enum hfm_call sends[] = { HFM_Send_init, HFM_Bsend_init, HFM_Ssend_init, HFM_Rsend_init };
	const int peer = k->peer == -1 ? MPI_ANY_SOURCE : k->peer == NOBODY ? MPI_PROC_NULL : k->peer;
	const int tag = k->tag == -1 ? MPI_ANY_TAG : k->tag, count = (int)k->count;
	const bool started = (k->flags & HFM_REQUEST_STARTED) != 0;
	enum hfm_call call = HFM_Recv_init;
	for (size_t i = 0; i < sizeof sends / sizeof *sends; i++) {
		call = strcmp(k->call, hfm_names[sends[i]]) == 0 ? sends[i] : call;
	}
	const MPI_Comm comm = HANDLE(MPI_Comm, c->handle);
	int rc = call == HFM_Recv_init ? REAL(Recv_init)(buffer, count, type, peer, tag, comm, request)
								   : ((send_init *)hfm_real[call])(buffer, count, type, peer, tag, comm, request);
	if (rc != MPI_SUCCESS) {
		return rc;
	}
	track_init(call == HFM_Recv_init ? HFM_PERSISTENT_RECEIVE : HFM_PERSISTENT_SEND, call, c, *request, buffer, count,
		type, peer, tag);
	struct hfm_request *r = request_of(*request);
	r->own_type = true;
	if (k->mail != NULL) {
		serve(r, k->mail);
		k->mail = NULL;
	} else if (started && r->kind == HFM_PERSISTENT_RECEIVE) {
		rc = REAL(Start)(request);
		r->active = rc == MPI_SUCCESS;
		r->order = hfm_next_order();
	} else if (started) {
		MPI_Status none;
		rc = REAL(Recv)(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, loop, &none);
		memcpy(r->status, &none, sizeof none);
		r->active = r->complete = r->counted = true;
		r->error = MPI_SUCCESS;
	}
	return rc;
}

/* make_again makes one request of a record, and gives the program its handle. */
static const char *make_again(struct hfm_kept *k, struct hfm_comm *c, const struct hfm_named *w) {
	static char text[500];
	MPI_Datatype type;
	MPI_Request request = MPI_REQUEST_NULL;
	int64_t from = 0;
	size_t bytes = 0;
	void *buffer = NULL;
	int rc;
	if (c == NULL) { /* it was over, and the program had not been told */
		rc = REAL(Irecv)(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, loop, &request);
	} else {
		if (!make_type(k->type, &type)) {
			snprintf(
				text, sizeof text, "the datatype of the request \"%s\" cannot be made again: %.300s", k->name, k->type);
			return text;
		}
		if (!extent_of(type, (long)k->count, &from, &bytes) ||
			(bytes > 0 && (buffer = hfm_memory->base_in(k->array, k->offset, from, bytes)) == NULL)) {
			snprintf(text, sizeof text,
				"the buffer of the request \"%s\" was in the protected array \"%.200s\", which is not there or is "
				"smaller now; protect it as before the restart",
				k->name, k->array);
			REAL(Type_free)(&type);
			return text;
		}
		rc = strstr(k->call, "_init") != NULL ? make_persistent(k, c, buffer, type, &request)
											  : make_receive(k, c, buffer, type, &request);
	}
	if (rc != MPI_SUCCESS) {
		if (c != NULL) {
			REAL(Type_free)(&type);
		}
		snprintf(
			text, sizeof text, "MPI cannot make the request \"%s\" again (MPI_%s): error %d", k->name, k->call, rc);
		return text;
	}
	set_named(w, request);
	if (k->unposted != NULL) {
		hfm_forget_unposted(k->unposted);
	}
	hfm_forget_kept(k);
	return NULL;
}

static struct hfm_comm *comm_named(const char *name) {
	struct hfm_comm *c = hfm_first_comm;
	while (c != NULL && strcmp(c->name, name) != 0) {
		c = c->next;
	}
	return c;
}

/* waits_again reports whether a request of a record will wait for a message. */
static bool waits_again(const struct hfm_kept *k) { return k->unposted != NULL && k->mail == NULL; }

/* post makes those requests of a record again whose variable and communicator are there. */
static const char *post(void) {
	static char text[400];
	const char *why = NULL;
	const char *outer = hfm_inside_of();
	for (struct hfm_kept *k = hfm_kept, *next; k != NULL && why == NULL; k = next) {
		const struct hfm_named *w = hfm_named_as(k->name);
		struct hfm_comm *c = *k->comm != 0 ? comm_named(k->comm) : NULL;
		next = k->next;
		if (w == NULL || (*k->comm != 0 && c == NULL)) {
			continue;
		}
		for (const struct hfm_kept *b = hfm_kept; b != k && why == NULL; b = b->next) {
			if (waits_again(b) && waits_again(k) && strcmp(b->comm, k->comm) == 0 &&
				can_share(b->peer, b->tag, k->peer, k->tag)) {
				snprintf(text, sizeof text,
					"the request \"%s\" was posted before \"%s\", and both can get the same message; protect it first",
					b->name, k->name);
				why = text;
			}
		}
		why = why == NULL ? make_again(k, c, w) : why;
	}
	hfm_within = outer;
	return why;
}
