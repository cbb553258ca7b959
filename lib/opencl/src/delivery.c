/* What the server sends by itself: bytes of reads that do not block, and news of events. One thread receives, and
   never waits for anything else; another one runs the program's call-backs, which may call the API. */
#include "hfcl.h"

#include <signal.h>

struct job {
	struct job *next;
	void (*call)(void *);
	void *data;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	cl_event pending;   /* reads whose bytes have not come */
	uint64_t delivered; /* how many have */
	bool ended;
	struct job *first, **last; /* of call-backs */
	pthread_cond_t work;
} inbox = { .lock = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
	.last = &inbox.first,
	.work = PTHREAD_COND_INITIALIZER };

/* hfcl_expect announces a read whose bytes come by themselves; it holds a reference to the event. */
void hfcl_expect(cl_event e) {
	hfcl_retain(e);
	pthread_mutex_lock(&inbox.lock);
	e->next_pending = inbox.pending;
	inbox.pending = e;
	pthread_mutex_unlock(&inbox.lock);
}

/* unlink takes an event out of the list; the lock is held. */
static bool unlink_pending(cl_event e) {
	for (cl_event *at = &inbox.pending; *at != NULL; at = &(*at)->next_pending) {
		if (*at == e) {
			*at = e->next_pending;
			return true;
		}
	}
	return false;
}

bool hfcl_unexpect(cl_event e) {
	pthread_mutex_lock(&inbox.lock);
	bool was = unlink_pending(e);
	pthread_cond_broadcast(&inbox.changed);
	pthread_mutex_unlock(&inbox.lock);
	if (was) {
		cl_mem shown = e->shown;
		e->shown = NULL;
		clReleaseEvent(e);
		if (shown != NULL) {
			clReleaseMemObject(shown);
		}
	}
	return was;
}

/* hfcl_await returns when so many deliveries have arrived, which the server has sent already. */
void hfcl_await(uint64_t deliveries) {
	int before = hfcl_no_cancel();
	pthread_mutex_lock(&inbox.lock);
	while (inbox.delivered < deliveries && !inbox.ended) {
		pthread_cond_wait(&inbox.changed, &inbox.lock);
	}
	pthread_mutex_unlock(&inbox.lock);
	hfcl_cancel_again(before);
}

const char *hfcl_end_of(const struct rows *r) {
	return r->at + (r->slices - 1) * r->slice_pitch + (r->rows - 1) * r->row_pitch + r->row;
}

/* on_its_way is a read into this memory, NULL for none; the lock is held. */
static cl_event on_its_way(const struct rows *r) {
	cl_event e = inbox.pending;
	while (e != NULL && (e->into.at >= hfcl_end_of(r) || hfcl_end_of(&e->into) <= r->at)) {
		e = e->next_pending;
	}
	return e;
}

bool hfcl_unsettled(const struct rows *r) {
	pthread_mutex_lock(&inbox.lock);
	bool is = on_its_way(r) != NULL && !inbox.ended;
	pthread_mutex_unlock(&inbox.lock);
	return is;
}

void hfcl_settle(const struct rows *r) {
	int before = hfcl_no_cancel();
	pthread_mutex_lock(&inbox.lock);
	while (on_its_way(r) != NULL && !inbox.ended) {
		pthread_cond_wait(&inbox.changed, &inbox.lock);
	}
	pthread_mutex_unlock(&inbox.lock);
	hfcl_cancel_again(before);
}

static void release_event(void *e) { clReleaseEvent(e); }

static void release_mem(void *m) { clReleaseMemObject(m); }

/* let_go gives the receiver's reference back. Where it is the last one, a context may go with it, which calls the
   program: the other thread does that. */
static void let_go(cl_event e) {
	if (e->shown != NULL) {
		hfcl_call_later(release_mem, e->shown);
		e->shown = NULL;
	}
	cl_uint refs = atomic_load(&e->o.refs);
	while (refs > 1) {
		if (atomic_compare_exchange_weak(&e->o.refs, &refs, refs - 1)) {
			return;
		}
	}
	hfcl_call_later(release_event, e);
}

/* take_bytes takes the bytes of a read out of the memory that it shares with the server, and gives that back. */
static void take_bytes(cl_event e, cl_int status) {
	if (e->bounce == NULL) {
		return;
	}
	if (status == CL_COMPLETE) {
		hfcl_copy_rows(&e->into, e->bounce->at, false);
	}
	hfcl_give_bounce(e->bounce);
	e->bounce = NULL;
}

/* deliver takes the bytes of a read, or the news that a write has gone out of shared memory. */
static bool deliver(int fd, uint64_t number, cl_int status, uint64_t bulk) {
	pthread_mutex_lock(&inbox.lock);
	cl_event e = inbox.pending;
	while (e != NULL && e->o.id != number) {
		e = e->next_pending;
	}
	pthread_mutex_unlock(&inbox.lock);
	bool shared = e != NULL && e->bounce != NULL;
	if (e == NULL || (bulk != 0 && (shared || bulk != hfcl_rows_size(&e->into))) ||
		(bulk == 0 && status == CL_COMPLETE && !shared)) {
		return false;
	}
	if (bulk != 0 && !hfcl_receive_rows(fd, &e->into)) {
		return false;
	}
	take_bytes(e, status);
	hfcl_finish_event(e, status);
	pthread_mutex_lock(&inbox.lock);
	unlink_pending(e);
	inbox.delivered++;
	pthread_cond_broadcast(&inbox.changed);
	pthread_mutex_unlock(&inbox.lock);
	let_go(e);
	return true;
}

/* take_one receives one message of the server. */
static bool take_one(int fd) {
	uint8_t head[HFCL_HEADER_BYTES], body[20];
	uint32_t n, op;
	uint64_t bulk, watch, event;
	cl_int status;
	if (!hfcl_receive(fd, head, sizeof head)) {
		return false;
	}
	memcpy(&n, head, 4);
	memcpy(&op, head + 4, 4);
	memcpy(&bulk, head + 8, 8);
	if (n != sizeof body || !hfcl_receive(fd, body, n)) {
		return false;
	}
	memcpy(&watch, body, 8);
	memcpy(&event, body + 8, 8);
	memcpy(&status, body + 16, 4);
	if (op == HFCL_DELIVERY) {
		return deliver(fd, event, status, bulk);
	}
	if (op == HFCL_LOST && bulk == 0) {
		hfcl_lose_device(watch);
		hfcl_tell_contexts();
		return true;
	}
	if (op != HFCL_NOTE || bulk != 0) {
		return false;
	}
	hfcl_noted(watch, event, status);
	return true;
}

static void *receive(void *arg) {
	int fd = *(int *)arg;
	while (take_one(fd)) {
	}
	/* nothing comes any more: whoever waits gets an error, from its own lane or here */
	hfcl_lose();
	hfcl_ring_end();
	pthread_mutex_lock(&inbox.lock);
	inbox.ended = true;
	cl_event left = inbox.pending;
	inbox.pending = NULL;
	pthread_cond_broadcast(&inbox.changed);
	pthread_mutex_unlock(&inbox.lock);
	while (left != NULL) {
		cl_event next = left->next_pending;
		take_bytes(left, CL_DEVICE_NOT_AVAILABLE);
		hfcl_finish_event(left, CL_DEVICE_NOT_AVAILABLE);
		let_go(left);
		left = next;
	}
	hfcl_noted(0, 0, CL_DEVICE_NOT_AVAILABLE);
	hfcl_tell_contexts();
	return NULL;
}

static void *run_jobs(void *unused) {
	(void)unused;
	for (;;) {
		pthread_mutex_lock(&inbox.lock);
		while (inbox.first == NULL) {
			pthread_cond_wait(&inbox.work, &inbox.lock);
		}
		struct job *j = inbox.first;
		inbox.first = j->next;
		if (inbox.first == NULL) {
			inbox.last = &inbox.first;
		}
		pthread_mutex_unlock(&inbox.lock);
		j->call(j->data);
		free(j);
	}
	return NULL;
}

/* hfcl_call_later runs a call-back on the library's thread; without memory for that, here. */
void hfcl_call_later(void (*call)(void *), void *data) {
	struct job *j = malloc(sizeof *j);
	if (j == NULL) {
		call(data);
		return;
	}
	*j = (struct job){ NULL, call, data };
	pthread_mutex_lock(&inbox.lock);
	*inbox.last = j;
	inbox.last = &j->next;
	pthread_cond_signal(&inbox.work);
	pthread_mutex_unlock(&inbox.lock);
}

bool hfcl_thread(void *(*run)(void *), void *data) {
	pthread_t t;
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool ok = pthread_create(&t, NULL, run, data) == 0;
	if (ok) {
		pthread_detach(t);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ok;
}

/* hfcl_listen starts the two threads. */
bool hfcl_listen(int fd) {
	static int control;
	control = fd;
	return hfcl_thread(receive, &control) && hfcl_thread(run_jobs, NULL);
}
