/* counts.inc.h - the calls that have a count, which is an int or, in the functions of MPI 4 with _c, an MPI_Count. */

#define SEND(name, started)                                                                                   \
	SLOW int C(slow_##name)(const void *buf, COUNT n, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {  \
		if (!hfm_enter(HFM_##name)) {                                                                         \
			return REAL(C(name))(buf, n, type, dest, tag, comm);                                              \
		}                                                                                                     \
		const struct hfm_comm *c = comm_of(comm);                                                             \
		uint64_t *sent = peer(hfm_sent, c, dest);                                                             \
		MPI_Request request;                                                                                  \
		int rc;                                                                                               \
		count(sent, 1);                                                                                       \
		blocks_on(HFM_##name, c, dest, tag, HFM_WAIT_SEND | (HFM_##name == HFM_Ssend ? HFM_WAIT_TAKEN : 0));  \
		if (HFM_LIKELY(!hfm_threads)) {                                                                       \
			rc = REAL(C(name))(buf, n, type, dest, tag, comm);                                                \
			sent_one(c, dest, tag, sent, rc);                                                                 \
		} else {                                                                                              \
			sends_lock();                                                                                     \
			rc = REAL(C(started))(buf, n, type, dest, tag, comm, &request);                                   \
			sent_one(c, dest, tag, sent, rc);                                                                 \
			sends_unlock();                                                                                   \
			rc = rc == MPI_SUCCESS ? finish(&request) : rc;                                                   \
		}                                                                                                     \
		hfm_leave();                                                                                          \
		return rc;                                                                                            \
	}                                                                                                         \
	static int C(hfm_##name)(const void *buf, COUNT n, MPI_Datatype type, int dest, int tag, MPI_Comm comm) { \
		const struct hfm_comm *c = hfm_quick(WORD(comm));                                                     \
		if (c == NULL) {                                                                                      \
			return C(slow_##name)(buf, n, type, dest, tag, comm);                                             \
		}                                                                                                     \
		uint64_t *sent = peer(hfm_sent, c, dest);                                                             \
		count_alone(sent, 1);                                                                                 \
		hfm_page->waits[0] =                                                                                  \
			hfm_wait_for(c, dest, tag, HFM_WAIT_SEND | (HFM_##name == HFM_Ssend ? HFM_WAIT_TAKEN : 0));       \
		hfm_quick_begins(HFM_##name, 0, c, 1);                                                                \
		const int rc = REAL(C(name))(buf, n, type, dest, tag, comm);                                          \
		hfm_quick_ends();                                                                                     \
		if (!HFM_LIKELY(rc == MPI_SUCCESS)) {                                                                 \
			count_alone(sent, (uint64_t)-1);                                                                  \
		}                                                                                                     \
		return rc;                                                                                            \
	}

SEND(Send, Isend)
SEND(Bsend, Ibsend)
SEND(Ssend, Issend)
SEND(Rsend, Irsend)
#undef SEND

#define ISEND(name)                                                                                            \
	SLOW int C(slow_##name)(                                                                                   \
		const void *buf, COUNT n, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request) { \
		if (!hfm_enter(HFM_##name)) {                                                                          \
			return REAL(C(name))(buf, n, type, dest, tag, comm, request);                                      \
		}                                                                                                      \
		struct hfm_comm *c = comm_of(comm);                                                                    \
		uint64_t *sent = peer(hfm_sent, c, dest);                                                              \
		count(sent, 1);                                                                                        \
		sends_lock();                                                                                          \
		int rc = REAL(C(name))(buf, n, type, dest, tag, comm, request);                                        \
		if (HFM_##name == HFM_Issend && rc == MPI_SUCCESS && c != NULL && dest != MPI_PROC_NULL &&             \
			!over_at_once(*request)) {                                                                         \
			struct hfm_request *r = track(HFM_SYNCHRONOUS, HFM_##name, c, *request);                           \
			r->source = dest;                                                                                  \
			r->tag = tag;                                                                                      \
			r->active = true;                                                                                  \
			synchronous_begins(r);                                                                             \
		} else {                                                                                               \
			sent_one(c, dest, tag, sent, rc);                                                                  \
			note_begun(*request, c, dest, tag);                                                                \
		}                                                                                                      \
		sends_unlock();                                                                                        \
		hfm_leave();                                                                                           \
		return rc;                                                                                             \
	}                                                                                                          \
	static int C(hfm_##name)(                                                                                  \
		const void *buf, COUNT n, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request) { \
		const struct hfm_comm *c = hfm_quick(WORD(comm));                                                      \
		if (c == NULL || HFM_##name == HFM_Issend) {                                                           \
			return C(slow_##name)(buf, n, type, dest, tag, comm, request);                                     \
		}                                                                                                      \
		const int rc = REAL(C(name))(buf, n, type, dest, tag, comm, request);                                  \
		if (!HFM_LIKELY(rc == MPI_SUCCESS)) {                                                                  \
			return rc;                                                                                         \
		}                                                                                                      \
		count_alone(peer(hfm_sent, c, dest), 1);                                                               \
		if (dest >= 0 && !over_at_once(*request) && c->world[dest] != hfm_rank) {                              \
			note_begun(*request, c, dest, tag);                                                                \
		}                                                                                                      \
		return rc;                                                                                             \
	}

ISEND(Isend)
ISEND(Ibsend)
ISEND(Issend)
ISEND(Irsend)
#undef ISEND

/* One from MPI_PROC_NULL is tracked as a send is, which waits for no message. */
static void C(track_init)(enum hfm_kind kind, enum hfm_call call, struct hfm_comm *c, MPI_Request request,
	const void *buf, COUNT n, MPI_Datatype type, int peer, int tag) {
	struct hfm_request *r = track(peer == MPI_PROC_NULL ? HFM_PERSISTENT_SEND : kind, call, c, request);
	r->buffer = (void *)(uintptr_t)buf;
	r->count = (long)n;
	r->datatype = WORD(type);
	r->source = peer;
	r->tag = tag;
}

#define SEND_INIT(name)                                                                                        \
	static int C(hfm_##name)(                                                                                  \
		const void *buf, COUNT n, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request) { \
		if (!hfm_enter(HFM_##name)) {                                                                          \
			return REAL(C(name))(buf, n, type, dest, tag, comm, request);                                      \
		}                                                                                                      \
		int rc = REAL(C(name))(buf, n, type, dest, tag, comm, request);                                        \
		struct hfm_comm *c = comm_of(comm);                                                                    \
		if (rc == MPI_SUCCESS && c != NULL) {                                                                  \
			C(track_init)(HFM_PERSISTENT_SEND, HFM_##name, c, *request, buf, n, type, dest, tag);              \
		}                                                                                                      \
		hfm_leave();                                                                                           \
		return rc;                                                                                             \
	}

SEND_INIT(Send_init)
SEND_INIT(Bsend_init)
SEND_INIT(Ssend_init)
SEND_INIT(Rsend_init)
#undef SEND_INIT

/* by_loop receives a message of the mailbox by way of the loop, or posts a receive that gets it if request is not NULL.
 * The message is sent first: Open MPI does not notice that one to oneself is too long for a receive that waits for it.
 * missed: the library refuses the receive; the message is taken back. */
static int C(by_loop)(const struct hfm_mail *m, void *buf, COUNT n, MPI_Datatype type, MPI_Status *status,
	MPI_Request *request, int *missed) {
	MPI_Request out;
	*missed = 0;
	loop_lock();
	int rc = REAL(Isend)(m->data, (int)m->bytes, MPI_PACKED, 0, 0, loop, &out);
	if (rc == MPI_SUCCESS) {
		rc = request != NULL ? REAL(C(Irecv))(buf, n, type, 0, 0, loop, request)
							 : REAL(C(Recv))(buf, n, type, 0, 0, loop, status);
		if (rc != MPI_SUCCESS && REAL(Iprobe)(0, 0, loop, missed, MPI_STATUS_IGNORE) == MPI_SUCCESS && *missed) {
			char *copy = hfm_need(malloc(m->bytes + 1));
			REAL(Recv)(copy, (int)m->bytes, MPI_PACKED, 0, 0, loop, MPI_STATUS_IGNORE);
			free(copy);
		}
		REAL(Wait)(&out, MPI_STATUS_IGNORE);
	}
	loop_unlock();
	return rc;
}

/* got_mail ends the receive of a message. failed: of a call that has done nothing. */
static int C(got_mail)(struct hfm_mail *m, int failed, MPI_Comm comm, MPI_Status *status, int rc) {
	if (failed) {
		hfm_return_mail(comm_of(comm), m);
		return raise_on(comm, rc);
	}
	if (status != MPI_STATUS_IGNORE) {
		status->MPI_SOURCE = m->source;
		status->MPI_TAG = m->tag;
	}
	free(m);
	return raise_on(comm, rc);
}

/* received notes a receive that was posted. m: the mailbox serves it; m is gone then. */
static int C(received)(enum hfm_call call, struct hfm_mail *m, void *buf, COUNT n, MPI_Datatype type, int source,
	int tag, MPI_Comm comm, MPI_Request *request, int rc) {
	struct hfm_comm *c = comm_of(comm);
	if (rc == MPI_SUCCESS && c != NULL && source != MPI_PROC_NULL) {
		posted(c, source, tag);
		if (call != HFM_Irecv || m != NULL || hfm_threads ||
			!note_plain(c, *request, buf, (long)n, type, source, tag)) {
			track_receive(call, c, m, *request, buf, (long)n, type, source, tag);
		}
	}
	if (m != NULL && rc == MPI_SUCCESS) {
		free(m);
	} else if (m != NULL) {
		hfm_return_mail(c, m);
		rc = raise_on(comm, rc);
	}
	return rc;
}

/* irecv posts a receive. */
static int C(irecv)(enum hfm_call call, void *buf, COUNT n, MPI_Datatype type, int source, int tag, MPI_Comm comm,
	MPI_Request *request) {
	struct hfm_mail *m = mail_for(comm, source, tag, true);
	int missed,
		rc = m != NULL ? C(by_loop)(m, buf, n, type, NULL, request, &missed)
					   : REAL(C(Irecv))(buf, n, type, source, tag, comm, request);
	return C(received)(call, m, buf, n, type, source, tag, comm, request, rc);
}

SLOW int C(slow_Irecv)(
	void *buf, COUNT n, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request) {
	if (!hfm_enter(HFM_Irecv)) {
		return REAL(C(Irecv))(buf, n, type, source, tag, comm, request);
	}
	int rc = C(irecv)(HFM_Irecv, buf, n, type, source, tag, comm, request);
	hfm_leave();
	return rc;
}

static int C(hfm_Irecv)(
	void *buf, COUNT n, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request) {
	struct hfm_comm *c = hfm_quick(WORD(comm));
	if (c == NULL || source == MPI_PROC_NULL || c->mails != 0 || hfm_unposted != NULL) {
		return C(slow_Irecv)(buf, n, type, source, tag, comm, request);
	}
	const int rc = REAL(C(Irecv))(buf, n, type, source, tag, comm, request);
	if (HFM_LIKELY(rc == MPI_SUCCESS) && !note_plain(c, *request, buf, (long)n, type, source, tag)) {
		track_receive(HFM_Irecv, c, NULL, *request, buf, (long)n, type, source, tag);
	}
	return rc;
}

/* receive_by posts a receive and waits for it, where a rank has several threads. A receive from MPI_PROC_NULL waits for
 * nothing, and MPICH's request of one does not say that in its status. */
static int C(receive_by)(
	enum hfm_call call, void *buf, COUNT n, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status) {
	MPI_Request request;
	if (source == MPI_PROC_NULL) {
		return REAL(C(Recv))(buf, n, type, source, tag, comm, status);
	}
	int rc = C(irecv)(call, buf, n, type, source, tag, comm, &request);
	return rc == MPI_SUCCESS ? end_one(call, &request, NULL, status) : rc;
}

/* may_receive has the library look at the arguments of a receive: a call that sends first must not do so in vain. For a
 * receive from MPI_PROC_NULL it looks at all of them but the source. */
static int C(may_receive)(void *buf, COUNT n, MPI_Datatype type, int source, int tag, MPI_Comm comm) {
	const struct hfm_comm *c = comm_of(comm);
	MPI_Request request;
	if (c != NULL && (source == MPI_ANY_SOURCE || source == MPI_PROC_NULL || (source >= 0 && source < c->size))) {
		return REAL(C(Recv))(buf, n, type, MPI_PROC_NULL, tag, comm, MPI_STATUS_IGNORE);
	}
	const int rc = REAL(C(Recv_init))(buf, n, type, source, tag, comm, &request);
	return rc == MPI_SUCCESS ? REAL(Request_free)(&request) : rc;
}

/* exchange_by sends and receives by requests. */
static int C(exchange_by)(const void *sendbuf, COUNT sends, MPI_Datatype sendtype, int dest, int sendtag, void *recvbuf,
	COUNT receives, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm, MPI_Status *status,
	enum hfm_call call) {
	MPI_Request out;
	uint64_t *sent = peer(hfm_sent, comm_of(comm), dest);
	int rc = C(may_receive)(recvbuf, receives, recvtype, source, recvtag, comm);
	if (rc != MPI_SUCCESS) {
		return rc;
	}
	count(sent, 1);
	sends_lock();
	rc = REAL(C(Isend))(sendbuf, sends, sendtype, dest, sendtag, comm, &out);
	sent_one(comm_of(comm), dest, sendtag, sent, rc);
	sends_unlock();
	if (rc != MPI_SUCCESS) {
		return rc;
	}
	rc = C(receive_by)(call, recvbuf, receives, recvtype, source, recvtag, comm, status);
	int late = finish(&out);
	return rc == MPI_SUCCESS ? late : rc;
}

SLOW int C(slow_Recv)(void *buf, COUNT n, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status) {
	if (!hfm_enter(HFM_Recv)) {
		return REAL(C(Recv))(buf, n, type, source, tag, comm, status);
	}
	if (!HFM_LIKELY(!hfm_threads)) {
		int end = C(receive_by)(HFM_Recv, buf, n, type, source, tag, comm, status);
		hfm_leave();
		return end;
	}
	struct hfm_comm *c = comm_of(comm);
	struct hfm_mail *m = mail_in(c, source, tag, true);
	MPI_Status own, *st = status;
	int rc;
	if (m != NULL) {
		int missed;
		rc = C(by_loop)(m, buf, n, type, st, NULL, &missed);
		rc = C(got_mail)(m, missed, comm, st, rc);
	} else if (source == MPI_PROC_NULL) {
		rc = REAL(C(Recv))(buf, n, type, source, tag, comm, st);
	} else {
		if (st == MPI_STATUS_IGNORE && source == MPI_ANY_SOURCE) {
			st = &own;
		}
		posted(c, source, tag);
		blocks_on(HFM_Recv, c, any_source(source), any_tag(tag), 0);
		rc = REAL(C(Recv))(buf, n, type, source, tag, comm, st);
		if (c != NULL && consumed(rc)) {
			count(peer(hfm_received, c, source == MPI_ANY_SOURCE ? st->MPI_SOURCE : source), 1);
		}
	}
	hfm_leave();
	return rc;
}

static int C(hfm_Recv)(void *buf, COUNT n, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status) {
	const struct hfm_comm *c = hfm_quick(WORD(comm));
	if (c == NULL || source < 0 || source >= c->size || c->mails != 0 || hfm_unposted != NULL) {
		return C(slow_Recv)(buf, n, type, source, tag, comm, status);
	}
	uint64_t *received = &hfm_received[c->world[source]];
	hfm_page->waits[0] = hfm_wait_for(c, source, any_tag(tag), 0);
	hfm_quick_begins(HFM_Recv, 0, c, 1);
	const int rc = REAL(C(Recv))(buf, n, type, source, tag, comm, status);
	hfm_quick_ends();
	if (consumed(rc)) {
		count_alone(received, 1);
	}
	return rc;
}

static int C(hfm_Recv_init)(
	void *buf, COUNT n, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request) {
	if (!hfm_enter(HFM_Recv_init)) {
		return REAL(C(Recv_init))(buf, n, type, source, tag, comm, request);
	}
	int rc = REAL(C(Recv_init))(buf, n, type, source, tag, comm, request);
	struct hfm_comm *c = comm_of(comm);
	if (rc == MPI_SUCCESS && c != NULL) {
		C(track_init)(HFM_PERSISTENT_RECEIVE, HFM_Recv_init, c, *request, buf, n, type, source, tag);
	}
	hfm_leave();
	return rc;
}

static int C(hfm_Sendrecv)(const void *sendbuf, COUNT sends, MPI_Datatype sendtype, int dest, int sendtag,
	void *recvbuf, COUNT receives, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm, MPI_Status *status) {
	if (!hfm_enter(HFM_Sendrecv)) {
		return REAL(C(Sendrecv))(
			sendbuf, sends, sendtype, dest, sendtag, recvbuf, receives, recvtype, source, recvtag, comm, status);
	}
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct hfm_comm *c = comm_of(comm);
	int rc;
	if (!HFM_LIKELY(!hfm_threads)) {
		rc = C(exchange_by)(sendbuf, sends, sendtype, dest, sendtag, recvbuf, receives, recvtype, source, recvtag, comm,
			status, HFM_Sendrecv);
		hfm_leave();
		return rc;
	}
	uint64_t *sent = peer(hfm_sent, c, dest);
	count(sent, 1);
	struct hfm_mail *m = mail_for(comm, source, recvtag, true);
	const struct hfm_here h = hfm_here();
	hfm_blocks(h, HFM_Sendrecv, c, HFM_CALL_ALL);
	if (m == NULL) {
		if (source != MPI_PROC_NULL) {
			posted(c, source, recvtag);
			hfm_waits(h, c, any_source(source), any_tag(recvtag), 0);
		}
		hfm_waits(h, c, dest, sendtag, HFM_WAIT_SEND);
		hfm_wait_begins(h);
		rc = REAL(C(Sendrecv))(
			sendbuf, sends, sendtype, dest, sendtag, recvbuf, receives, recvtype, source, recvtag, comm, st);
		sent_one(c, dest, sendtag, sent, consumed(rc) ? MPI_SUCCESS : rc);
		if (source != MPI_PROC_NULL) {
			count_received(c, st, rc);
		}
	} else {
		hfm_waits(h, c, dest, sendtag, HFM_WAIT_SEND);
		hfm_wait_begins(h);
		MPI_Request out;
		int missed, late;
		rc = C(by_loop)(m, recvbuf, receives, recvtype, st, NULL, &missed);
		late = missed ? rc : REAL(C(Isend))(sendbuf, sends, sendtype, dest, sendtag, comm, &out);
		sent_one(c, dest, sendtag, sent, late);
		if (!missed && late != MPI_SUCCESS) { /* the library has raised it */
			hfm_return_mail(c, m);
			rc = late;
		} else {
			rc = C(got_mail)(m, missed, comm, st, rc);
			late = missed ? rc : REAL(Wait)(&out, MPI_STATUS_IGNORE);
			rc = rc == MPI_SUCCESS ? late : rc;
		}
	}
	hfm_leave();
	return rc;
}

/* pack makes a packed copy of the data in buf, behind head bytes of *copy, which the caller frees. More bytes than
 * MPI_Pack counts are an error of the communicator's handler. */
static int C(pack)(const void *buf, COUNT n, MPI_Datatype type, MPI_Comm comm, size_t head, char **copy, int *bytes) {
	int size = 0, room = 0, rc = REAL(Type_size)(type, &size);
	*copy = NULL;
	*bytes = 0;
	if (rc == MPI_SUCCESS && (size < 0 || n > INT_MAX || (size > 0 && n > INT_MAX / size))) {
		return raise_on(comm, MPI_ERR_COUNT);
	}
	rc = rc == MPI_SUCCESS ? REAL(Pack_size)((int)n, type, comm, &room) : rc;
	if (rc != MPI_SUCCESS || room < 0) {
		return rc != MPI_SUCCESS ? rc : raise_on(comm, MPI_ERR_COUNT);
	}
	*copy = hfm_need(malloc(head + (size_t)room + 1));
	rc = pack_from(buf, (int)n, type, *copy + head, room, bytes, comm);
	if (rc != MPI_SUCCESS) {
		free(*copy);
		*copy = NULL;
	}
	return rc;
}

static int C(hfm_Sendrecv_replace)(void *buf, COUNT n, MPI_Datatype type, int dest, int sendtag, int source,
	int recvtag, MPI_Comm comm, MPI_Status *status) {
	if (!hfm_enter(HFM_Sendrecv_replace)) {
		return REAL(C(Sendrecv_replace))(buf, n, type, dest, sendtag, source, recvtag, comm, status);
	}
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct hfm_comm *c = comm_of(comm);
	int rc, bytes;
	char *packed;
	if (HFM_LIKELY(!hfm_threads) && mail_in(c, source, recvtag, false) == NULL) {
		uint64_t *sent = peer(hfm_sent, c, dest);
		const struct hfm_here h = hfm_here();
		hfm_blocks(h, HFM_Sendrecv_replace, c, HFM_CALL_ALL);
		if (source != MPI_PROC_NULL) {
			posted(c, source, recvtag);
			hfm_waits(h, c, any_source(source), any_tag(recvtag), 0);
		}
		hfm_waits(h, c, dest, sendtag, HFM_WAIT_SEND);
		count(sent, 1);
		hfm_wait_begins(h);
		rc = REAL(C(Sendrecv_replace))(buf, n, type, dest, sendtag, source, recvtag, comm, st);
		sent_one(c, dest, sendtag, sent, consumed(rc) ? MPI_SUCCESS : rc);
		if (source != MPI_PROC_NULL) {
			count_received(c, st, rc);
		}
		hfm_leave();
		return rc;
	}
	rc = C(pack)(buf, n, type, comm, 0, &packed, &bytes);
	if (rc == MPI_SUCCESS) {
		rc = C(exchange_by)(packed, (COUNT)bytes, MPI_PACKED, dest, sendtag, buf, n, type, source, recvtag, comm, st,
			HFM_Sendrecv_replace);
	}
	free(packed);
	hfm_leave();
	return rc;
}

/* message_of takes a matched message out of the table; NULL: one that the layer does not know. */
static struct hfm_request *C(message_of)(MPI_Message message) { return hfm_remove(&hfm_messages, WORD(message), NULL); }

/* unmoved reports whether a call has left a message as it is, by an error, and puts it back. Of one that was too long
 * MPICH leaves the handle. */
static bool C(unmoved)(struct hfm_request *m, MPI_Message now, int rc) {
	const bool same = m != NULL && !consumed(rc) && WORD(now) == m->handle;
	if (same) {
		hfm_put(&hfm_messages, m->handle, m);
	}
	return same;
}

/* delivered ends the send of the loop that brought a message of the mailbox. */
static void C(delivered)(struct hfm_request *m) {
	if (m->mail) {
		MPI_Request out = HANDLE(MPI_Request, m->out);
		REAL(Wait)(&out, MPI_STATUS_IGNORE);
	}
}

static int C(hfm_Mrecv)(void *buf, COUNT n, MPI_Datatype type, MPI_Message *message, MPI_Status *status) {
	if (!hfm_enter(HFM_Mrecv)) {
		return REAL(C(Mrecv))(buf, n, type, message, status);
	}
	struct hfm_request *m = C(message_of)(*message);
	int rc = REAL(C(Mrecv))(buf, n, type, message, status);
	if (C(unmoved)(m, *message, rc)) {
		rc = HFM_REQUESTS_RAISE && m->mail ? raise_on(handler_of(m), rc) : rc;
	} else if (m != NULL) {
		C(delivered)(m);
		if (m->mail && status != MPI_STATUS_IGNORE) {
			status->MPI_SOURCE = m->mail_source;
			status->MPI_TAG = m->mail_tag;
		}
		rc = m->mail ? raise_on(handler_of(m), rc) : rc;
		hfm_free_request(m);
	}
	hfm_leave();
	return rc;
}

static int C(hfm_Imrecv)(void *buf, COUNT n, MPI_Datatype type, MPI_Message *message, MPI_Request *request) {
	if (!hfm_enter(HFM_Imrecv)) {
		return REAL(C(Imrecv))(buf, n, type, message, request);
	}
	struct hfm_request *m = C(message_of)(*message);
	int rc = REAL(C(Imrecv))(buf, n, type, message, request);
	if (m != NULL && rc == MPI_SUCCESS) {
		C(delivered)(m);
		struct hfm_request *r = track(HFM_RECEIVE, HFM_Imrecv, m->comm, *request);
		r->buffer = buf;
		r->count = (long)n;
		r->datatype = WORD(type);
		r->source = m->source;
		r->tag = m->tag;
		r->active = r->counted = true;
		r->mail = m->mail;
		r->mail_source = m->mail_source;
		r->mail_tag = m->mail_tag;
	}
	if (C(unmoved)(m, *message, rc)) {
		rc = HFM_REQUESTS_RAISE && m->mail ? raise_on(handler_of(m), rc) : rc;
	} else if (m != NULL) {
		hfm_free_request(m);
	}
	hfm_leave();
	return rc;
}
