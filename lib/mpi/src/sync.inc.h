/* sync.inc.h - synchronous sends. Such a send ends when the program receives its message, and not by the drain.
 *
 * A short message that is drained stays matched in MPI, so that its send goes on, until the program takes it. A
 * checkpoint needs its bytes: then the receivers get a list of the sends that have not ended, by notes that are counted
 * and drained as messages are, and from there on each ends by an answer. A note names a message of a communicator with
 * a source and a tag by how many have been sent behind it. When all have arrived, the receiver counts from the end. */

enum { LONGEST_MATCHED = 1024 }; /* a send of more may wait for its receiver */
enum { NOTE, ANSWER };           /* tags on aside */

struct note {
	uint64_t order; /* of the request, which names it in the answer */
	uint32_t behind;
	int32_t tag;
	char comm[HFM_COMM_BYTES];
};

static struct noted {
	struct noted *next;
	int from; /* world rank */
	struct note note;
} *notes;

/* While a synchronous send is under way, how many the rank has sent by communicator, receiver and tag: threads begin
 * sends one after the other, so that they are counted in the order in which they arrive. */
static struct hfm_map sends;

/* Answers that have come, by the order of the request, until the thread that waits for one looks. */
static struct hfm_map answers;

static inline void sends_lock(void) {
	if (hfm_threads) {
		pthread_mutex_lock(&hfm_sends_mutex);
	}
}

static inline void sends_unlock(void) {
	if (hfm_threads) {
		pthread_mutex_unlock(&hfm_sends_mutex);
	}
}

static struct hfm_comm *comm_named(const char *name);

static uint64_t sends_key(const struct hfm_comm *c, int dest, int tag) {
	return (uint64_t)(c->slot & (HFM_MOST_COMMS - 1)) << 54 | (uint64_t)(dest & 0x3fffff) << 32 | (uint32_t)tag;
}

static uint64_t sends_of(const struct hfm_request *r) {
	return (uint64_t)(uintptr_t)hfm_get(&sends, sends_key(r->comm, r->source, r->tag));
}

static void note_send(const struct hfm_comm *c, int dest, int tag) {
	if (c != NULL && dest >= 0) {
		const uint64_t key = sends_key(c, dest, tag);
		hfm_put(&sends, key, (void *)((uintptr_t)hfm_get(&sends, key) + 1));
	}
}

/* sent_one ends the count of a message, under the lock of sends. */
HFM_INLINE void sent_one(const struct hfm_comm *c, int dest, int tag, uint64_t *sent, int rc) {
	if (!HFM_LIKELY(rc == MPI_SUCCESS)) {
		count(sent, (uint64_t)-1);
	} else if (!HFM_LIKELY(hfm_synchronous == 0)) {
		note_send(c, dest, tag);
	}
}

/* synchronous_begins notes a synchronous send that is under way, under the lock of sends. */
static void synchronous_begins(struct hfm_request *r) {
	if (r->source == MPI_PROC_NULL) {
		return;
	}
	hfm_synchronous++;
	hfm_set_state();
	note_send(r->comm, r->source, r->tag);
	r->number = sends_of(r);
}

static void clear(struct hfm_map *map) {
	free(map->keys);
	free(map->values);
	memset(map, 0, sizeof *map);
}

static void synchronous_ends(struct hfm_request *r) {
	if (r->number > 0) {
		sends_lock();
		if (--hfm_synchronous == 0) {
			hfm_lock();
			clear(&sends);
			clear(&answers);
			hfm_unlock();
			hfm_set_state();
		}
		sends_unlock();
	}
	r->number = 0;
	r->taken_later = false;
}

/* send_aside sends an answer to the layer of a rank of the world. */
static void send_aside(int to, int tag, const void *data, size_t bytes) {
	struct packed *p = hfm_need(malloc(sizeof *p + bytes));
	memcpy(p->data, data, bytes);
	if (REAL(Isend)(p->data, (int)bytes, MPI_PACKED, to, tag, aside, &p->request) != MPI_SUCCESS) {
		free(p);
		return;
	}
	hfm_lock();
	p->next = packed_sends;
	packed_sends = p;
	hfm_unlock();
}

/* take_answers notes which sends' messages have been received. */
static void take_answers(void) {
	MPI_Status st;
	uint64_t order;
	int flag;
	loop_lock(); /* another thread would take this one's message */
	while (REAL(Iprobe)(MPI_ANY_SOURCE, ANSWER, aside, &flag, &st) == MPI_SUCCESS && flag) {
		REAL(Recv)(&order, (int)sizeof order, MPI_PACKED, st.MPI_SOURCE, ANSWER, aside, MPI_STATUS_IGNORE);
		hfm_put(&answers, order, &answers);
	}
	loop_unlock();
}

/* must_wait reports whether the message of a synchronous send is in the mailbox of its receiver. Only a thread that
 * waits for the send learns its end by that: it is in the middle of a call, and its request may be hidden. */
static bool must_wait(struct hfm_request *r) {
	if (r != NULL && r->taken_later) {
		take_answers();
		r->taken_later = hfm_remove(&answers, r->order, NULL) == NULL;
	}
	return r != NULL && r->taken_later;
}

static void take_notes(void) {
	MPI_Status st;
	int flag;
	while (REAL(Iprobe)(MPI_ANY_SOURCE, NOTE, aside, &flag, &st) == MPI_SUCCESS && flag) {
		struct noted *n = hfm_need(calloc(1, sizeof *n));
		n->from = st.MPI_SOURCE;
		REAL(Recv)(&n->note, (int)sizeof n->note, MPI_PACKED, n->from, NOTE, aside, MPI_STATUS_IGNORE);
		count(&hfm_received[n->from], 1);
		n->next = notes;
		notes = n;
	}
}

/* fetch receives a message that is matched. */
static void fetch(struct hfm_mail *m) {
	if (m->message != 0) {
		MPI_Message message = HANDLE(MPI_Message, m->message);
		REAL(Mrecv)(m->data, (int)m->bytes, MPI_PACKED, &message, MPI_STATUS_IGNORE);
		m->message = 0;
	}
}

/* given returns a message that the program takes, and answers its sender. */
static struct hfm_mail *given(struct hfm_mail *m) {
	if (m != NULL) {
		fetch(m);
		if (m->order > 0) {
			send_aside(m->from, ANSWER, &m->order, sizeof m->order);
			m->order = 0;
		}
	}
	return m;
}

/* drop_mail ends the sends of messages that no rank will receive. */
static void drop_mail(struct hfm_comm *c) {
	for (struct hfm_mail *m = c->first; m != NULL; m = m->next) {
		given(m);
	}
}

/* next_of returns the next message of a note's source and tag. */
static struct hfm_mail *next_of(const struct noted *n, const struct hfm_comm *c, struct hfm_mail *m) {
	while (m != NULL && (m->tag != n->note.tag || c->world[m->source] != n->from)) {
		m = m->next;
	}
	return m;
}

/* find finds the message of a note, in a mailbox that has all; NULL: the program has received it. */
static struct hfm_mail *find(const struct noted *n) {
	struct hfm_comm *c = comm_named(n->note.comm);
	struct hfm_mail *m = NULL;
	uint64_t all = 0;
	for (struct hfm_mail *x = next_of(n, c, c != NULL ? c->first : NULL); x != NULL; x = next_of(n, c, x->next)) {
		if (all++ >= n->note.behind) { /* as far behind x as the message is from the end */
			m = next_of(n, c, m != NULL ? m->next : c->first);
		}
	}
	return m;
}

/* settle gives each note to its message, or answers it. all: whatever it is about. */
static void settle(bool all) {
	for (struct noted *n; (n = notes) != NULL; free(n)) {
		struct hfm_mail *m = all ? NULL : find(n);
		notes = n->next;
		if (m != NULL) {
			m->order = n->note.order;
			m->from = n->from;
		} else {
			send_aside(n->from, ANSWER, &n->note.order, sizeof n->note.order);
		}
	}
}

/* cutting is called when all ranks have stopped, and when this one goes on. Sends that were not saved are not settled:
 * they go on as before. */
static void cutting(bool begins) {
	if (!hfm_on || hfm_within != NULL) {
		return;
	}
	hfm_within = HFM_HERE;
	for (size_t i = 0; begins && i < hfm_requests.room; i++) {
		struct hfm_request *r = hfm_requests.values[i];
		int flag = 0;
		if (r == NULL || r->number == 0 ||
			(!r->taken_later &&
				REAL(Request_get_status)(HANDLE(MPI_Request, r->handle), &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
				flag)) {
			continue;
		}
		struct note n = { .order = r->order, .behind = (uint32_t)(sends_of(r) - r->number), .tag = r->tag };
		snprintf(n.comm, sizeof n.comm, "%s", r->comm->name);
		r->taken_later = true;
		count(peer(hfm_sent, r->comm, r->source), 1);
		send_aside(r->comm->world[r->source], NOTE, &n, sizeof n);
	}
	if (!begins) {
		take_notes();
		settle(true);
	}
	hfm_within = NULL;
}
