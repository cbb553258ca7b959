/* body.c - the layer's part of the program's calls, for one ABI: compiled once for each, with HFM_ABI as the name of
 * its header. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HFM_BODY
typedef intptr_t MPI_Aint;
typedef int64_t MPI_Count, MPI_Offset;
typedef int MPI_Fint;
typedef int MPI_Datarep_extent_function(void *, MPI_Aint *, void *);
typedef void MPI_Datarep_conversion_function(void *);
typedef void MPI_Datarep_conversion_function_c(void *);
typedef void MPI_Win_errhandler_function(void *);
typedef void MPI_Win_delete_attr_function(void *);
typedef void MPI_Win_copy_attr_function(void *);
typedef void MPI_Session_errhandler_function(void *);
typedef void MPI_File_errhandler_function(void *);
typedef void MPI_Grequest_query_function(void *);
typedef void MPI_Grequest_free_function(void *);
typedef void MPI_Grequest_cancel_function(void *);
#include HFM_ABI
typedef int MPI_Comm_copy_attr_function(MPI_Comm, int, void *, void *, void *, int *);
typedef int MPI_Comm_delete_attr_function(MPI_Comm, int, void *, void *);
#include "layer.h"

#define REAL(name) REAL_OF(name)
#define REAL_OF(name) ((hfm_##name##_fn *)hfm_real[HFM_##name])
#define HFM_BODIES HFM_NAME(hfm_bodies)
#define WORD(handle) ((uint64_t)(uintptr_t)(handle))
#define HANDLE(type, word) ((type)(uintptr_t)(word))
#define MPI_SUCCESS 0

_Static_assert(sizeof(MPI_Status) <= sizeof((struct hfm_request){ 0 }.status), "room for a status");

/* Of this rank alone: a message from the mailbox comes to the program's receive by way of it, so that the library makes
 * status, request and error as for any other. */
static MPI_Comm loop;

/* Of the world. Open MPI makes communicators of some ranks by messages on the communicator that the program names, with
 * its tag: a drain would take them, so they go here. MPICH has its own context for them, and crashes here. */
static MPI_Comm hidden;

/* Of the world: messages between the layers of two ranks. */
static MPI_Comm aside;

/* A receive on the loop that never ends: see note_complete. */
static MPI_Request never;

/* One message at a time is on its way there. */
static pthread_mutex_t loop_mutex = PTHREAD_MUTEX_INITIALIZER;

static inline void loop_lock(void) {
	if (hfm_threads) {
		pthread_mutex_lock(&loop_mutex);
	}
}

static inline void loop_unlock(void) {
	if (hfm_threads) {
		pthread_mutex_unlock(&loop_mutex);
	}
}

/* The communicator of the last call is that of the next one, most likely. */
HFM_INLINE struct hfm_comm *comm_of(MPI_Comm comm) {
	if (HFM_LIKELY(hfm_last.handle == WORD(comm))) { /* never with several threads */
		return hfm_last.comm;
	}
	struct hfm_comm *c = hfm_get(&hfm_comms, WORD(comm));
	if (c != NULL && !hfm_threads) {
		hfm_last.handle = WORD(comm);
		hfm_last.comm = c;
	}
	return c;
}

/* peer is where the count of a member is, or an unused place. */
HFM_INLINE uint64_t *peer(uint64_t *counts, const struct hfm_comm *c, int rank) {
	static uint64_t nowhere;
	return c != NULL && rank >= 0 && rank < c->size ? &counts[c->world[rank]] : &nowhere;
}

HFM_INLINE void count(uint64_t *n, uint64_t by) {
	if (HFM_LIKELY(!hfm_threads)) { /* without the price of a locked add: nobody else writes */
		__atomic_store_n(n, *n + by, __ATOMIC_RELAXED);
	} else {
		__atomic_fetch_add(n, by, __ATOMIC_RELAXED);
	}
}

/* count_alone is count where the rank has one thread. */
HFM_INLINE void count_alone(uint64_t *n, uint64_t by) { __atomic_store_n(n, *n + by, __ATOMIC_RELAXED); }

/* consumed reports whether a receive that ended with rc took a message out of the network. */
HFM_INLINE bool consumed(int rc) {
	int class = MPI_SUCCESS;
	return HFM_LIKELY(rc == MPI_SUCCESS) || (REAL(Error_class)(rc, &class) == MPI_SUCCESS && class == MPI_ERR_TRUNCATE);
}

static inline void count_received(const struct hfm_comm *c, const MPI_Status *st, int rc) {
	if (c != NULL && st->MPI_SOURCE != MPI_PROC_NULL && consumed(rc)) {
		count(peer(hfm_received, c, st->MPI_SOURCE), 1);
	}
}

static struct hfm_mail *given(struct hfm_mail *m);

HFM_INLINE struct hfm_mail *mail_in(struct hfm_comm *c, int source, int tag, bool take) {
	if (c == NULL || __atomic_load_n(&c->mails, __ATOMIC_RELAXED) == 0) {
		return NULL;
	}
	struct hfm_mail *m = hfm_find_mail(c, source, tag, MPI_ANY_SOURCE, MPI_ANY_TAG, take);
	return take ? given(m) : m;
}

HFM_INLINE struct hfm_mail *mail_for(MPI_Comm comm, int source, int tag, bool take) {
	return mail_in(comm_of(comm), source, tag, take);
}

/* raise has the error handler of a communicator called for an error that the loop returned. */
static int raise_on(MPI_Comm comm, int rc) {
	if (rc != MPI_SUCCESS) {
		REAL(Comm_call_errhandler)(comm, rc);
	}
	return rc;
}

/* handler_of returns the communicator whose handler has the errors of a request that the library has on the loop. One
 * that was freed has none any more. */
static MPI_Comm handler_of(const struct hfm_request *r) {
	return r->comm->freed ? MPI_COMM_WORLD : HANDLE(MPI_Comm, r->comm->handle);
}

static void set_status(MPI_Status *st, const struct hfm_mail *m) {
	if (st != MPI_STATUS_IGNORE) {
		REAL(Status_set_elements)(st, MPI_PACKED, (int)m->bytes);
		REAL(Status_set_cancelled)(st, 0);
		st->MPI_SOURCE = m->source;
		st->MPI_TAG = m->tag;
	}
}

/* A send that the program takes for complete. */
struct packed {
	struct packed *next;
	MPI_Request request;
	char data[];
};

static struct packed *packed_sends;

/* end_packed frees those that have ended; at the end it waits for all. */
static void end_packed(bool end) {
	for (struct packed **at = &packed_sends, *p; (p = *at) != NULL;) {
		int flag = end;
		if (end) {
			REAL(Wait)(&p->request, MPI_STATUS_IGNORE);
		} else {
			REAL(Test)(&p->request, &flag, MPI_STATUS_IGNORE);
		}
		if (flag) {
			*at = p->next;
			free(p);
		} else {
			at = &p->next;
		}
	}
}

/* The library's handle for all sends, and for all collectives, that are over when they are started; 0: each request has
 * its own. Such a request is not tracked, as the handle is that of others too. */
static uint64_t shared_handles[2];

static bool over_at_once(MPI_Request request) {
	return WORD(request) == shared_handles[0] || WORD(request) == shared_handles[1];
}

/* The newest sends that were not over at once, by handle: a call that waits for one names the receiver. They are not
 * tracked, as most are complete when the program asks. */
static struct begun {
	uint64_t handle;
	struct hfm_wait wait;
} begun_sends[256];

static bool begun_any;

static struct begun *begun_at(MPI_Request request) {
	const uint64_t w = WORD(request);
	return &begun_sends[(w ^ w >> 7 ^ w >> 26) % (sizeof begun_sends / sizeof *begun_sends)];
}

static void note_begun(MPI_Request request, const struct hfm_comm *c, int dest, int tag) {
	struct begun *b = begun_at(request);
	begun_any = true;
	b->handle = WORD(request);
	b->wait = hfm_wait_for(c, dest, tag, HFM_WAIT_SEND);
}

/* request_of returns the request of a handle, or NULL. A plain receive comes to the table for it. */
HFM_INLINE struct hfm_request *request_of(MPI_Request request) {
	struct hfm_plain *p = hfm_plains_n > 0 ? hfm_plain_of(WORD(request)) : NULL;
	return p != NULL ? hfm_track(p) : hfm_get(&hfm_requests, WORD(request));
}

/* note_plain notes a plain receive, if there is a place for it. */
HFM_INLINE bool note_plain(
	struct hfm_comm *c, MPI_Request request, void *buf, long n, MPI_Datatype type, int source, int tag) {
	const uint64_t handle = WORD(request);
	struct hfm_plain *p = hfm_plain_place(handle);
	if (p->comm != NULL || (hfm_requests.used > 0 && hfm_get(&hfm_requests, handle) != NULL)) {
		return false;
	}
	hfm_plains_n++;
	*p = (struct hfm_plain){ c, handle, ++hfm_order, WORD(type), buf, n, source, tag };
	return true;
}

static struct hfm_request *track(enum hfm_kind kind, enum hfm_call call, struct hfm_comm *c, MPI_Request request) {
	struct hfm_request *r = hfm_new_request(kind, call, c, WORD(request));
	hfm_put(&hfm_requests, r->handle, r);
	return r;
}

/* hfm_begin_collective begins a blocking collective of a communicator, a file or a window. */
static struct hfm_comm *hfm_begin_collective(enum hfm_call call, struct hfm_comm *c) {
	if (c != NULL) {
		if (hfm_threads) {
			hfm_may_enter(c);
		}
		count(hfm_entered(c), 1);
		const struct hfm_here h = hfm_here();
		hfm_blocks(h, call, c, HFM_CALL_COLLECTIVE);
		hfm_wait_begins(h);
	}
	return c;
}

static void hfm_end_collective(struct hfm_comm *c, int rc) {
	if (c != NULL && rc != MPI_SUCCESS) { /* refused by the library, as far as one can tell */
		count(hfm_entered(c), (uint64_t)-1);
	}
	hfm_leave();
}

/* hfm_started notes an operation that goes on by itself. */
static void hfm_started(enum hfm_kind kind, enum hfm_call call, struct hfm_comm *c, int rc, MPI_Request *request) {
	if (rc == MPI_SUCCESS && c != NULL && *request != MPI_REQUEST_NULL) {
		if (!over_at_once(*request)) {
			track(kind, call, c, *request)->active = kind != HFM_PERSISTENT_COLLECTIVE;
		}
		count(hfm_entered(c), kind == HFM_COLLECTIVE);
	}
	hfm_leave();
}

/* Wildcards as the page has them. */
HFM_INLINE int any_source(int source) { return source == MPI_ANY_SOURCE ? -1 : source; }
HFM_INLINE int any_tag(int tag) { return tag == MPI_ANY_TAG ? -1 : tag; }

/* blocks_on publishes a call that waits for one message, or for the taker of one. */
HFM_INLINE void blocks_on(enum hfm_call call, const struct hfm_comm *c, int rank, int tag, unsigned flags) {
	const struct hfm_here h = hfm_here();
	hfm_blocks(h, call, c, 0);
	hfm_waits(h, c, rank, tag, flags);
	hfm_wait_begins(h);
}

/* posted notes a receive that a checkpoint may have had pending. */
HFM_INLINE void posted(const struct hfm_comm *c, int source, int tag) {
	if (hfm_unposted != NULL && c != NULL) {
		hfm_posted(c->name, any_source(source), any_tag(tag));
	}
}

/* track_receive notes a receive that has been posted. m: the mailbox serves it, and it was posted on the loop, which
 * its message has come by. */
static struct hfm_request *track_receive(enum hfm_call call, struct hfm_comm *c, const struct hfm_mail *m,
	MPI_Request request, void *buf, long n, MPI_Datatype type, int source, int tag) {
	struct hfm_request *r = track(HFM_RECEIVE, call, c, request);
	r->source = source;
	r->tag = tag;
	r->active = true;
	r->buffer = buf;
	r->count = n;
	r->datatype = WORD(type);
	if (m != NULL) {
		r->counted = r->mail = true;
		r->mail_source = m->source;
		r->mail_tag = m->tag;
	}
	return r;
}

/* finish waits for a send that the call has started, where a rank has several threads. A test of one that is over would
 * look for messages first. */
static int finish(MPI_Request *request) {
	int flag = 0, rc;
	if (over_at_once(*request)) {
		return REAL(Wait)(request, MPI_STATUS_IGNORE);
	}
	while ((rc = REAL(Test)(request, &flag, MPI_STATUS_IGNORE)) == MPI_SUCCESS && !flag) {
		hfm_pause(false);
	}
	return rc;
}

static int end_one(enum hfm_call call, MPI_Request *request, int *flag, MPI_Status *status);

/* MPICH raises the error of a receive on the world when the layer asks for its end, of which the program is yet to be
 * told. hush keeps the program's handler from that, until unhush. */
static MPI_Errhandler hush(void) {
	MPI_Errhandler handler = MPI_ERRORS_RETURN;
	if (!HFM_REQUESTS_RAISE && hfm_requests.used + hfm_plains_n > 0) {
		REAL(Comm_get_errhandler)(MPI_COMM_WORLD, &handler);
		REAL(Comm_set_errhandler)(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	}
	return handler;
}

static void unhush(MPI_Errhandler handler) {
	if (handler != MPI_ERRORS_RETURN) {
		REAL(Comm_set_errhandler)(MPI_COMM_WORLD, handler);
		REAL(Errhandler_free)(&handler);
	}
}

/* pack_from is MPI_Pack, also of absolute addresses: MPICH refuses MPI_BOTTOM. */
static int pack_from(const void *buf, int n, MPI_Datatype type, void *out, int room, int *at, MPI_Comm comm) {
	if (buf != NULL) {
		return REAL(Pack)(buf, n, type, out, room, at, comm);
	}
	const MPI_Aint from = -(MPI_Aint)(uintptr_t)out;
	MPI_Datatype here;
	int rc = REAL(Type_create_hindexed)(1, &n, &from, type, &here);
	if (rc == MPI_SUCCESS) {
		REAL(Type_commit)(&here);
		rc = REAL(Pack)(out, 1, here, out, room, at, comm);
		REAL(Type_free)(&here);
	}
	return rc;
}

#include "sync.inc.h"

/* Rare cases stay out of the functions that are called most. */
#define SLOW static __attribute__((noinline))

#define COUNT int
#define C(name) name
#include "counts.inc.h"
#include "isendrecv.inc.h"
#undef COUNT
#undef C
#define COUNT MPI_Count
#define C(name) name##_c
#include "counts.inc.h"
#include "isendrecv.inc.h"

#include "complete.inc.h"
#include "files.inc.h"
#include "windows.inc.h"
#include "drain.inc.h"
#include "save.inc.h"
#include "watch.inc.h"
#include "comms.inc.h"
#include "mpi-classes.gen.h"
