/* Reads whose bytes come by themselves, and have not come. */
#include "hfcl.h"

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	cl_event first;
	bool ended;
} pending = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* hfcl_expect announces a read; the list holds a reference to its event. */
void hfcl_expect(cl_event e) {
	hfcl_retain(e);
	pthread_mutex_lock(&pending.lock);
	e->next_pending = pending.first;
	pending.first = e;
	pthread_mutex_unlock(&pending.lock);
}

/* unlink takes an event out of the list; the lock is held. */
static bool unlink_pending(cl_event e) {
	for (cl_event *at = &pending.first; *at != NULL; at = &(*at)->next_pending) {
		if (*at == e) {
			*at = e->next_pending;
			return true;
		}
	}
	return false;
}

bool hfcl_unexpect(cl_event e) {
	pthread_mutex_lock(&pending.lock);
	bool was = unlink_pending(e);
	pthread_cond_broadcast(&pending.changed);
	pthread_mutex_unlock(&pending.lock);
	return was;
}

cl_event hfcl_expected(uint64_t number) {
	pthread_mutex_lock(&pending.lock);
	cl_event e = pending.first;
	while (e != NULL && e->o.id != number) {
		e = e->next_pending;
	}
	pthread_mutex_unlock(&pending.lock);
	return e;
}

cl_event hfcl_expect_no_more(void) {
	pthread_mutex_lock(&pending.lock);
	pending.ended = true;
	cl_event left = pending.first;
	pending.first = NULL;
	pthread_cond_broadcast(&pending.changed);
	pthread_mutex_unlock(&pending.lock);
	return left;
}

/* on_its_way is a read into this memory, NULL for none; the lock is held. */
static cl_event on_its_way(const struct rows *r) {
	cl_event e = pending.first;
	while (e != NULL && (e->into.at >= hfcl_end_of(r) || hfcl_end_of(&e->into) <= r->at)) {
		e = e->next_pending;
	}
	return e;
}

bool hfcl_reads_pending(const struct rows *r) {
	pthread_mutex_lock(&pending.lock);
	bool is = on_its_way(r) != NULL && !pending.ended;
	pthread_mutex_unlock(&pending.lock);
	return is;
}

void hfcl_wait_for_reads(const struct rows *r) {
	int before = hfcl_no_cancel();
	pthread_mutex_lock(&pending.lock);
	while (on_its_way(r) != NULL && !pending.ended) {
		pthread_cond_wait(&pending.changed, &pending.lock);
	}
	pthread_mutex_unlock(&pending.lock);
	hfcl_cancel_again(before);
}
