/* drain.inc.h - messages that have come leave the network for the mailboxes. */

/* note_complete counts the receives of the program whose messages have come. Their handles stay as they are. */
static void note_complete(void) {
	for (size_t i = 0; i < hfm_requests.room; i++) {
		struct hfm_request *r = hfm_requests.values[i];
		if (r == NULL || !r->active || r->counted || (r->kind != HFM_RECEIVE && r->kind != HFM_PERSISTENT_RECEIVE)) {
			continue;
		}
		MPI_Status st;
		int flag = 0, cancelled = 0, rc;
		rc = REAL(Request_get_status)(HANDLE(MPI_Request, r->handle), &flag, &st);
		if (rc == MPI_SUCCESS && flag) {
			REAL(Test_cancelled)(&st, &cancelled);
			if (!cancelled) {
				count_received(r->comm, &st, rc);
			}
			r->counted = true;
		}
	}
}

/* take_one receives a message of a communicator into its mailbox, and reports whether there was one. */
static bool take_one(struct hfm_comm *c) {
	MPI_Comm comm = HANDLE(MPI_Comm, c->handle);
	MPI_Message message;
	MPI_Status st;
	int flag = 0, n = 0;
	if (REAL(Iprobe)(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &st) != MPI_SUCCESS || !flag ||
		REAL(Get_count)(&st, MPI_PACKED, &n) != MPI_SUCCESS || n == MPI_UNDEFINED ||
		REAL(Improbe)(st.MPI_SOURCE, st.MPI_TAG, comm, &flag, &message, &st) != MPI_SUCCESS || !flag) {
		return false;
	}
	struct hfm_mail *m = malloc(sizeof *m + (size_t)n);
	m->source = st.MPI_SOURCE;
	m->tag = st.MPI_TAG;
	m->bytes = (size_t)n;
	REAL(Mrecv)(m->data, n, MPI_PACKED, &message, &st);
	count_received(c, &st, MPI_SUCCESS);
	hfm_add_mail(c, m);
	return true;
}

static void drain_some(void) {
	reap(false);
	note_complete();
	for (struct hfm_comm *c = hfm_first_comm; c != NULL; c = c->next) {
		while (take_one(c)) {
		}
	}
}
