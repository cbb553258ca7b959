/* layer.h - the layer's knowledge of a rank: its communicators, requests, mailboxes, and counts of messages. Nothing
 * here depends on which MPI the program has: handles are words. */
#ifndef HFM_LAYER_H
#define HFM_LAYER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../common/messages.h"
#include "mpi-api.gen.h"

#define HFM_EXPORT __attribute__((visibility("default")))
#define HFM_LIKELY(x) __builtin_expect(!!(x), 1)

/* All that follows is the layer's own: the compiler need not look for it by way of the loader's table. */
#pragma GCC visibility push(hidden)

/* Each call of the program passes it: the compiler would call it, as there are many. */
#define HFM_INLINE static inline __attribute__((always_inline))

/* A function of any type; it is called as its own type. */
typedef void hfm_function(void);

/* The functions of the MPI library, and the targets of the program's calls of MPI_ and PMPI_ names: the layer's body or
 * the library itself. NULL until the first call, and if the library has no such function. */
extern hfm_function *hfm_real[HFM_CALLS], *hfm_inner[HFM_CALLS], *hfm_outer[HFM_CALLS];
extern const char *const hfm_names[HFM_CALLS];
extern void *hfm_symbols[9]; /* of Open MPI, in the order of abi-openmpi.h */
hfm_function *hfm_resolve(hfm_function **table, enum hfm_call call);

/* hfm_passed_by reports whether MPI is initialized, and not through the layer: by functions that dlsym has found in
 * MPI's library, as from Julia. */
bool hfm_passed_by(void);

/* One body for each ABI. */
extern hfm_function *const hfm_bodies_openmpi[HFM_CALLS], *const hfm_bodies_mpich[HFM_CALLS],
															  *const hfm_bodies_standard[HFM_CALLS];

/* The call of MPI that the thread is in, by where its stack is; NULL: none. A call within it is one of the program's,
 * of a call-back, or one that MPI makes by itself: its caller tells. */
extern __thread const char *hfm_within __attribute__((tls_model("initial-exec")));
extern __thread const void *hfm_caller __attribute__((tls_model("initial-exec")));

HFM_INLINE void hfm_note_caller(const void *caller) {
	if (!HFM_LIKELY(hfm_within == NULL)) {
		hfm_caller = caller;
	}
}

#define HFM_HERE ((const char *)__builtin_frame_address(0))

/* The exported functions. Arguments pass as words, whatever their types are: a body or the library takes them by their
 * real types. A call that looks for the function is one of its own, so that the others are a jump. */
#define HFM_ENTRY_BY(prefix, table, name, params, types, args)                                \
	HFM_EXPORT long prefix##_##name params;                                                   \
	static __attribute__((noinline, cold)) long first_##prefix##_##name params {              \
		return ((long(*) types)hfm_resolve(table, HFM_##name))args;                           \
	}                                                                                         \
	long prefix##_##name params {                                                             \
		hfm_note_caller(__builtin_return_address(0));                                         \
		hfm_function *go_on = __atomic_load_n(&table[HFM_##name], __ATOMIC_ACQUIRE);          \
		return HFM_LIKELY(go_on) ? ((long(*) types)go_on)args : first_##prefix##_##name args; \
	}
#define HFM_ENTRY(name, params, types, args)                \
	HFM_ENTRY_BY(MPI, hfm_outer, name, params, types, args) \
	HFM_ENTRY_BY(PMPI, hfm_inner, name, params, types, args)
#define HFM_W1 long a
#define HFM_W2 HFM_W1, long b
#define HFM_W3 HFM_W2, long c
#define HFM_W4 HFM_W3, long d
#define HFM_W5 HFM_W4, long e
#define HFM_W6 HFM_W5, long f
#define HFM_W7 HFM_W6, long g
#define HFM_W8 HFM_W7, long h
#define HFM_W9 HFM_W8, long i
#define HFM_W10 HFM_W9, long j
#define HFM_W11 HFM_W10, long k
#define HFM_W12 HFM_W11, long l
#define HFM_W13 HFM_W12, long m
#define HFM_ENTRY_0(name) HFM_ENTRY(name, (void), (void), ())
#define HFM_ENTRY_1(name) HFM_ENTRY(name, (HFM_W1), (HFM_W1), (a))
#define HFM_ENTRY_2(name) HFM_ENTRY(name, (HFM_W2), (HFM_W2), (a, b))
#define HFM_ENTRY_3(name) HFM_ENTRY(name, (HFM_W3), (HFM_W3), (a, b, c))
#define HFM_ENTRY_4(name) HFM_ENTRY(name, (HFM_W4), (HFM_W4), (a, b, c, d))
#define HFM_ENTRY_5(name) HFM_ENTRY(name, (HFM_W5), (HFM_W5), (a, b, c, d, e))
#define HFM_ENTRY_6(name) HFM_ENTRY(name, (HFM_W6), (HFM_W6), (a, b, c, d, e, f))
#define HFM_ENTRY_7(name) HFM_ENTRY(name, (HFM_W7), (HFM_W7), (a, b, c, d, e, f, g))
#define HFM_ENTRY_8(name) HFM_ENTRY(name, (HFM_W8), (HFM_W8), (a, b, c, d, e, f, g, h))
#define HFM_ENTRY_9(name) HFM_ENTRY(name, (HFM_W9), (HFM_W9), (a, b, c, d, e, f, g, h, i))
#define HFM_ENTRY_10(name) HFM_ENTRY(name, (HFM_W10), (HFM_W10), (a, b, c, d, e, f, g, h, i, j))
#define HFM_ENTRY_11(name) HFM_ENTRY(name, (HFM_W11), (HFM_W11), (a, b, c, d, e, f, g, h, i, j, k))
#define HFM_ENTRY_12(name) HFM_ENTRY(name, (HFM_W12), (HFM_W12), (a, b, c, d, e, f, g, h, i, j, k, l))
#define HFM_ENTRY_13(name) HFM_ENTRY(name, (HFM_W13), (HFM_W13), (a, b, c, d, e, f, g, h, i, j, k, l, m))

/* hfm_need ends the program where memory that it cannot do without is NULL, and returns it. */
void *hfm_need(void *p);

/* A drained message, of packed bytes. */
struct hfm_mail {
	struct hfm_mail *next;
	struct hfm_unposted *unposted; /* the receive that had it at the checkpoint */
	uint32_t receive;              /* its number, from 1, while a record is read */
	uint64_t message;              /* not 0: MPI has its bytes yet, under this handle; it is matched */
	uint64_t order; /* not 0: that of its synchronous send, by which the sender is told that it was received */
	int from;       /* world rank of that sender */
	uint64_t arrived;
	int source, tag;
	size_t bytes;
	char data[];
};

/* This rank's rights to a window, or others' to its part. */
struct hfm_epochs {
	int locks;            /* held */
	bool lock_all;        /* is held */
	bool started, posted; /* MPI_Win_start, MPI_Win_post */
	enum hfm_call fenced; /* an operation since the last MPI_Win_fence, or HFM_CALLS */
};

/* The ranks that take part in collectives: the members of a communicator, whose messages are counted and drained, or of
 * a file or a window. */
struct hfm_comm {
	struct hfm_comm *next; /* in order of creation; of a communicator only */
	uint64_t handle;
	char *name;
	int rank, size;
	int *world;         /* world ranks of the members; of an intercommunicator those of the remote group */
	int all;            /* members, in both groups */
	int leader;         /* world rank of one of them, the same on all */
	int slot;           /* in the page; -1: it has no room for it */
	const char *parent; /* of a file: its path */
	enum hfm_call how;  /* it was made */
	uint64_t children;
	struct hfm_group *groups; /* made on it */
	uint64_t files, windows;  /* made on it */
	enum hfm_call split;      /* the split collective that a file is in, or HFM_CALLS */
	bool writes;              /* a file is open for writing */
	struct hfm_epochs epochs; /* of a window */
	uint32_t requests;        /* that it has; a freed one lives as long as they do */
	bool freed, kept;         /* kept: among hfm_parents */
	uint32_t mails;
	struct hfm_mail *first, *last;
};

/* How many communicators some members have made on another, under a tag. */
struct hfm_group {
	struct hfm_group *next;
	char *name;
	uint64_t children;
};

enum hfm_kind {
	HFM_RECEIVE,
	HFM_PERSISTENT_RECEIVE,
	HFM_PERSISTENT_SEND,
	HFM_SYNCHRONOUS,
	HFM_COLLECTIVE,
	HFM_PERSISTENT_COLLECTIVE,
	HFM_IDUP,
	HFM_FILE,
	HFM_GENERALIZED,
	HFM_CANCELLED_SEND
};

/* A request of the program, or a message of its Mprobe. Sends are not among them, unless they are persistent,
 * synchronous or may be cancelled. */
struct hfm_request {
	uint64_t handle;
	enum hfm_kind kind;
	enum hfm_call call;
	uint64_t order; /* of posting */
	struct hfm_comm *comm;
	int source, tag; /* as the program posted it; the destination of a send */
	bool active;
	bool counted;     /* the layer has seen its end */
	bool cancelled;   /* the program wants a receive or a persistent send cancelled */
	bool mail;        /* its message was in the mailbox, came by way of the loop, and has this source and tag */
	bool taken_later; /* a synchronous send whose message is in the mailbox of its receiver */
	uint64_t number;  /* not 0: a synchronous send is under way, the so manieth of its receiver and tag */
	bool complete;    /* a persistent receive whose message was in the mailbox: status has how it ended */
	int mail_source, mail_tag, error;
	void *buffer;
	long count;             /* of its elements */
	uint64_t datatype, out; /* out: the send of the loop that a message of Mprobe comes by; the duplicate, or 0 */
	bool own_type;          /* the datatype is a copy: the program has freed its own */
	struct hfm_mail *held;
	void *newcomm;
	struct hfm_comm *child;        /* that MPI_Comm_idup makes, until it is listed */
	const struct hfm_named *named; /* while a record is made: its name of the program's protection; whether it waits */
	bool waiting;
	uint64_t status[5];
	struct hfm_request *next;
};

/* A receive of MPI_Irecv of a rank of one thread that is nothing special. Most are over when MPI_Wait or MPI_Waitall
 * has returned, and never become requests of the table: a place holds one line of the cache. */
struct hfm_plain {
	_Alignas(64) struct hfm_comm *comm; /* NULL: the place is free */
	uint64_t handle, order, datatype;
	void *buffer;
	long count;
	int source, tag;
};

enum { HFM_PLAIN_BITS = 10 };
extern struct hfm_plain hfm_plains[1 << HFM_PLAIN_BITS];
extern size_t hfm_plains_n;
extern uint64_t hfm_order; /* of posting, the last one */

HFM_INLINE struct hfm_plain *hfm_plain_place(uint64_t handle) {
	return &hfm_plains[(handle * 0x9e3779b97f4a7c15u) >> (64 - HFM_PLAIN_BITS)];
}

/* hfm_plain_of returns the plain receive of a handle, or NULL. */
HFM_INLINE struct hfm_plain *hfm_plain_of(uint64_t handle) {
	struct hfm_plain *p = hfm_plain_place(handle);
	return p->handle == handle && p->comm != NULL ? p : NULL;
}

HFM_INLINE void hfm_plain_ends(struct hfm_plain *p) {
	p->comm = NULL;
	hfm_plains_n--;
}

/* A table from handles to their objects. */
struct hfm_map {
	uint64_t *keys;
	void **values;
	size_t room, used; /* room is a power of 2, or 0 */
};

void *hfm_get(const struct hfm_map *map, uint64_t key);
void hfm_put(struct hfm_map *map, uint64_t key, void *value);
/* Only if the value is the one, unless that is NULL: the library may have given the handle to another thread. */
void *hfm_remove(struct hfm_map *map, uint64_t key, const void *which);

extern struct hfm_map hfm_comms, hfm_files, hfm_windows, hfm_requests, hfm_messages;

/* hfm_track makes a plain receive a request of the table, and hfm_track_all does so with all of them: before something
 * walks through the table. */
struct hfm_request *hfm_track(struct hfm_plain *p);
void hfm_track_all(void);

extern struct hfm_comm *hfm_first_comm;
extern struct hfm_comm *hfm_parents; /* freed ones that living ones were made on, or that have requests */
/* The communicator that a call named last. */
struct hfm_last {
	uint64_t handle;
	struct hfm_comm *comm;
};
extern struct hfm_last hfm_last;
extern struct hfm_request *hfm_orphans; /* receives that the program has freed while they were pending */
extern int hfm_rank, hfm_size;          /* of the world */
extern uint64_t *hfm_sent, *hfm_received;
extern struct hfm_page *hfm_page; /* the rank's own until it is shared */

/* hfm_new_comm makes a communicator, of which it takes name, rank, size, world, all and leader, the name as a copy. It
 * counts from now on, and hfm_list_comm lists it when it has a handle: lost is the reason why messages of a restart
 * cannot be delivered to it. hfm_drop_comm forgets one that has not been listed. */
struct hfm_comm *hfm_new_comm(const struct hfm_comm *like, const struct hfm_comm *parent, enum hfm_call how);
const char *hfm_list_comm(struct hfm_comm *c, uint64_t handle);
void hfm_drop_comm(struct hfm_comm *c);
void hfm_free_comm(struct hfm_comm *c);

/* hfm_new_object lists a file or a window of the members of a communicator: in a map, under a kind and a number. */
struct hfm_comm *hfm_new_object(struct hfm_map *map, const struct hfm_comm *on, char kind, uint64_t number,
	enum hfm_call how, uint64_t handle, const char *path);
void hfm_free_object(struct hfm_map *map, struct hfm_comm *c);
bool hfm_is_parent(const struct hfm_comm *p);
void hfm_forget_parents(void); /* those of hfm_parents on which nothing lives any more */
struct hfm_request *hfm_new_request(enum hfm_kind kind, enum hfm_call call, struct hfm_comm *c, uint64_t handle);
void hfm_free_request(struct hfm_request *r);
uint64_t hfm_next_order(void); /* of posting */
void hfm_add_mail(struct hfm_comm *c, struct hfm_mail *m);
void hfm_return_mail(struct hfm_comm *c, struct hfm_mail *m); /* it was taken, and not received */
/* hfm_find_mail takes a message out of the mailbox. Without take it stays, and the thread gets a copy without its data:
 * another thread may receive the message at once. */
struct hfm_mail *hfm_find_mail(struct hfm_comm *c, int source, int tag, int any_source, int any_tag, bool take);

/* page.c. */
void hfm_new_page(void);
void hfm_place_comm(struct hfm_comm *c);   /* gives it a slot */
void hfm_leave_slot(struct hfm_comm *c);   /* it is freed */
void hfm_forget_slots(const char *parent); /* those freed on a communicator; NULL: all */

/* A record as it is written. */
struct hfm_text {
	char *at;
	size_t bytes, room;
};

/* A restart's messages for a communicator that is not made yet. In order of creation. */
struct hfm_restored {
	struct hfm_restored *next;
	char *name, *parent, *how;
	uint64_t children;
	int *world, size;
	struct hfm_mail *first;
};

/* A receive that a checkpoint had pending, until the program posts it again, or takes the message that it had got. */
struct hfm_unposted {
	struct hfm_unposted *next;
	char *comm;
	int source, tag;
	uint32_t number; /* in the record */
	bool came, kept; /* kept: the layer posts it again */
};

/* A request that the program protects, by the variable that has its handle. */
struct hfm_named {
	struct hfm_named *next;
	char *name;
	void *variable;
	bool fortran; /* the handle is Fortran's */
};

/* A checkpoint's record of a protected request, until it is made again. In order of posting. */
struct hfm_kept {
	struct hfm_kept *next;
	char *name, *comm, *call, *array, *type;
	int peer, tag; /* as in the record */
	uint32_t flags;
	int64_t offset, count;         /* offset: of the buffer in the array */
	struct hfm_unposted *unposted; /* NULL: it was not under way */
	struct hfm_mail *mail;         /* that it had got */
};

extern struct hfm_restored *hfm_restored;
extern struct hfm_unposted *hfm_unposted;
extern struct hfm_named *hfm_named;
extern struct hfm_kept *hfm_kept;
extern const struct hf_memory *hfm_memory;
extern bool hfm_may_post; /* hf_restore is over */
extern const char *(*hfm_post)(void);
void hfm_forget_unposted(const struct hfm_unposted *which);
void hfm_forget_kept(struct hfm_kept *k);
const char *hfm_protect(const char *name, void *variable, int fortran, const struct hf_memory *memory);
bool hfm_unprotect(const char *name);
const char *hfm_post_again(void);
const struct hfm_named *hfm_named_as(const char *name);
void hfm_add(struct hfm_text *t, const void *from, size_t bytes);
void hfm_add_u32(struct hfm_text *t, uint32_t v);
void hfm_add_text(struct hfm_text *t, const char *text);
void hfm_posted(const char *comm, int source, int tag); /* the program has posted such a receive; -1 for any */
void hfm_taken(struct hfm_mail *m);                     /* the program gets the message */
const char *hfm_load(const void *record, size_t bytes);
const char *hfm_deliver(struct hfm_comm *c); /* why not, or NULL */
/* hfm_claim is the number of the child of a restart to be made next; 0: none. */
uint64_t hfm_claim(const char *parent);
/* hfm_claim_group is that of one that only its members made, whose name begins and ends so. */
uint64_t hfm_claim_group(const char *begin, const char *end);
extern bool hfm_restarted;
extern const char *hfm_refused_what, *hfm_refused_call;

/* The functions of the layer's body for libholdfast. */
extern void (*hfm_turn)(void);
extern void (*hfm_cutting)(bool begins);
extern const char *(*hfm_save)(const void **record, size_t *bytes);
extern const char *(*hfm_sync)(uint32_t busy);

/* watch.c: the node daemon of holdfast run --watch looks at the page, if there is one. */
extern struct hfm_watching *hfm_watching; /* NULL: nobody looks */
void hfm_watch(void);
void hfm_watch_ends(uint64_t how); /* as in the page */
void hfm_note_refused(const char *what, const char *call);
/* An answer: it begins, notes texts that begin with a name without MPI_, and ends. */
void hfm_answer_begins(void);
void hfm_answer_note(const char *call, const char *comm, const char *why);
void hfm_answer_ends(uint64_t receives);
HFM_EXPORT const struct hf_message_layer *hf_message_layer(void);

/* hfm_refuse notes why no checkpoint can be taken any more: the feature that the program uses, and the call. */
void hfm_refuse(const char *what, const char *call);

extern bool hfm_on;      /* between Init and Finalize */
extern bool hfm_threads; /* MPI_THREAD_MULTIPLE */
extern pthread_mutex_t hfm_mutex;

/* With several threads each call of the program holds this for reading while it looks at requests, mailboxes and
 * communicators, and a rank that drains for writing. It is given up by hfm_step_out for as long as the call waits. */
extern pthread_rwlock_t hfm_gate;

static inline void hfm_lock(void) {
	if (hfm_threads) {
		pthread_mutex_lock(&hfm_mutex);
	}
}

static inline void hfm_unlock(void) {
	if (hfm_threads) {
		pthread_mutex_unlock(&hfm_mutex);
	}
}

/* For tests: HOLDFAST_MPI_CUT=N drains before each Nth call, =rN before a call with a chance of 1 in N. */
extern uint64_t hfm_cut_every;
extern void (*hfm_drain)(void);
bool hfm_cut_now(void);
void hfm_cut_setup(void);

/* The state for calls of the program, in one word: HFM_ON between Init and Finalize, and the costlier states.
 * HFM_SENDS: synchronous ones are under way. */
enum { HFM_ON = 1, HFM_CUTS = 2, HFM_MANY_THREADS = 4, HFM_SENDS = 8 };
extern unsigned hfm_state;
extern unsigned hfm_synchronous; /* sends under way */
void hfm_set_state(void);
bool hfm_enter_slowly(const char *here);
bool hfm_enter_within(const char *here);
void hfm_leave_slowly(void);

/* The calls of the program that the thread is in, but for the innermost. */
extern __thread struct hfm_outer *hfm_outer_calls __attribute__((tls_model("initial-exec")));

/* A call that the program has left by longjmp or an exception: what it has done is not known. NULL: none. */
extern const char *hfm_left;

/* Of several threads, one begins a send. The handler of an error may begin another. */
extern pthread_mutex_t hfm_sends_mutex;

/* hfm_by_program reports whether the present call is not one that MPI makes by itself. */
bool hfm_by_program(void);

/* A thread's activity in MPI: each of several threads has a place of its own. */
struct hfm_here {
	struct hfm_call_state *state;
	struct hfm_wait *waits;
	uint32_t room;
};
struct hfm_here hfm_of_thread(void);
void hfm_first_thread(void); /* has called MPI_Init */

HFM_INLINE struct hfm_here hfm_here(void) {
	return HFM_LIKELY(hfm_state == HFM_ON) ? (struct hfm_here){ &hfm_page->state, hfm_page->waits, HFM_MOST_WAITS }
										   : hfm_of_thread();
}

/* hfm_enter begins a call of the program, and hfm_leave ends it. It is false for calls that the layer has no business
 * with. */
HFM_INLINE bool hfm_enter(enum hfm_call call) {
	(void)call;
	if (hfm_within != NULL) {
		return hfm_enter_within(HFM_HERE);
	}
	if (!HFM_LIKELY(hfm_state == HFM_ON)) {
		return hfm_enter_slowly(HFM_HERE);
	}
	hfm_within = HFM_HERE;
	return true;
}

/* hfm_inside_of begins a call that is not counted; its end sets hfm_within to what it returns. */
HFM_INLINE const char *hfm_inside_of(void) {
	const char *outer = hfm_within;
	hfm_within = HFM_HERE;
	return outer;
}

/* hfm_leave also ends a wait of hfm_wait_begins. */
HFM_INLINE void hfm_leave(void) {
	if (HFM_LIKELY(hfm_state == HFM_ON && hfm_outer_calls == NULL)) {
		const uint64_t seq = hfm_page->state.seq;
		if ((seq & 1) != 0) {
			__atomic_store_n(&hfm_page->state.seq, seq + 1, __ATOMIC_RELEASE);
		}
	} else {
		hfm_leave_slowly();
		return;
	}
	hfm_within = NULL;
}

/* hfm_quick returns the communicator that a call names, if nothing stands in the way of its shortest course; NULL: the
 * call goes the other way. */
HFM_INLINE struct hfm_comm *hfm_quick(uint64_t handle) {
	return HFM_LIKELY(hfm_within == NULL && hfm_state == HFM_ON && hfm_last.handle == handle) ? hfm_last.comm : NULL;
}

/* hfm_quick_begins publishes a call that waits for up to one thing, for which the counter in the page is odd, until
 * hfm_quick_ends. */
HFM_INLINE void hfm_quick_begins(enum hfm_call call, unsigned flags, const struct hfm_comm *c, uint32_t waits) {
	struct hfm_call_state *s = &hfm_page->state;
	hfm_within = HFM_HERE;
	s->call = call;
	s->call_flags = flags;
	s->waits_n = waits;
	s->call_comm = c != NULL ? c->slot : -1;
	__atomic_store_n(&s->seq, s->seq + 1, __ATOMIC_RELEASE);
}

HFM_INLINE void hfm_quick_ends(void) {
	struct hfm_call_state *s = &hfm_page->state;
	__atomic_store_n(&s->seq, s->seq + 1, __ATOMIC_RELEASE);
	hfm_within = NULL;
}

/* Between the two a call of MPI may wait for other ranks: the rank drains meanwhile. hfm_pause does both: with harmless
 * a cut may be taken in between, as if the call had not been made, and the rank may stand at a point for long. */
void hfm_out(void);
void hfm_in(void);
void hfm_pause(bool harmless);

HFM_INLINE void hfm_step_out(void) {
	if (!HFM_LIKELY(hfm_state == HFM_ON)) {
		hfm_out();
	}
}

HFM_INLINE void hfm_step_in(void) {
	if (!HFM_LIKELY(hfm_state == HFM_ON)) {
		hfm_in();
	}
}

/* hfm_close keeps threads from beginning calls until hfm_open, unless they have to come as far as those of other ranks;
 * false: it has done so before. hfm_may_enter waits until one may begin a collective. */
bool hfm_close(void);
bool hfm_is_closed(void);
void hfm_stands(bool still); /* the rank's own thread is at a point; false: it goes on */
void hfm_open(void);
void hfm_may_enter(const struct hfm_comm *c);
uint64_t hfm_inside(void);   /* threads in calls that must end before a cut */
bool hfm_drain_begins(void); /* no thread is in a call; false: one stays there */
void hfm_drain_ends(void);

HFM_INLINE uint64_t *hfm_entered(const struct hfm_comm *c) {
	static uint64_t nowhere;
	return c->slot >= 0 ? &hfm_page->comms[c->slot].entered : &nowhere;
}

/* For a call that may block, the page has its kind, the messages that it waits for, and its begin. Ranks and tags are
 * those of the communicator, -1 for any. */
HFM_INLINE void hfm_blocks(struct hfm_here h, enum hfm_call call, const struct hfm_comm *c, unsigned flags) {
	h.state->call = call;
	h.state->call_flags = flags;
	h.state->call_comm = c != NULL ? c->slot : -1;
	h.state->waits_n = 0;
}

HFM_INLINE struct hfm_wait hfm_wait_for(const struct hfm_comm *c, int rank, int tag, unsigned flags) {
	int at = c != NULL && rank >= 0 && rank < c->size ? c->world[rank] : -1;
	return (struct hfm_wait){ at, tag, c != NULL ? c->slot : -1, flags };
}

HFM_INLINE void hfm_add_wait(struct hfm_here h, struct hfm_wait wait) {
	if (h.state->waits_n < h.room) {
		h.waits[h.state->waits_n++] = wait;
	} else {
		h.state->call_flags |= HFM_CALL_MORE;
	}
}

HFM_INLINE void hfm_waits(struct hfm_here h, const struct hfm_comm *c, int rank, int tag, unsigned flags) {
	if (c != NULL) {
		hfm_add_wait(h, hfm_wait_for(c, rank, tag, flags));
	}
}

HFM_INLINE void hfm_wait_begins(struct hfm_here h) {
	__atomic_store_n(&h.state->seq, h.state->seq + 1, __ATOMIC_RELEASE);
}

/* hfm_polled notes a test or probe that has found nothing. */
static inline void hfm_polled(const struct hfm_comm *c, int rank, int tag) {
	struct hfm_page *p = hfm_page;
	if (c != NULL) {
		p->polled = hfm_wait_for(c, rank, tag, 0);
		__atomic_store_n(&p->polls, p->polls + 1, __ATOMIC_RELEASE);
	}
}

#pragma GCC visibility pop

#endif
