/* complete.inc.h - the calls that start requests and learn how they end. */

/* serve ends a persistent receive with a message of the mailbox: the native one is not started. */
static void serve(struct hfm_request *r, struct hfm_mail *m) {
	MPI_Status st;
	int missed;
	const int most = r->count < INT_MAX ? (int)r->count : INT_MAX; /* no drained message is longer */
	r->error = by_loop(m, r->buffer, most, HANDLE(MPI_Datatype, r->datatype), &st, NULL, &missed);
	st.MPI_SOURCE = m->source;
	st.MPI_TAG = m->tag;
	memcpy(r->status, &st, sizeof st);
	r->complete = r->active = r->counted = true;
	r->order = hfm_next_order();
	free(m);
}

static bool restart_mail(struct hfm_request *r) {
	struct hfm_comm *c = r->comm;
	struct hfm_mail *m = c->freed ? NULL : mail_in(c, r->source, r->tag, true);
	if (m != NULL) {
		serve(r, m);
	}
	return m != NULL;
}

static int start(MPI_Request *request) {
	struct hfm_request *r = request_of(*request);
	if (r != NULL && r->kind == HFM_PERSISTENT_RECEIVE && !r->active && restart_mail(r)) {
		return MPI_SUCCESS;
	}
	uint64_t *sent = r != NULL && r->kind == HFM_PERSISTENT_SEND ? peer(hfm_sent, r->comm, r->source) : NULL;
	if (sent != NULL) {
		count(sent, 1);
		sends_lock();
	}
	int rc = REAL(Start)(request);
	if (rc != MPI_SUCCESS) {
		if (sent != NULL) {
			count(sent, (uint64_t)-1);
		}
	} else if (r != NULL) {
		r->active = true;
		r->counted = r->cancelled = false;
		r->order = hfm_next_order();
		count(hfm_entered(r->comm), r->kind == HFM_PERSISTENT_COLLECTIVE);
		if (r->kind == HFM_PERSISTENT_SEND && r->call == HFM_Ssend_init) {
			synchronous_begins(r);
		} else if (sent != NULL) {
			sent_one(r->comm, r->source, r->tag, sent, rc);
		}
		if (r->kind == HFM_PERSISTENT_RECEIVE) {
			posted(r->comm, r->source, r->tag);
		}
	}
	if (sent != NULL) {
		sends_unlock();
	}
	return rc;
}

static int hfm_Start(MPI_Request *request) {
	if (!hfm_enter(HFM_Start)) {
		return REAL(Start)(request);
	}
	int rc = start(request);
	hfm_leave();
	return rc;
}

static int hfm_Startall(int n, MPI_Request requests[]) {
	if (!hfm_enter(HFM_Startall)) {
		return REAL(Startall)(n, requests);
	}
	int rc = MPI_SUCCESS;
	if (hfm_requests.used == 0) {
		rc = REAL(Startall)(n, requests);
	} else {
		for (int i = 0; i < n && rc == MPI_SUCCESS; i++) {
			rc = start(&requests[i]);
		}
	}
	hfm_leave();
	return rc;
}

static void idup_ends(struct hfm_request *r, int rc);

static bool persistent(const struct hfm_request *r) {
	return r->kind == HFM_PERSISTENT_RECEIVE || r->kind == HFM_PERSISTENT_SEND || r->kind == HFM_PERSISTENT_COLLECTIVE;
}

/* hide takes a request out of the table before the library may end it, and show puts it back if it has not: another
 * thread may get the handle for a new one at once. No drain runs in between. */
static void hide(struct hfm_request *r) {
	if (hfm_threads && r != NULL && !persistent(r)) {
		hfm_remove(&hfm_requests, r->handle, r);
	}
}

static void show(struct hfm_request *r, MPI_Request now) {
	if (hfm_threads && r != NULL && !persistent(r) && WORD(now) == r->handle) {
		hfm_put(&hfm_requests, r->handle, r);
	}
}

/* free_type frees a copy of the program's datatype. */
static void free_type(struct hfm_request *r) {
	if (r->own_type) {
		MPI_Datatype type = HANDLE(MPI_Datatype, r->datatype);
		REAL(Type_free)(&type);
		r->own_type = false;
	}
}

/* A receive that is under way needs its datatype until the program has been told its end: a checkpoint packs its data.
 * Of a persistent request a checkpoint may keep it. One element of it keeps it, and has none of the program's
 * attributes, which MPI_Type_dup would copy by the program's functions. */
static int hfm_Type_free(MPI_Datatype *datatype) {
	if (!hfm_enter(HFM_Type_free)) {
		return REAL(Type_free)(datatype);
	}
	hfm_track_all();
	hfm_lock();
	for (size_t i = 0; i < hfm_requests.room; i++) {
		struct hfm_request *r = hfm_requests.values[i];
		MPI_Datatype copy;
		if (r != NULL && r->datatype == WORD(*datatype) && !r->own_type &&
			(r->kind == HFM_PERSISTENT_RECEIVE || r->kind == HFM_PERSISTENT_SEND ||
				(r->kind == HFM_RECEIVE && r->active)) &&
			REAL(Type_contiguous)(1, *datatype, &copy) == MPI_SUCCESS && REAL(Type_commit)(&copy) == MPI_SUCCESS) {
			r->datatype = WORD(copy);
			r->own_type = true;
		}
	}
	hfm_unlock();
	int rc = REAL(Type_free)(datatype);
	hfm_leave();
	return rc;
}

/* waits_of publishes the message that a request waits for. For a send that the layer does not track it is the receiver,
 * if the call waits only for sends: one of these is not complete. Else, and for a collective, the call says only that
 * there is more. */
static void waits_of(struct hfm_here h, const struct hfm_request *r, MPI_Request request, bool sends_alone) {
	const struct begun *b = begun_at(request);
	if (r != NULL && r->active && !r->mail && !r->counted &&
		(r->kind == HFM_RECEIVE || r->kind == HFM_PERSISTENT_RECEIVE)) {
		hfm_waits(h, r->comm, any_source(r->source), any_tag(r->tag), 0);
	} else if (r != NULL && r->number > 0) {
		hfm_waits(h, r->comm, r->source, r->tag, HFM_WAIT_SEND | HFM_WAIT_TAKEN);
	} else if (r == NULL && sends_alone && b->handle == WORD(request)) {
		hfm_add_wait(h, b->wait);
	} else if (r != NULL && sends_alone && r->kind == HFM_PERSISTENT_SEND && r->active) {
		hfm_waits(h, r->comm, r->source, r->tag, HFM_WAIT_SEND);
	} else {
		h.state->call_flags |= HFM_CALL_MORE;
	}
}

/* blocks_in publishes a call that waits for a request. */
static void blocks_in(enum hfm_call call, const struct hfm_request *r, MPI_Request request) {
	const struct hfm_here h = hfm_here();
	hfm_blocks(h, call, r != NULL ? r->comm : NULL, 0);
	sends_lock();
	waits_of(h, r, request, true);
	sends_unlock();
	hfm_wait_begins(h);
}

/* poll_of notes a test that has found a receive pending, or a synchronous send. */
static void poll_of(const struct hfm_request *r) {
	if (r != NULL && r->active && (r->kind == HFM_RECEIVE || r->kind == HFM_PERSISTENT_RECEIVE || r->number > 0)) {
		hfm_polled(r->comm, any_source(r->source), any_tag(r->tag));
	}
}

/* replace_status puts the outcome of a receive from the mailbox in place of the library's. */
static void replace_status(MPI_Status *st, const struct hfm_request *r) {
	int error = st->MPI_ERROR;
	memcpy(st, r->status, sizeof *st);
	st->MPI_ERROR = error;
}

/* ended notes that the program has been told the end of a request, and puts source and tag of the mailbox into the
 * status. The program's handle is void, unless the request is persistent. */
static void ended(struct hfm_request *r, MPI_Status *st, int rc) {
	int cancelled = 0;
	switch (r->kind) {
	case HFM_RECEIVE:
	case HFM_PERSISTENT_RECEIVE:
		if (!r->counted && r->active) {
			if (r->cancelled) {
				REAL(Test_cancelled)(st, &cancelled);
				r->cancelled = false;
			}
			if (!cancelled) {
				count_received(r->comm, st, rc);
			}
		}
		if (r->mail) {
			st->MPI_SOURCE = r->mail_source;
			st->MPI_TAG = r->mail_tag;
		}
		break;
	case HFM_IDUP:
		if (r->child != NULL) {
			idup_ends(r, rc);
		}
		break;
	case HFM_PERSISTENT_SEND:
		if (r->cancelled) {
			REAL(Test_cancelled)(st, &cancelled);
			count(peer(hfm_sent, r->comm, r->source), cancelled ? (uint64_t)-1 : 0);
			r->cancelled = false;
		}
		break;
	case HFM_CANCELLED_SEND: /* it was counted, and to whom it went is not known any more */
		REAL(Test_cancelled)(st, &cancelled);
		if (cancelled) {
			hfm_refuse("a send that was cancelled", "MPI_Cancel");
		}
		break;
	default:
		break;
	}
	synchronous_ends(r);
	r->active = r->complete = r->counted = false;
	if (!persistent(r)) {
		free_type(r);
		hfm_remove(&hfm_requests, r->handle, r);
		hfm_free_request(r);
	}
}

/* handed gives the program the end of a persistent receive that the mailbox served. */
static int handed(struct hfm_request *r, MPI_Status *st) {
	replace_status(st, r);
	r->active = r->complete = r->counted = false;
	return r->error;
}

enum { FEW = 64 }; /* need no memory of the heap */

/* The requests of one call: those that the layer knows, and statuses even if the program wants none. */
struct batch {
	int n;
	struct hfm_request **known; /* NULL: none is */
	MPI_Status *statuses;
	MPI_Request *asked; /* the library's requests, in place of the program's; NULL: these */
	struct hfm_request *few[FEW];
	MPI_Status few_statuses[FEW];
};

/* look fills a batch. n is that of the program, which may be nonsense. */
static bool look(struct batch *b, int n, const MPI_Request requests[], MPI_Status *statuses) {
	b->n = n;
	b->asked = NULL;
	b->known = NULL;
	b->statuses = statuses;
	if (n <= 0 || hfm_requests.used + hfm_plains_n == 0) {
		return false;
	}
	struct hfm_request **known = n <= FEW ? b->few : malloc((size_t)n * sizeof *known);
	for (int i = 0; i < n; i++) {
		known[i] = request_of(requests[i]);
		if (known[i] != NULL) {
			b->known = known;
		}
	}
	if (b->known == NULL) {
		if (known != b->few) {
			free(known);
		}
		return false;
	}
	if (statuses == MPI_STATUSES_IGNORE) {
		b->statuses = n <= FEW ? b->few_statuses : calloc((size_t)n, sizeof *b->statuses);
		for (int i = 0; HFM_REQUESTS_RAISE && i < n; i++) { /* a library may leave it as it is */
			b->statuses[i].MPI_ERROR = MPI_SUCCESS;
		}
	}
	return true;
}

static void drop(struct batch *b, const MPI_Status *statuses) {
	if (b->known != NULL && b->known != b->few) {
		free(b->known);
	}
	if (b->known != NULL && statuses == MPI_STATUSES_IGNORE && b->statuses != b->few_statuses) {
		free(b->statuses);
	}
	free(b->asked);
}

/* blocks_on_all publishes a call that waits for one of the requests of a batch, or for all. */
static void blocks_on_all(enum hfm_call call, const struct batch *b, const MPI_Request requests[], unsigned flags) {
	const struct hfm_here h = hfm_here();
	const bool alone = b->known == NULL;
	hfm_blocks(h, call, NULL, alone ? 0 : flags);
	sends_lock();
	for (int i = 0; i < b->n; i++) {
		if (!alone || (requests[i] != MPI_REQUEST_NULL && !over_at_once(requests[i]))) {
			waits_of(h, alone ? NULL : b->known[i], requests[i], alone);
		}
	}
	sends_unlock();
	hfm_wait_begins(h);
}

/* poll_of_batch notes a test of several that has found nothing: it names them in turn. */
static void poll_of_batch(const struct batch *b) {
	if (b->known != NULL) {
		poll_of(b->known[hfm_page->polls % (uint64_t)b->n]);
		hfm_page->polls += b->known[hfm_page->polls % (uint64_t)b->n] == NULL;
	}
}

/* apart reports whether a request is that of a persistent collective where several threads wait by tests: MPICH's tests
 * of several requests fail with one. */
static bool apart(const struct hfm_request *r) {
	return !HFM_REQUESTS_RAISE && hfm_threads && r != NULL && r->kind == HFM_PERSISTENT_COLLECTIVE && r->active;
}

/* goes_on reports whether such a collective has not ended. */
static bool goes_on(struct hfm_request *r) {
	int flag = 0;
	if (apart(r) && !r->counted &&
		REAL(Request_get_status)(HANDLE(MPI_Request, r->handle), &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS) {
		r->counted = flag != 0;
	}
	return apart(r) && !r->counted;
}

/* ended_alone reports whether a request is that of an operation on a file which the drain has brought to its end, or a
 * generalized one that is complete where several threads wait by tests. MPICH's functions that test end such a request
 * twice, and its MPI_Waitall never returns from several of which some have ended: each is ended by MPI_Wait alone, and
 * the library is asked for the others. */
static bool ended_alone(const struct hfm_request *r) {
	return r != NULL && r->counted &&
		(hfm_get(&hfm_files, r->comm->handle) == r->comm || (hfm_threads && r->kind == HFM_GENERALIZED) || apart(r));
}

/* over reports whether the layer has ended a request. */
static bool over(const struct hfm_request *r) { return r != NULL && (r->complete || ended_alone(r)); }

/* first_over returns the first request of a batch that is over, or -1. */
static int first_over(const struct batch *b) {
	for (int i = 0; b->known != NULL && i < b->n; i++) {
		if (over(b->known[i])) {
			return i;
		}
	}
	return -1;
}

/* first_persistent returns the first persistent request of a batch that has ended, or -1, where several threads wait by
 * tests: Open MPI's MPI_Testany returns no error of one, and MPI_Wait does. */
static int first_persistent(const struct batch *b, const MPI_Request requests[]) {
	for (int i = 0; HFM_REQUESTS_RAISE && hfm_threads && b->known != NULL && i < b->n; i++) {
		const struct hfm_request *r = b->known[i];
		int flag = 0;
		if (r != NULL && persistent(r) && r->active && !r->taken_later &&
			REAL(Request_get_status)(requests[i], &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag) {
			return i;
		}
	}
	return -1;
}

/* left_out reports whether the library is not asked for a request. */
static bool left_out(const struct hfm_request *r) {
	return ended_alone(r) || apart(r) || (r != NULL && r->taken_later);
}

/* ask returns the library's requests: those of a batch but for those left out. */
static MPI_Request *ask(struct batch *b, MPI_Request requests[]) {
	bool some = false;
	for (int i = 0; b->known != NULL && i < b->n; i++) {
		hide(b->known[i]);
		some = some || left_out(b->known[i]);
	}
	if (!some) {
		free(b->asked);
		b->asked = NULL;
		return requests;
	}
	b->asked = hfm_need(realloc(b->asked, (size_t)b->n * sizeof *b->asked));
	for (int i = 0; i < b->n; i++) {
		b->asked[i] = left_out(b->known[i]) ? MPI_REQUEST_NULL : requests[i];
	}
	return b->asked;
}

/* answered gives the program the handles as the library has left them. */
static void answered(const struct batch *b, MPI_Request requests[]) {
	for (int i = 0; b->known != NULL && i < b->n; i++) {
		if (b->asked != NULL && !left_out(b->known[i])) {
			requests[i] = b->asked[i];
		}
		show(b->known[i], requests[i]);
	}
}

/* some_wait reports whether a batch has requests that the library is not asked for and that have not ended: synchronous
 * sends whose messages are in mailboxes, and persistent collectives. */
static bool some_wait(const struct batch *b) {
	bool some = false;
	for (int i = 0; b->known != NULL && i < b->n; i++) {
		some = must_wait(b->known[i]) || goes_on(b->known[i]) || some;
	}
	return some;
}

static void wait_more(bool harmless) {
	if (hfm_threads) {
		hfm_pause(harmless);
	} else {
		sched_yield();
	}
}

/* An error of a request is raised on its communicator, or on the world: then the library raises those of the loop. */
static MPI_Comm raised_on(const struct hfm_request *r) { return HFM_REQUESTS_RAISE ? handler_of(r) : MPI_COMM_WORLD; }

/* end_over gives the program the end of a request that is over, and returns its error. Of one that the library does not
 * know of, that is raised on a communicator, unless this is NULL. */
static int end_over(struct hfm_request *r, MPI_Request *request, MPI_Status *st, const MPI_Comm *handler) {
	if (r->complete) {
		int error = handed(r, st);
		return handler != NULL ? raise_on(*handler, error) : error;
	}
	hide(r);
	int rc = REAL(Wait)(request, st);
	ended(r, st, rc);
	return rc;
}

/* end_one waits for a request, or tests it. With several threads it waits by testing. */
static int end_one(enum hfm_call call, MPI_Request *request, int *flag, MPI_Status *status) {
	struct hfm_request *r = request_of(*request);
	MPI_Status own, *st = r != NULL && status == MPI_STATUS_IGNORE ? &own : status;
	int rc = MPI_SUCCESS, done = 0;
	if (!flag && !over(r)) {
		blocks_in(call, r, *request);
	}
	for (;;) {
		if (over(r)) {
			if (flag) {
				*flag = 1;
			}
			const MPI_Comm comm = raised_on(r);
			return end_over(r, request, st, &comm);
		}
		if (must_wait(r)) {
			done = 0;
		} else if (flag || (!HFM_LIKELY(!hfm_threads) && !over_at_once(*request))) {
			hide(r);
			rc = REAL(Test)(request, &done, st);
			show(r, *request);
		} else {
			rc = REAL(Wait)(request, st);
			done = 1;
		}
		if (flag || done || rc != MPI_SUCCESS) {
			break;
		}
		wait_more(call != HFM_Sendrecv && call != HFM_Sendrecv_replace);
	}
	if (flag) {
		*flag = done;
	}
	if (r != NULL && (done || rc != MPI_SUCCESS)) {
		bool mail = HFM_REQUESTS_RAISE && r->mail;
		MPI_Comm comm = handler_of(r);
		ended(r, st, rc);
		rc = mail ? raise_on(comm, rc) : rc;
	} else if (r != NULL) {
		poll_of(r);
	}
	return rc;
}

static int wait_or_test(enum hfm_call call, MPI_Request *request, int *flag, MPI_Status *status) {
	if (!hfm_enter(call)) {
		return flag ? REAL(Test)(request, flag, status) : REAL(Wait)(request, status);
	}
	int rc = end_one(call, request, flag, status);
	hfm_leave();
	return rc;
}

SLOW int slow_Wait(MPI_Request *request, MPI_Status *status) { return wait_or_test(HFM_Wait, request, NULL, status); }

/* quick_receive waits for a plain receive. */
static int quick_receive(struct hfm_plain *p, MPI_Request *request, MPI_Status *status) {
	MPI_Status own, *st = status == MPI_STATUS_IGNORE && p->source == MPI_ANY_SOURCE ? &own : status;
	hfm_page->waits[0] = hfm_wait_for(p->comm, any_source(p->source), any_tag(p->tag), 0);
	hfm_quick_begins(HFM_Wait, 0, p->comm, 1);
	const int rc = REAL(Wait)(request, st);
	hfm_quick_ends();
	if (consumed(rc)) {
		count_alone(peer(hfm_received, p->comm, p->source == MPI_ANY_SOURCE ? st->MPI_SOURCE : p->source), 1);
	}
	hfm_plain_ends(p);
	return rc;
}

static int hfm_Wait(MPI_Request *request, MPI_Status *status) {
	if (!HFM_LIKELY(hfm_within == NULL && hfm_state == HFM_ON)) {
		return slow_Wait(request, status);
	}
	struct hfm_plain *p = hfm_plains_n > 0 ? hfm_plain_of(WORD(*request)) : NULL;
	if (p != NULL) {
		return quick_receive(p, request, status);
	}
	if (hfm_requests.used > 0) {
		return slow_Wait(request, status);
	}
	const struct begun *b = begun_at(*request);
	const bool named = !HFM_LIKELY(!begun_any) && b->handle == WORD(*request);
	if (named) {
		hfm_page->waits[0] = b->wait;
	}
	hfm_quick_begins(HFM_Wait, named ? 0 : HFM_CALL_MORE, NULL, named);
	const int rc = REAL(Wait)(request, status);
	hfm_quick_ends();
	return rc;
}

static int hfm_Test(MPI_Request *request, int *flag, MPI_Status *status) {
	return wait_or_test(HFM_Test, request, flag, status);
}

/* The first error of the requests of a call which the library has not raised. */
struct unraised {
	MPI_Comm handler;
	int error;
};

/* found notes an error of a request of several. */
static void found(struct unraised *u, MPI_Comm handler, int error) {
	if (u->error == MPI_SUCCESS && error != MPI_SUCCESS) {
		*u = (struct unraised){ handler, error };
	}
}

/* put_error puts the error of a request into its status, the ith, where the call returns that some have one. */
static void put_error(MPI_Status statuses[], int n, int i, int error, int *rc) {
	int class = MPI_SUCCESS;
	for (int k = 0; k < n && *rc == MPI_SUCCESS && error != MPI_SUCCESS; k++) {
		statuses[k].MPI_ERROR = MPI_SUCCESS;
	}
	*rc = *rc == MPI_SUCCESS && error != MPI_SUCCESS ? MPI_ERR_IN_STATUS : *rc;
	REAL(Error_class)(*rc, &class);
	if (class == MPI_ERR_IN_STATUS) {
		statuses[i].MPI_ERROR = error;
	}
}

/* raised has the handler called for an error that the library has not raised. by_library: it has raised one. */
static int raised(const struct unraised *u, bool by_library, int rc) {
	if (u->error != MPI_SUCCESS && !by_library) {
		raise_on(u->handler, HFM_REQUESTS_RAISE ? u->error : MPI_ERR_IN_STATUS);
	}
	return rc;
}

/* end_all tells the layer how the requests of a batch have ended. ignored: the program wants no statuses. */
static int end_all(struct batch *b, MPI_Request requests[], int rc, bool ignored) {
	struct unraised u = { .error = MPI_SUCCESS };
	int class = MPI_SUCCESS, out = rc;
	if (rc != MPI_SUCCESS) {
		REAL(Error_class)(rc, &class);
	}
	for (int i = 0; i < b->n; i++) {
		struct hfm_request *r = b->known[i];
		MPI_Status *st = &b->statuses[i];
		int error = class == MPI_ERR_IN_STATUS ? st->MPI_ERROR : MPI_SUCCESS, pending = MPI_SUCCESS;
		if (over(r)) {
			const MPI_Comm handler = raised_on(r);
			const bool own = r->complete;
			error = end_over(r, &requests[i], st, NULL);
			put_error(b->statuses, b->n, i, error, &out);
			found(&u, handler, own ? error : MPI_SUCCESS);
			continue;
		}
		if (HFM_REQUESTS_RAISE && ignored && rc == MPI_SUCCESS && r != NULL && persistent(r) && r->active) {
			error = st->MPI_ERROR; /* Open MPI returns it only to a program that wants no statuses */
			put_error(b->statuses, b->n, i, error, &out);
			found(&u, handler_of(r), error);
		}
		if (error != MPI_SUCCESS) {
			REAL(Error_class)(error, &pending);
		}
		if (r != NULL && pending != MPI_ERR_PENDING && (class == MPI_SUCCESS || class == MPI_ERR_IN_STATUS)) {
			found(&u, raised_on(r), r->mail ? error : MPI_SUCCESS);
			ended(r, st, error);
		}
	}
	return raised(&u, !HFM_REQUESTS_RAISE && rc != MPI_SUCCESS, out);
}

static int all_of(enum hfm_call call, int n, MPI_Request requests[], int *flag, MPI_Status *statuses) {
	if (!hfm_enter(call)) {
		return flag ? REAL(Testall)(n, requests, flag, statuses) : REAL(Waitall)(n, requests, statuses);
	}
	struct batch b;
	bool any = look(&b, n, requests, statuses);
	int rc, done;
	if (!flag) {
		blocks_on_all(call, &b, requests, HFM_CALL_ALL);
	}
	for (;;) {
		rc = MPI_SUCCESS;
		done = !some_wait(&b);
		if (done) {
			MPI_Request *asked = ask(&b, requests);
			rc = flag || !HFM_LIKELY(!hfm_threads) ? REAL(Testall)(n, asked, &done, b.statuses)
												   : REAL(Waitall)(n, asked, b.statuses);
			answered(&b, requests);
		}
		if (flag || done || rc != MPI_SUCCESS) {
			break;
		}
		wait_more(true);
	}
	if (flag) {
		*flag = done;
	}
	if (flag && !done) {
		poll_of_batch(&b);
	}
	if (any && (rc != MPI_SUCCESS || done)) {
		rc = end_all(&b, requests, rc, statuses == MPI_STATUSES_IGNORE);
	}
	drop(&b, statuses);
	hfm_leave();
	return rc;
}

/* Some requests of MPI_Waitall: plain receives of known sources, and sends that are not tracked. */
struct quick {
	int n, receives;
	struct hfm_plain *plain[FEW]; /* NULL: a send, or none */
};

_Static_assert((int)FEW <= HFM_MOST_WAITS, "the page has room for all of them");

/* look_quickly reports whether there is nothing else among the requests. */
static bool look_quickly(struct quick *q, int n, const MPI_Request requests[]) {
	if (hfm_within != NULL || hfm_state != HFM_ON || n <= 0 || n > FEW) {
		return false;
	}
	const bool some = hfm_plains_n > 0;
	q->n = n;
	q->receives = 0;
	for (int i = 0; i < n; i++) {
		struct hfm_plain *p = q->plain[i] = some ? hfm_plain_of(WORD(requests[i])) : NULL;
		q->receives += p != NULL;
		if (p != NULL ? p->source == MPI_ANY_SOURCE
					  : hfm_requests.used > 0 && hfm_get(&hfm_requests, WORD(requests[i])) != NULL) {
			return false;
		}
	}
	return true;
}

/* quick_all waits for them. After an error there may be no statuses: a receive that has ended has no handle any more,
 * or keeps it for its error. */
static int quick_all(const struct quick *q, MPI_Request requests[], MPI_Status *statuses) {
	const bool sends_alone = q->receives == 0;
	unsigned flags = sends_alone ? 0 : q->receives < q->n ? HFM_CALL_ALL | HFM_CALL_MORE : HFM_CALL_ALL;
	struct hfm_wait *waits = hfm_page->waits, *end = waits;
	for (int i = 0; i < q->n; i++) {
		const struct hfm_plain *p = q->plain[i];
		if (p != NULL) {
			*end++ = hfm_wait_for(p->comm, p->source, any_tag(p->tag), 0);
		} else if (sends_alone && requests[i] != MPI_REQUEST_NULL && !over_at_once(requests[i])) {
			const struct begun *b = begun_at(requests[i]);
			if (b->handle == WORD(requests[i])) {
				*end++ = b->wait;
			} else {
				flags |= HFM_CALL_MORE;
			}
		}
	}
	hfm_quick_begins(HFM_Waitall, flags, NULL, (uint32_t)(end - waits));
	const int rc = REAL(Waitall)(q->n, requests, statuses);
	hfm_quick_ends();
	for (int i = 0; i < q->n; i++) {
		struct hfm_plain *p = q->plain[i];
		int done = requests[i] == MPI_REQUEST_NULL, error = MPI_SUCCESS;
		if (!HFM_LIKELY(rc == MPI_SUCCESS) && p != NULL && !done) {
			MPI_Status st = { .MPI_ERROR = MPI_SUCCESS }; /* MPICH leaves it as it is */
			error = REAL(Request_get_status)(requests[i], &done, &st);
			error = error == MPI_SUCCESS && done ? st.MPI_ERROR : error;
		}
		if (p != NULL && done && p->comm != NULL) {
			count_alone(peer(hfm_received, p->comm, p->source), consumed(error));
			hfm_plain_ends(p);
		}
	}
	return rc;
}

static int hfm_Waitall(int n, MPI_Request requests[], MPI_Status statuses[]) {
	struct quick q;
	return look_quickly(&q, n, requests) ? quick_all(&q, requests, statuses)
										 : all_of(HFM_Waitall, n, requests, NULL, statuses);
}

static int hfm_Testall(int n, MPI_Request requests[], int *flag, MPI_Status statuses[]) {
	return all_of(HFM_Testall, n, requests, flag, statuses);
}

static int any_of(enum hfm_call call, int n, MPI_Request requests[], int *index, int *flag, MPI_Status *status) {
	if (!hfm_enter(call)) {
		return flag ? REAL(Testany)(n, requests, index, flag, status) : REAL(Waitany)(n, requests, index, status);
	}
	struct batch b;
	MPI_Status own;
	bool any = look(&b, n, requests, status == MPI_STATUS_IGNORE ? &own : status);
	MPI_Status *st = any && status == MPI_STATUS_IGNORE ? &own : status;
	int rc, first = first_over(&b), done = !flag;
	if (!flag && first < 0) {
		blocks_on_all(call, &b, requests, 0);
	}
	for (;;) {
		first = first_over(&b);
		first = first < 0 && !flag ? first_persistent(&b, requests) : first;
		if (first >= 0) {
			*index = first;
			done = 1;
			const MPI_Comm handler = raised_on(b.known[first]);
			rc = end_over(b.known[first], &requests[first], st, &handler);
			break;
		}
		const bool some = some_wait(&b);
		MPI_Request *asked = ask(&b, requests);
		done = 1;
		rc = flag || some || !HFM_LIKELY(!hfm_threads) ? REAL(Testany)(n, asked, index, &done, st)
													   : REAL(Waitany)(n, asked, index, st);
		answered(&b, requests);
		done = done && (!some || *index != MPI_UNDEFINED); /* all others have ended */
		if (flag || done || rc != MPI_SUCCESS) {
			break;
		}
		wait_more(true);
	}
	if (flag) {
		*flag = done;
	}
	if (flag && !done) {
		poll_of_batch(&b);
	}
	if (first < 0 && any && (done || rc != MPI_SUCCESS) && *index >= 0 && *index < n && b.known[*index] != NULL) {
		bool mail = HFM_REQUESTS_RAISE && b.known[*index]->mail;
		MPI_Comm comm = handler_of(b.known[*index]);
		ended(b.known[*index], st, rc);
		rc = mail ? raise_on(comm, rc) : rc;
	}
	if (b.known != NULL && b.known != b.few) {
		free(b.known);
	}
	free(b.asked);
	hfm_leave();
	return rc;
}

static int hfm_Waitany(int n, MPI_Request requests[], int *index, MPI_Status *status) {
	return any_of(HFM_Waitany, n, requests, index, NULL, status);
}

static int hfm_Testany(int n, MPI_Request requests[], int *index, int *flag, MPI_Status *status) {
	return any_of(HFM_Testany, n, requests, index, flag, status);
}

static int some_of(
	enum hfm_call call, int n, MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses) {
	bool wait = call == HFM_Waitsome;
	if (!hfm_enter(call)) {
		return wait ? REAL(Waitsome)(n, requests, outcount, indices, statuses)
					: REAL(Testsome)(n, requests, outcount, indices, statuses);
	}
	struct batch b;
	bool any = look(&b, n, requests, statuses), ready = first_over(&b) >= 0;
	int rc;
	if (wait && !ready) {
		blocks_on_all(call, &b, requests, 0);
	}
	for (;;) {
		ready = first_over(&b) >= 0;
		const bool some = some_wait(&b), block = wait && !ready && !some && HFM_LIKELY(!hfm_threads);
		MPI_Request *asked = ask(&b, requests);
		/* With some ready already, the others are only asked. */
		rc = block ? REAL(Waitsome)(n, asked, outcount, indices, b.statuses)
				   : REAL(Testsome)(n, asked, outcount, indices, b.statuses);
		answered(&b, requests);
		*outcount = some && *outcount == MPI_UNDEFINED ? 0 : *outcount; /* all others have ended */
		if (!wait || ready || rc != MPI_SUCCESS || *outcount != 0) {
			break;
		}
		wait_more(true);
	}
	if (!wait && rc == MPI_SUCCESS && *outcount == 0 && !ready) {
		poll_of_batch(&b);
	}
	if (any && (rc == MPI_SUCCESS || *outcount > 0)) {
		const bool by_library = !HFM_REQUESTS_RAISE && rc != MPI_SUCCESS;
		struct unraised u = { .error = MPI_SUCCESS };
		int class = MPI_SUCCESS, out = *outcount == MPI_UNDEFINED ? 0 : *outcount;
		if (rc != MPI_SUCCESS) {
			REAL(Error_class)(rc, &class);
		}
		for (int i = 0; i < out; i++) {
			struct hfm_request *r = b.known[indices[i]];
			if (r != NULL) {
				const int error = class == MPI_ERR_IN_STATUS ? b.statuses[i].MPI_ERROR : MPI_SUCCESS;
				found(&u, raised_on(r), r->mail ? error : MPI_SUCCESS);
				ended(r, &b.statuses[i], error);
				b.known[indices[i]] = NULL;
			}
		}
		for (int i = 0; i < n && ready; i++) {
			if (over(b.known[i])) {
				indices[out] = i;
				const MPI_Comm handler = raised_on(b.known[i]);
				const bool own = b.known[i]->complete;
				const int error = end_over(b.known[i], &requests[i], &b.statuses[out++], NULL);
				b.known[i] = NULL;
				put_error(b.statuses, out, out - 1, error, &rc);
				found(&u, handler, own ? error : MPI_SUCCESS);
			}
		}
		rc = raised(&u, by_library, rc);
		*outcount = out > 0 || *outcount != MPI_UNDEFINED ? out : MPI_UNDEFINED;
	}
	drop(&b, statuses);
	hfm_leave();
	return rc;
}

static int hfm_Waitsome(int n, MPI_Request requests[], int *outcount, int indices[], MPI_Status statuses[]) {
	return some_of(HFM_Waitsome, n, requests, outcount, indices, statuses);
}

static int hfm_Testsome(int n, MPI_Request requests[], int *outcount, int indices[], MPI_Status statuses[]) {
	return some_of(HFM_Testsome, n, requests, outcount, indices, statuses);
}

static int hfm_Request_get_status(MPI_Request request, int *flag, MPI_Status *status) {
	if (!hfm_enter(HFM_Request_get_status)) {
		return REAL(Request_get_status)(request, flag, status);
	}
	struct hfm_request *r = request_of(request);
	int rc = MPI_SUCCESS;
	if (r != NULL && r->complete) {
		*flag = 1;
		if (status != MPI_STATUS_IGNORE) {
			replace_status(status, r);
		}
	} else if (must_wait(r)) {
		*flag = 0;
	} else {
		rc = REAL(Request_get_status)(request, flag, status);
		if (r != NULL && r->mail && *flag && status != MPI_STATUS_IGNORE) {
			status->MPI_SOURCE = r->mail_source;
			status->MPI_TAG = r->mail_tag;
		}
	}
	hfm_leave();
	return rc;
}

static int hfm_Request_free(MPI_Request *request) {
	if (!hfm_enter(HFM_Request_free)) {
		return REAL(Request_free)(request);
	}
	struct hfm_request *r = request_of(*request);
	int rc = MPI_SUCCESS;
	bool receive = r != NULL && (r->kind == HFM_RECEIVE || r->kind == HFM_PERSISTENT_RECEIVE);
	if (receive && r->active && !r->complete && !r->mail) {
		/* Its message is still to come and to be counted: the request stays, the program's handle goes. */
		hfm_remove(&hfm_requests, r->handle, r);
		hfm_lock();
		r->next = hfm_orphans;
		hfm_orphans = r;
		hfm_unlock();
		*request = MPI_REQUEST_NULL;
	} else {
		hide(r);
		rc = REAL(Request_free)(request);
		show(r, *request);
		if (r != NULL && rc == MPI_SUCCESS) {
			synchronous_ends(r);
			free_type(r);
			hfm_remove(&hfm_requests, r->handle, r);
			hfm_free_request(r);
		}
	}
	hfm_leave();
	return rc;
}

/* reap looks whether receives that the program has freed have got their messages; at the end all go. */
static void reap(bool end) {
	for (struct hfm_request **at = &hfm_orphans, *r; (r = *at) != NULL;) {
		MPI_Request request = HANDLE(MPI_Request, r->handle);
		MPI_Status st;
		int flag = 0, cancelled = 0, rc = REAL(Test)(&request, &flag, &st);
		if (flag && rc == MPI_SUCCESS) {
			REAL(Test_cancelled)(&st, &cancelled);
		}
		if ((flag || rc != MPI_SUCCESS) && !r->counted && !cancelled) {
			count_received(r->comm, &st, rc);
		}
		if (flag || rc != MPI_SUCCESS || end) {
			if (request != MPI_REQUEST_NULL) {
				REAL(Request_free)(&request);
			}
			*at = r->next;
			free_type(r);
			hfm_free_request(r);
		} else {
			at = &r->next;
		}
	}
	end_packed(end);
}

/* The program's own requests end by actions of the program: a checkpoint cannot bring their end about. */
static int hfm_Grequest_start(MPI_Grequest_query_function *query, MPI_Grequest_free_function *release,
	MPI_Grequest_cancel_function *cancel, void *state, MPI_Request *request) {
	if (!hfm_enter(HFM_Grequest_start)) {
		return REAL(Grequest_start)(query, release, cancel, state, request);
	}
	int rc = REAL(Grequest_start)(query, release, cancel, state, request);
	hfm_started(HFM_GENERALIZED, HFM_Grequest_start, hfm_first_comm, rc, request);
	return rc;
}

static int hfm_Grequest_complete(MPI_Request request) {
	struct hfm_request *r = hfm_on && hfm_by_program() ? request_of(request) : NULL;
	if (r != NULL) {
		r->counted = true;
	}
	return REAL(Grequest_complete)(request);
}

static int hfm_Cancel(MPI_Request *request) {
	if (!hfm_enter(HFM_Cancel)) {
		return REAL(Cancel)(request);
	}
	struct hfm_request *r = request_of(*request);
	int rc = MPI_SUCCESS;
	if (r == NULL && *request != MPI_REQUEST_NULL && !over_at_once(*request)) {
		track(HFM_CANCELLED_SEND, HFM_Cancel, hfm_first_comm, *request)->active = true;
	} else if (r != NULL &&
		(r->kind == HFM_RECEIVE || r->kind == HFM_PERSISTENT_RECEIVE ||
			(r->kind == HFM_PERSISTENT_SEND && r->source != MPI_PROC_NULL))) {
		r->cancelled = true;
	} else if (r != NULL && r->kind == HFM_SYNCHRONOUS && !r->taken_later) {
		synchronous_ends(r);
		r->kind = HFM_CANCELLED_SEND;
	}
	if (r == NULL || !(r->complete || r->taken_later)) { /* else it is complete: too late */
		rc = REAL(Cancel)(request);
	}
	hfm_leave();
	return rc;
}

static int hfm_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status) {
	if (!hfm_enter(HFM_Probe)) {
		return REAL(Probe)(source, tag, comm, status);
	}
	const struct hfm_mail *m = mail_for(comm, source, tag, false);
	int rc = MPI_SUCCESS, flag = 0;
	if (m == NULL) {
		blocks_on(HFM_Probe, source != MPI_PROC_NULL ? comm_of(comm) : NULL, any_source(source), any_tag(tag), 0);
	}
	if (m == NULL && HFM_LIKELY(!hfm_threads)) {
		rc = REAL(Probe)(source, tag, comm, status);
	}
	while (m == NULL && hfm_threads && (rc = REAL(Iprobe)(source, tag, comm, &flag, status)) == MPI_SUCCESS && !flag) {
		hfm_pause(true);
		m = mail_for(comm, source, tag, false); /* a drain may have got it */
	}
	if (m != NULL) {
		set_status(status, m);
	}
	hfm_leave();
	return rc;
}

static int hfm_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
	if (!hfm_enter(HFM_Iprobe)) {
		return REAL(Iprobe)(source, tag, comm, flag, status);
	}
	const struct hfm_mail *m = mail_for(comm, source, tag, false);
	int rc = MPI_SUCCESS;
	if (m != NULL) {
		set_status(status, m);
		*flag = 1;
	} else {
		rc = REAL(Iprobe)(source, tag, comm, flag, status);
		if (rc == MPI_SUCCESS && !*flag) {
			hfm_polled(comm_of(comm), any_source(source), any_tag(tag));
		}
	}
	hfm_leave();
	return rc;
}

/* matched notes a message that the program has matched and will receive. */
static struct hfm_request *matched(MPI_Message message, struct hfm_comm *c, int source, int tag) {
	struct hfm_request *r = hfm_new_request(HFM_RECEIVE, HFM_Mprobe, c, WORD(message));
	r->source = source;
	r->tag = tag;
	hfm_put(&hfm_messages, r->handle, r);
	return r;
}

/* mail_to_match takes a message out of the mailbox as it is. */
static struct hfm_mail *mail_to_match(struct hfm_comm *c, int source, int tag) {
	return c == NULL ? NULL : hfm_find_mail(c, source, tag, MPI_ANY_SOURCE, MPI_ANY_TAG, true);
}

/* match_mail gives the program a message of the mailbox as one that it has matched: it stands on the loop. */
static int match_mail(
	struct hfm_mail *m, struct hfm_comm *c, int source, int tag, MPI_Message *message, MPI_Status *st) {
	MPI_Request out;
	MPI_Status own;
	if (m->message != 0) {
		struct hfm_request *r = matched(*message = HANDLE(MPI_Message, m->message), c, source, tag);
		r->mail_source = m->source;
		r->mail_tag = m->tag;
		set_status(st, m);
		free(m);
		return MPI_SUCCESS;
	}
	given(m);
	loop_lock();
	int rc = REAL(Isend)(m->data, (int)m->bytes, MPI_PACKED, 0, 1, loop, &out);
	if (rc == MPI_SUCCESS) {
		rc = REAL(Mprobe)(0, 1, loop, message, &own);
	}
	loop_unlock();
	if (rc == MPI_SUCCESS) {
		struct hfm_request *r = matched(*message, c, source, tag);
		r->mail = true;
		r->mail_source = m->source;
		r->mail_tag = m->tag;
		r->out = WORD(out);
		r->held = m;
		set_status(st, m);
	}
	return rc;
}

static int probe_match(
	enum hfm_call call, int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status) {
	if (!hfm_enter(call)) {
		return flag ? REAL(Improbe)(source, tag, comm, flag, message, status)
					: REAL(Mprobe)(source, tag, comm, message, status);
	}
	struct hfm_comm *c = comm_of(comm);
	struct hfm_mail *m = mail_to_match(c, source, tag);
	int rc = MPI_SUCCESS, found = 0;
	if (m == NULL && !flag) {
		blocks_on(call, source != MPI_PROC_NULL ? c : NULL, any_source(source), any_tag(tag), 0);
	}
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	while (m == NULL && !flag && hfm_threads &&
		(rc = REAL(Improbe)(source, tag, comm, &found, message, st)) == MPI_SUCCESS && !found) {
		hfm_pause(true);
		m = mail_to_match(c, source, tag);
	}
	if (m != NULL) {
		if (flag) {
			*flag = 1;
		}
		rc = match_mail(m, c, source, tag, message, status);
	} else {
		if (flag) {
			rc = REAL(Improbe)(source, tag, comm, flag, message, st);
		} else if (HFM_LIKELY(!hfm_threads)) {
			rc = REAL(Mprobe)(source, tag, comm, message, st);
		}
		if (flag && rc == MPI_SUCCESS && !*flag) {
			hfm_polled(c, any_source(source), any_tag(tag));
		}
		if (rc == MPI_SUCCESS && c != NULL && source != MPI_PROC_NULL && (!flag || *flag)) {
			count_received(c, st, rc);
			struct hfm_request *r = matched(*message, c, source, tag);
			r->mail_source = st->MPI_SOURCE;
			r->mail_tag = st->MPI_TAG;
		}
	}
	hfm_leave();
	return rc;
}

static int hfm_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status) {
	return probe_match(HFM_Mprobe, source, tag, comm, NULL, message, status);
}

static int hfm_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status) {
	return probe_match(HFM_Improbe, source, tag, comm, flag, message, status);
}
