/* watch.inc.h - the answers to holdfast run --watch, between two calls of the program. It looks for operations that
 * save refuses, and changes nothing. */

/* note_pending notes why a checkpoint would be refused for a request, and returns whether it is a receive. */
static bool note_pending(const struct hfm_request *r) {
	const bool receive = r->kind == HFM_RECEIVE || r->kind == HFM_PERSISTENT_RECEIVE;
	if (receive && r->comm->freed) {
		hfm_answer_note(
			hfm_names[r->call], r->comm->name, "the receive is pending, and its communicator has been freed");
	}
	return receive;
}

static void note_met(void *to, const char *call, const char *on, const char *why, const char *remedy) {
	(void)to;
	(void)remedy;
	hfm_answer_note(call, on, why);
}

static void answer(void) {
	uint64_t receives = 0;
	if (!hfm_drain_begins()) {
		return; /* a later call will */
	}
	hfm_answer_begins();
	hfm_track_all();
	for (size_t i = 0; i < hfm_requests.room; i++) {
		const struct hfm_request *r = hfm_requests.values[i];
		receives += r != NULL && r->active && note_pending(r);
	}
	each_met(note_met, NULL);
	hfm_answer_ends(receives);
	hfm_drain_ends();
}
