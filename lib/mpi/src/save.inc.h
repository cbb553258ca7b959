/* save.inc.h - a checkpoint's record of messages: docs/internals/MESSAGES.md. */

/* A message that a receive of the program has got, of which the program has not been told. */
struct got {
	const struct hfm_request *request;
	struct hfm_mail *mail;
	uint32_t receive; /* its number among the receives */
};

/* A record in the making. */
struct saving {
	struct hfm_text head, data, boxes, receives, requests, refused;
	uint32_t boxes_n, receives_n, requests_n, refused_n, comms_n;
	struct got *got;
	size_t got_n;
};

__attribute__((format(printf, 2, 3))) static void refuse(struct saving *s, const char *format, ...) {
	char text[400];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	hfm_add_text(&s->refused, text);
	s->refused_n++;
}

#include "types.inc.h"

#include "protect.inc.h"

static void save_box(struct saving *s, const char *comm, const struct hfm_mail *m, uint32_t receive) {
	uint64_t bytes = m->bytes;
	hfm_add_text(&s->boxes, comm);
	hfm_add_u32(&s->boxes, (uint32_t)m->source);
	hfm_add_u32(&s->boxes, (uint32_t)m->tag);
	hfm_add_u32(&s->boxes, receive);
	hfm_add(&s->boxes, &bytes, sizeof bytes);
	hfm_add(&s->data, m->data, m->bytes);
	s->boxes_n++;
}

static uint32_t save_receive(struct saving *s, const char *comm, int source, int tag, uint32_t flags) {
	hfm_add_text(&s->receives, comm);
	hfm_add_u32(&s->receives, (uint32_t)source);
	hfm_add_u32(&s->receives, (uint32_t)tag);
	hfm_add_u32(&s->receives, flags);
	return ++s->receives_n;
}

/* save_unposted carries over a receive of the checkpoint before, and returns its number; 0: there is none. */
static uint32_t save_unposted(struct saving *s, const struct hfm_unposted *u) {
	return u == NULL
		? 0
		: save_receive(s, u->comm, u->source, u->tag, HFM_RECEIVE_BEFORE | (u->came ? HFM_RECEIVE_CAME : 0));
}

/* pack_got packs the data of a receive; NULL and a refusal: that cannot be. */
static struct hfm_mail *pack_got(struct saving *s, const struct hfm_request *r) {
	MPI_Status st;
	MPI_Comm comm = HANDLE(MPI_Comm, r->comm->handle);
	MPI_Datatype type = HANDLE(MPI_Datatype, r->datatype);
	int flag = 1, bytes = 0, size = 0, n = 0, room = 0, at = 0, rc = MPI_SUCCESS;
	if (r->complete) {
		memcpy(&st, r->status, sizeof st);
		rc = r->error;
	} else {
		rc = REAL(Request_get_status)(HANDLE(MPI_Request, r->handle), &flag, &st);
	}
	if (rc != MPI_SUCCESS || !flag) {
		refuse(s, "the receive posted by MPI_%s on %s has failed, and no wait has returned its error",
			hfm_names[r->call], r->comm->name);
		return NULL;
	}
	/* The last element may be there in part: packed bytes are those of the elements one after the other. */
	bool known = REAL(Get_count)(&st, MPI_PACKED, &bytes) == MPI_SUCCESS && bytes != MPI_UNDEFINED &&
		REAL(Type_size)(type, &size) == MPI_SUCCESS && (size > 0 || bytes == 0);
	n = known && bytes > 0 ? (int)(((long long)bytes + size - 1) / size) : 0;
	struct hfm_mail *m = NULL;
	if (known && n <= r->count && REAL(Pack_size)(n, type, comm, &room) == MPI_SUCCESS) {
		m = malloc(sizeof *m + (size_t)room + 1);
	}
	if (m == NULL || pack_from(r->buffer, n, type, m->data, room, &at, comm) != MPI_SUCCESS || at < bytes) {
		refuse(s, "the message that MPI_%s on %s has got cannot be packed", hfm_names[r->call], r->comm->name);
		free(m);
		return NULL;
	}
	m->message = m->order = 0;
	m->source = r->mail ? r->mail_source : st.MPI_SOURCE;
	m->tag = r->mail ? r->mail_tag : st.MPI_TAG;
	m->bytes = (size_t)bytes;
	return m;
}

/* save_request describes an operation under way, and refuses one that a restart could not repeat. */
static void save_request(struct saving *s, struct hfm_request *r) {
	MPI_Status st;
	int flag = 0, cancelled = 0;
	switch (r->kind) {
	case HFM_PERSISTENT_SEND: /* its message is in the mailbox of its receiver */
		if (r->named != NULL) {
			save_named(s, r, 0);
		}
		return;
	case HFM_SYNCHRONOUS:
		if (r->named != NULL) {
			save_over(s, r->named->name);
		}
		return;
	case HFM_COLLECTIVE:
	case HFM_PERSISTENT_COLLECTIVE:
	case HFM_IDUP:
	case HFM_FILE:
	case HFM_GENERALIZED:
	case HFM_CANCELLED_SEND:
		if (r->named != NULL && r->kind == HFM_PERSISTENT_COLLECTIVE) {
			save_named(s, r, 0);
		} else if (r->named != NULL) {
			save_over(s, r->named->name);
		}
		if (r->active && !r->counted) { /* the drain waits for all but generalized ones */
			refuse(s, "what MPI_%s has started on %s is not complete; wait for it before the point", hfm_names[r->call],
				r->comm->name);
		}
		return;
	case HFM_RECEIVE:
	case HFM_PERSISTENT_RECEIVE:
		break;
	}
	if (!r->active) {
		save_named(s, r, 0);
		return;
	}
	if (r->comm->freed) {
		refuse(
			s, "the communicator %s was freed with a receive pending; wait for it before MPI_Comm_free", r->comm->name);
		return;
	}
	do { /* one whose message has been counted waits for the rest of it at most */
		if (!r->complete && REAL(Request_get_status)(HANDLE(MPI_Request, r->handle), &flag, &st) == MPI_SUCCESS &&
			flag) {
			REAL(Test_cancelled)(&st, &cancelled);
		}
	} while (r->counted && !r->complete && !flag);
	if (cancelled) {
		if (r->named != NULL) {
			save_over(s, r->named->name);
		}
		return;
	}
	bool came = r->complete || flag;
	uint32_t number =
		save_receive(s, r->comm->name, any_source(r->source), any_tag(r->tag), came ? HFM_RECEIVE_CAME : 0);
	r->waiting = !came;
	if (r->named != NULL) {
		save_named(s, r, number);
	}
	struct hfm_mail *m = came ? pack_got(s, r) : NULL;
	if (m != NULL) {
		s->got[s->got_n++] = (struct got){ r, m, number };
	}
}

/* open_epoch is the call that has opened an epoch of a window, or NULL. */
static const char *open_epoch(const struct hfm_comm *w) {
	const struct hfm_epochs *e = &w->epochs;
	return e->locks > 0          ? "Win_lock"
		: e->started             ? "Win_start"
		: e->posted              ? "Win_post"
		: e->fenced != HFM_CALLS ? hfm_names[e->fenced]
								 : NULL;
}

/* met receives obstacles other than requests: the call, the object, the cause, and the remedy. */
typedef void met(void *to, const char *call, const char *on, const char *why, const char *remedy);

static void each_met(met *tell, void *to) {
	for (const struct hfm_request *r = hfm_orphans; r != NULL; r = r->next) {
		tell(to, "Request_free", r->comm->name, "the receive is pending, and its request has been freed",
			"wait for it instead");
	}
	if (hfm_messages.used > 0) {
		tell(to, "Mprobe", "", "a message that has been matched is not received", "receive it before the point");
	}
	for (size_t i = 0; i < hfm_files.room; i++) {
		const struct hfm_comm *f = hfm_files.values[i];
		if (f != NULL && f->split != HFM_CALLS) {
			tell(to, hfm_names[f->split], f->parent, "the split collective has not ended", "end it before the point");
		}
	}
	for (size_t i = 0; i < hfm_windows.room; i++) {
		const struct hfm_comm *w = hfm_windows.values[i];
		const char *open = w != NULL ? open_epoch(w) : NULL;
		if (open != NULL) { /* nothing would close it again after a restart */
			tell(to, open, w->name, "the epoch is open", "close it before the point");
		}
	}
}

static void refuse_met(void *to, const char *call, const char *on, const char *why, const char *remedy) {
	refuse(to, "MPI_%s%s%s: %s; %s", call, *on != 0 ? " on " : "", on, why, remedy);
}

static int by_order(const void *a, const void *b) {
	uint64_t x = (*(struct hfm_request *const *)a)->order, y = (*(struct hfm_request *const *)b)->order;
	return (x > y) - (x < y);
}

/* save_requests saves the operations under way in the order in which the program began them. */
static void save_requests(struct saving *s) {
	size_t n = 0;
	hfm_track_all();
	note_named(s);
	struct hfm_request **all = calloc(hfm_requests.used + 1, sizeof *all);
	s->got = calloc(hfm_requests.used + 1, sizeof *s->got);
	for (size_t i = 0; i < hfm_requests.room; i++) {
		struct hfm_request *r = hfm_requests.values[i];
		if (r != NULL && (r->active || r->named != NULL)) {
			all[n++] = r;
		}
	}
	qsort(all, n, sizeof *all, by_order);
	for (size_t i = 0; i < n; i++) {
		save_request(s, all[i]);
	}
	check_order(s, all, n);
	free(all);
	each_met(refuse_met, s);
	if (hfm_refused_what != NULL) {
		refuse(s, "the program uses %s (%s%s), which no checkpoint can keep", hfm_refused_what,
			strncmp(hfm_refused_call, "MPI_", 4) == 0 ? "" : "MPI_", hfm_refused_call);
	}
}

static void add_comm(struct saving *s, const struct hfm_comm *c) {
	hfm_add_text(&s->head, c->name);
	hfm_add_text(&s->head, c->parent);
	hfm_add_text(&s->head, hfm_names[c->how]);
	hfm_add_u32(&s->head, (uint32_t)c->children);
	hfm_add_u32(&s->head, (uint32_t)c->size);
	hfm_add(&s->head, c->world, (size_t)c->size * sizeof *c->world);
	s->comms_n++;
}

/* save_comm writes the messages of a communicator. Those that receives have got stand each before the first that the
 * same receive could take: so it finds its own when it is posted again, in the order of posting. */
static void save_comm(struct saving *s, const struct hfm_comm *c) {
	size_t n = 0;
	struct entry {
		const struct hfm_mail *mail;
		uint32_t receive;
	} *list = calloc(c->mails + s->got_n + 1, sizeof *list);
	for (const struct hfm_mail *m = c->first; m != NULL; m = m->next) {
		list[n++] = (struct entry){ m, save_unposted(s, m->unposted) };
	}
	for (size_t i = s->got_n; i-- > 0;) {
		const struct got *g = &s->got[i];
		size_t at = 0;
		if (g->request->comm != c) {
			continue;
		}
		while (at < n &&
			!((g->request->source == MPI_ANY_SOURCE || g->request->source == list[at].mail->source) &&
				(g->request->tag == MPI_ANY_TAG || g->request->tag == list[at].mail->tag))) {
			at++;
		}
		memmove(&list[at + 1], &list[at], (n++ - at) * sizeof *list);
		list[at] = (struct entry){ g->mail, g->receive };
	}
	for (size_t i = 0; i < n; i++) {
		save_box(s, c->name, list[i].mail, list[i].receive);
	}
	free(list);
	add_comm(s, c);
}

/* save_rest carries over the messages of a restart that the program has not reached yet. */
static void save_rest(struct saving *s) {
	for (const struct hfm_restored *r = hfm_restored; r != NULL; r = r->next) {
		for (const struct hfm_mail *m = r->first; m != NULL; m = m->next) {
			save_box(s, r->name, m, save_unposted(s, m->unposted));
		}
		hfm_add_text(&s->head, r->name);
		hfm_add_text(&s->head, r->parent);
		hfm_add_text(&s->head, r->how);
		hfm_add_u32(&s->head, (uint32_t)r->children);
		hfm_add_u32(&s->head, (uint32_t)r->size);
		hfm_add(&s->head, r->world, (size_t)r->size * sizeof *r->world);
		s->comms_n++;
	}
	for (const struct hfm_unposted *u = hfm_unposted; u != NULL; u = u->next) {
		if (!u->came && !u->kept) {
			save_unposted(s, u);
		}
	}
	for (const struct hfm_kept *k = hfm_kept; k != NULL; k = k->next) {
		const uint32_t number = save_unposted(s, k->unposted);
		const struct hfm_text type = { k->type, strlen(k->type), 0 };
		const uint32_t numbers[4] = { (uint32_t)k->peer, (uint32_t)k->tag, number, k->flags };
		const int64_t sizes[2] = { k->offset, k->count };
		if (k->mail != NULL) {
			save_box(s, k->comm, k->mail, number);
		}
		add_kept(s, k->name, k->comm, k->call, k->array, &type, numbers, sizes);
	}
}

static const char *save(const void **record, size_t *bytes) {
	static struct hfm_text whole;
	struct saving s;
	memset(&s, 0, sizeof s);
	if (!hfm_on || hfm_within != NULL) {
		return "MPI is not in use, or the call comes from within it";
	}
	if (!hfm_drain_begins()) {
		return "another thread of the rank is in a call of MPI, and stays there";
	}
	hfm_within = HFM_HERE;
	for (struct hfm_comm *c = hfm_first_comm; c != NULL; c = c->next) {
		for (struct hfm_mail *m = c->first; m != NULL; m = m->next) {
			fetch(m);
		}
	}
	settle(false);
	const MPI_Errhandler handler = hush();
	save_requests(&s);
	unhush(handler);
	for (const struct hfm_comm *c = hfm_first_comm; c != NULL; c = c->next) {
		save_comm(&s, c);
	}
	for (const struct hfm_comm *c = hfm_parents; c != NULL; c = c->next) {
		if (hfm_is_parent(c)) {
			add_comm(&s, c);
		}
	}
	save_rest(&s);
	struct hfm_text *const parts[] = { &s.head, &s.boxes, &s.receives, &s.requests, &s.refused, &s.data };
	uint32_t head[] = { HFM_RECORD_MAGIC, HFM_RECORD_VERSION, (uint32_t)hfm_rank, (uint32_t)hfm_size, s.comms_n,
		s.boxes_n, s.receives_n, s.refused_n, s.requests_n, 0 };
	for (size_t i = 0; i + 1 < sizeof parts / sizeof *parts; i++) {
		head[9] += (uint32_t)parts[i]->bytes;
	}
	head[9] += (uint32_t)sizeof head;
	whole.bytes = 0;
	hfm_add(&whole, head, sizeof head);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		hfm_add(&whole, parts[i]->at, parts[i]->bytes);
		free(parts[i]->at);
	}
	for (size_t i = 0; i < s.got_n; i++) {
		free(s.got[i].mail);
	}
	free(s.got);
	hfm_within = NULL;
	hfm_drain_ends();
	*record = whole.at;
	*bytes = whole.bytes;
	return NULL;
}
