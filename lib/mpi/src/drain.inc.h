/* drain.inc.h - messages that have come leave the network for the mailboxes. */

/* completes reports whether an operation comes to its end without the program. */
static bool completes(const struct hfm_request *r) {
	return r->kind == HFM_COLLECTIVE || r->kind == HFM_PERSISTENT_COLLECTIVE || r->kind == HFM_IDUP ||
		r->kind == HFM_FILE || r->kind == HFM_CANCELLED_SEND;
}

static bool receives(const struct hfm_request *r) {
	return r->kind == HFM_RECEIVE || r->kind == HFM_PERSISTENT_RECEIVE;
}

/* poke has the library look after an operation: MPICH's for files get on only in a test, which would end the request,
 * unless another one in it does not end. */
static void poke(const struct hfm_request *r) {
	MPI_Request two[2] = { HANDLE(MPI_Request, r->handle), never };
	int flag;
	REAL(Testall)(2, two, &flag, MPI_STATUSES_IGNORE);
}

/* All ranks stand at points. Else ROMIO's collectives are left alone: ranks would look after different ones. */
static bool at_point;

/* oldest reports whether nothing is under way on a file that was started before: ROMIO's operations on one get on in
 * their order alone. */
static bool oldest(const struct hfm_request *r) {
	for (size_t i = 0; i < hfm_requests.room; i++) {
		const struct hfm_request *x = hfm_requests.values[i];
		if (x != NULL && x->active && !x->counted && x->comm == r->comm && x->order < r->order) {
			return false;
		}
	}
	return true;
}

/* note_complete looks for ends that the program has not been told: it counts messages that receives have got. Handles
 * stay as they are. */
static void note_complete(void) {
	for (size_t i = 0; i < hfm_requests.room; i++) {
		struct hfm_request *r = hfm_requests.values[i];
		if (r == NULL || !r->active || r->counted || !(receives(r) || completes(r))) {
			continue;
		}
		MPI_Status st;
		int flag = 0, cancelled = 0, rc;
		const bool of_file = hfm_get(&hfm_files, r->comm->handle) == r->comm;
		if (of_file && (!at_point || !oldest(r))) {
			continue;
		}
		if (of_file) {
			poke(r);
		}
		rc = REAL(Request_get_status)(HANDLE(MPI_Request, r->handle), &flag, &st);
		if (!flag || !(rc == MPI_SUCCESS || (receives(r) && consumed(rc)))) {
			continue;
		}
		REAL(Test_cancelled)(&st, &cancelled);
		if (receives(r) && !cancelled) {
			count_received(r->comm, &st, rc);
		} else if (r->kind == HFM_IDUP) { /* messages may be on their way on it */
			idup_ends(r, rc);
		} else if (r->kind == HFM_CANCELLED_SEND && cancelled) {
			hfm_refuse("a send that was cancelled", "MPI_Cancel");
		}
		r->counted = true;
	}
}

/* take_one receives a message of a communicator into its mailbox, and reports whether there was one that had room. */
static bool take_one(struct hfm_comm *c, uint64_t *mails, uint64_t *bytes) {
	MPI_Comm comm = HANDLE(MPI_Comm, c->handle);
	MPI_Message message;
	MPI_Status st;
	int flag = 0, n = 0;
	if (REAL(Iprobe)(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &st) != MPI_SUCCESS || !flag ||
		REAL(Get_count)(&st, MPI_PACKED, &n) != MPI_SUCCESS) {
		return false;
	}
	if (n == MPI_UNDEFINED) { /* an int cannot say how long it is */
		hfm_page->full = HFM_FULL_LARGE;
		return false;
	}
	uint64_t limit = __atomic_load_n(&hfm_page->limit, __ATOMIC_RELAXED);
	if (limit > 0 && *bytes + (uint64_t)n > limit) {
		hfm_page->full = 1;
		return false;
	}
	if (REAL(Improbe)(st.MPI_SOURCE, st.MPI_TAG, comm, &flag, &message, &st) != MPI_SUCCESS || !flag) {
		return false;
	}
	struct hfm_mail *m = hfm_need(malloc(sizeof *m + (size_t)n));
	m->message = WORD(message);
	m->order = m->arrived = 0;
	m->unposted = NULL;
	m->source = st.MPI_SOURCE;
	m->tag = st.MPI_TAG;
	m->bytes = (size_t)n;
	if (n > LONGEST_MATCHED && (hfm_threads || c->world[st.MPI_SOURCE] != hfm_rank)) {
		fetch(m);
	}
	count_received(c, &st, MPI_SUCCESS);
	hfm_add_mail(c, m);
	*bytes += (uint64_t)n;
	++*mails;
	return true;
}

/* mailbox_size counts the messages that wait for the program. */
static uint64_t mailbox_size(uint64_t *mails) {
	uint64_t bytes = 0;
	*mails = 0;
	for (const struct hfm_comm *c = hfm_first_comm; c != NULL; c = c->next) {
		for (const struct hfm_mail *m = c->first; m != NULL; m = m->next) {
			bytes += m->bytes;
			++*mails;
		}
	}
	for (const struct hfm_kept *k = hfm_kept; k != NULL; k = k->next) {
		bytes += k->mail != NULL ? k->mail->bytes : 0;
		*mails += k->mail != NULL;
	}
	for (const struct hfm_restored *r = hfm_restored; r != NULL; r = r->next) {
		for (const struct hfm_mail *m = r->first; m != NULL; m = m->next) {
			bytes += m->bytes;
			++*mails;
		}
	}
	return bytes;
}

/* duplicating reports whether an MPI_Comm_idup is under way whose ranks must make progress in the same calls: Open MPI
 * has collectives of its own for it, which begin with any progress, so that others on its communicator would meet
 * them. */
static bool duplicating(void) {
	for (size_t i = 0; HFM_MESSAGES_MAKE_COMMS && i < hfm_requests.room; i++) {
		const struct hfm_request *r = hfm_requests.values[i];
		if (r != NULL && r->kind == HFM_IDUP && !r->counted) {
			return true;
		}
	}
	return false;
}

/* drain_now receives the messages that have come, and notes that in the page. */
static void drain_now(void) {
	if (!at_point && duplicating()) {
		return;
	}
	uint64_t mails, bytes = mailbox_size(&mails), pending = 0, unfinished = 0, busy = 0;
	hfm_track_all();
	reap(false);
	const MPI_Errhandler handler = hush();
	note_complete();
	unhush(handler);
	take_notes();
	for (struct hfm_comm *c = hfm_first_comm; c != NULL; c = c->next) {
		while (take_one(c, &mails, &bytes)) {
		}
	}
	for (size_t i = 0; i < hfm_requests.room; i++) {
		const struct hfm_request *r = hfm_requests.values[i];
		const bool under_way = r != NULL && r->active;
		pending += under_way && receives(r);
		unfinished += under_way && completes(r) && !r->counted;
		busy += under_way && hfm_get(&hfm_files, r->comm->handle) == r->comm;
	}
	hfm_page->mail_bytes = bytes;
	hfm_page->mails = mails;
	hfm_page->pending = pending + unfinished + hfm_messages.used;
	hfm_page->unfinished = unfinished;
	hfm_page->busy = busy;
	hfm_page->windows = hfm_windows.used;
	hfm_page->to_sync = to_sync();
	hfm_page->inside = hfm_inside();
	__atomic_store_n(&hfm_page->turns, hfm_page->turns + 1, __ATOMIC_RELEASE);
}

static void drain_some(void) {
	if (hfm_drain_begins()) {
		drain_now();
		hfm_drain_ends();
	}
}

static void turn(void) {
	if (hfm_on && hfm_within == NULL) {
		hfm_within = HFM_HERE;
		at_point = true;
		hfm_stands(hfm_threads);
		drain_some();
		at_point = false;
		hfm_within = NULL;
	}
}
