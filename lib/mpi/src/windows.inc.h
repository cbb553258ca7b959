/* windows.inc.h - windows of one-sided communication: collectives on them count as those of a communicator, and a
 * checkpoint needs to know the open epochs. */

static inline struct hfm_comm *window_of(MPI_Win win) { return hfm_get(&hfm_windows, WORD(win)); }

static void hfm_made_window(struct hfm_comm *c, enum hfm_call how, MPI_Win *win, int rc) {
	uint64_t number = c != NULL ? ++c->windows : 0;
	if (rc == MPI_SUCCESS && c != NULL) {
		hfm_new_object(&hfm_windows, c, 'w', number, how, WORD(*win), "");
	}
	hfm_end_collective(c, MPI_SUCCESS);
}

static int hfm_Win_free(MPI_Win *win) {
	if (!hfm_enter(HFM_Win_free)) {
		return REAL(Win_free)(win);
	}
	struct hfm_comm *w = hfm_begin_collective(HFM_Win_free, window_of(*win));
	hfm_step_out();
	int rc = REAL(Win_free)(win);
	hfm_step_in();
	if (rc == MPI_SUCCESS && w != NULL) {
		hfm_free_object(&hfm_windows, w);
		w = NULL;
	}
	hfm_end_collective(w, MPI_SUCCESS);
	return rc;
}

static int hfm_Win_fence(int assert, MPI_Win win) {
	if (!hfm_enter(HFM_Win_fence)) {
		return REAL(Win_fence)(assert, win);
	}
	struct hfm_comm *w = hfm_begin_collective(HFM_Win_fence, window_of(win));
	hfm_step_out();
	int rc = REAL(Win_fence)(assert, win);
	hfm_step_in();
	if (rc == MPI_SUCCESS && w != NULL) {
		w->epochs.fenced = HFM_CALLS;
	}
	hfm_end_collective(w, MPI_SUCCESS);
	return rc;
}

/* hfm_accesses notes an operation. One that no lock and no MPI_Win_start covers is of the fence. */
static void hfm_accesses(enum hfm_call call, struct hfm_comm *w) {
	if (w != NULL && w->epochs.locks == 0 && !w->epochs.lock_all && !w->epochs.started) {
		w->epochs.fenced = call;
	}
}

/* A call that may wait for any other member. then is the state after it. */
#define SYNCHRONIZE(name, params, args, then)  \
	static int hfm_##name params {             \
		if (!hfm_enter(HFM_##name)) {          \
			return REAL(name) args;            \
		}                                      \
		struct hfm_comm *w = window_of(win);   \
		const struct hfm_here h = hfm_here();  \
		hfm_blocks(h, HFM_##name, w, 0);       \
		hfm_waits(h, w, -1, -1, 0);            \
		hfm_wait_begins(h);                    \
		hfm_step_out();                        \
		int rc = REAL(name) args;              \
		hfm_step_in();                         \
		if (rc == MPI_SUCCESS && w != NULL) {  \
			struct hfm_epochs *e = &w->epochs; \
			(void)e;                           \
			then;                              \
		}                                      \
		hfm_leave();                           \
		return rc;                             \
	}

SYNCHRONIZE(Win_lock, (int type, int rank, int assert, MPI_Win win), (type, rank, assert, win), e->locks++)
SYNCHRONIZE(Win_unlock, (int rank, MPI_Win win), (rank, win), e->locks--)
SYNCHRONIZE(Win_lock_all, (int assert, MPI_Win win), (assert, win), e->lock_all = true)
SYNCHRONIZE(Win_unlock_all, (MPI_Win win), (win), e->lock_all = false)
SYNCHRONIZE(Win_flush, (int rank, MPI_Win win), (rank, win), )
SYNCHRONIZE(Win_flush_all, (MPI_Win win), (win), )
SYNCHRONIZE(Win_flush_local, (int rank, MPI_Win win), (rank, win), )
SYNCHRONIZE(Win_flush_local_all, (MPI_Win win), (win), )
SYNCHRONIZE(Win_start, (MPI_Group group, int assert, MPI_Win win), (group, assert, win), e->started = true)
SYNCHRONIZE(Win_complete, (MPI_Win win), (win), e->started = false)
SYNCHRONIZE(Win_post, (MPI_Group group, int assert, MPI_Win win), (group, assert, win), e->posted = true)
SYNCHRONIZE(Win_wait, (MPI_Win win), (win), e->posted = false)
#undef SYNCHRONIZE

static int hfm_Win_test(MPI_Win win, int *flag) {
	if (!hfm_enter(HFM_Win_test)) {
		return REAL(Win_test)(win, flag);
	}
	struct hfm_comm *w = window_of(win);
	int rc = REAL(Win_test)(win, flag);
	if (rc == MPI_SUCCESS && w != NULL && *flag) {
		w->epochs.posted = false;
	} else if (rc == MPI_SUCCESS) {
		hfm_polled(w, -1, -1);
	}
	hfm_leave();
	return rc;
}

/* flush_windows completes operations under MPI_Win_lock_all, which programs hold for ever. */
static const char *flush_windows(void) {
	static char text[200];
	for (size_t i = 0; i < hfm_windows.room; i++) {
		const struct hfm_comm *w = hfm_windows.values[i];
		if (w == NULL || !w->epochs.lock_all) {
			continue;
		}
		MPI_Win win = HANDLE(MPI_Win, w->handle);
		int rc = REAL(Win_flush_all)(win), late = REAL(Win_sync)(win);
		if (rc != MPI_SUCCESS || late != MPI_SUCCESS) {
			snprintf(text, sizeof text, "MPI_Win_flush_all on the window %s fails", w->name);
			return text;
		}
	}
	return NULL;
}

/* A rank's MPI calls before its memory is saved, and when all have stopped. */
static uint64_t to_sync(void) {
	uint64_t n = 0;
	for (size_t i = 0; i < hfm_files.room; i++) {
		n += to_write(hfm_files.values[i]);
	}
	for (size_t i = 0; i < hfm_windows.room; i++) {
		const struct hfm_comm *w = hfm_windows.values[i];
		n += w != NULL && w->epochs.lock_all;
	}
	return n;
}

static const char *sync_all(uint32_t busy) {
	if (!hfm_on || hfm_within != NULL) {
		return "MPI is not in use, or the call comes from within it";
	}
	hfm_within = HFM_HERE;
	const char *why = flush_windows(), *late = sync_files(busy != 0);
	hfm_within = NULL;
	return why != NULL ? why : late;
}
