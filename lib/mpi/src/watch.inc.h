/* watch.inc.h - what holdfast run --watch asks, between two calls of the program. It looks for what save refuses, and
 * changes nothing. */

/* note_pending notes why a checkpoint would be refused for a request, and returns whether it is a receive. */
static bool note_pending(const struct hfm_request *r) {
	const bool receive = r->kind == HFM_RECEIVE || r->kind == HFM_PERSISTENT_RECEIVE;
	if (receive && r->comm->freed) {
		hfm_answer_note(
			hfm_names[r->call], r->comm->name, "the receive is pending, and its communicator has been freed");
	}
	return receive;
}

static void answer(void) {
	uint64_t receives = 0;
	if (!hfm_drain_begins()) {
		return; /* a later call will */
	}
	hfm_answer_begins();
	for (size_t i = 0; i < hfm_requests.room; i++) {
		const struct hfm_request *r = hfm_requests.values[i];
		receives += r != NULL && r->active && note_pending(r);
	}
	for (const struct hfm_request *r = hfm_orphans; r != NULL; r = r->next) {
		hfm_answer_note("Request_free", r->comm->name, "the receive is pending, and its request has been freed");
	}
	if (hfm_messages.used > 0) {
		hfm_answer_note("Mprobe", "", "a message that has been matched is not received");
	}
	for (size_t i = 0; i < hfm_files.room; i++) {
		const struct hfm_comm *f = hfm_files.values[i];
		if (f != NULL && f->split != HFM_CALLS) {
			hfm_answer_note(hfm_names[f->split], f->parent, "the split collective has not ended");
		}
	}
	for (size_t i = 0; i < hfm_windows.room; i++) {
		const struct hfm_comm *w = hfm_windows.values[i];
		const char *open = w != NULL ? open_epoch(w) : NULL;
		if (open != NULL) {
			hfm_answer_note(open, w->name, "the epoch is open");
		}
	}
	hfm_answer_ends(receives);
	hfm_drain_ends();
}
