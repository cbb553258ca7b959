/* messages.h - libholdfast-mpi's account of a rank's messages for libholdfast and the node daemon.
 * docs/internals/MESSAGES.md. The package internal/node/messages has the same for Go; a test compares the two. */
#ifndef HF_MESSAGES_H
#define HF_MESSAGES_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HFM_PAGE_MAGIC 0x504d4648u
#define HFM_PAGE_VERSION 3
#define HFM_RECORD_MAGIC 0x524d4648u
#define HFM_RECORD_VERSION 2
#define HFM_MOST_WAITS 1024
#define HFM_MOST_THREADS 64
#define HFM_THREAD_WAITS 64
#define HFM_MOST_CALLS 640
#define HFM_MOST_COMMS 1024
#define HFM_CALL_BYTES 32
#define HFM_COMM_BYTES 104
#define HFM_WAITS_AT 192
#define HFM_CALLS_AT 16576
#define HFM_COMMS_AT 37056
#define HFM_THREADS_AT 168128
#define HFM_THREAD_BYTES 1056
#define HFM_TARGETS_AT 234656
#define HFM_COUNTS_AT 242848
#define HFM_SLOT_BYTES 128
#define HFM_WAIT_BYTES 16
#define HFM_MOST_MET 64
#define HFM_MET_BYTES 256

/* Flags of a rank's wait and of a call, and states of a communicator. */
#define HFM_WAIT_SEND 1u
#define HFM_WAIT_TAKEN 2u /* it ends when the program has received it, and not when the drain has */
#define HFM_CALL_ALL 1u
#define HFM_CALL_COLLECTIVE 2u
#define HFM_CALL_MORE 4u
#define HFM_SLOT_LIVE 1u
#define HFM_SLOT_FREED 2u
#define HFM_FULL_LARGE 2u

/* Behind the members of a slot that lists fewer than it has. */
#define HFM_NO_MEMBER 0xffffffffu

/* Flags of a receive in a record: its message had come; it was pending at the checkpoint before. */
#define HFM_RECEIVE_CAME 1u
#define HFM_RECEIVE_BEFORE 2u

/* Flags of a protected request in a record: it was under way. */
#define HFM_REQUEST_STARTED 1u

/* One thing that a call waits for. */
struct hfm_wait {
	int32_t source; /* world rank; -1: any of the communicator's; of a send the destination */
	int32_t tag;    /* -1: any */
	int32_t comm;   /* its number; -1: none */
	uint32_t flags;
};

/* A communicator. Its members are world ranks. */
struct hfm_slot {
	uint64_t entered; /* collectives that the rank has entered */
	uint32_t state, leader, size;
	uint32_t order; /* of creation */
	char name[HFM_COMM_BYTES];
};

/* A thread's activity in MPI. */
struct hfm_call_state {
	uint64_t seq;                       /* odd: in a call that may block, described by the fields below */
	uint32_t call, call_flags, waits_n; /* the call's number in calls */
	int32_t call_comm;
};

/* A thread beside the one that has called MPI_Init, with MPI_THREAD_MULTIPLE. */
struct hfm_thread {
	struct hfm_call_state state;
	uint64_t used; /* 1: a thread that has called MPI has it */
	struct hfm_wait waits[HFM_THREAD_WAITS];
};

/* The page of a rank. The program writes it, but for limit and targets. Numbers are little-endian. */
struct hfm_page {
	uint32_t magic, version, size, rank;
	uint64_t turns;              /* that the rank has received all messages that had come */
	uint64_t mails, mail_bytes;  /* in its mailbox, after that */
	uint64_t pending;            /* receives, and unfinished operations */
	uint64_t limit;              /* bytes of the mailbox; 0: none */
	uint64_t full;               /* a message was left in the network: 1 for the limit, or HFM_FULL_LARGE */
	uint64_t polls;              /* that have found nothing */
	struct hfm_wait polled;      /* the message of the last of them */
	struct hfm_call_state state; /* of the thread that has called MPI_Init */
	uint64_t changes;            /* of the communicators; odd: one is under way */
	uint32_t comms_n;
	uint32_t concurrent; /* 1: several threads may call MPI, 2: more have than threads has room for */
	uint64_t unposted;   /* receives that the checkpoint had pending and the program has not posted again */
	uint64_t unfinished; /* operations that come to their end by themselves, and have not */
	uint64_t windows;    /* of one-sided communication */
	uint64_t to_sync;    /* files and windows that sync has something to do for */
	uint64_t busy;       /* operations on files whose requests the program has still, complete or not */
	uint64_t inside;     /* threads in calls that must end before a cut, after the last turn */
	uint64_t spare[2];
	struct hfm_wait waits[HFM_MOST_WAITS];
	char calls[HFM_MOST_CALLS][HFM_CALL_BYTES];
	struct hfm_slot comms[HFM_MOST_COMMS];
	struct hfm_thread threads[HFM_MOST_THREADS - 1];
	uint64_t targets[HFM_MOST_COMMS]; /* at a cut, collectives that threads may enter by communicator */
	uint64_t counts[]; /* sent to each world rank, then received from each; then members of each communicator, u32 */
};

static_assert(sizeof(struct hfm_wait) == HFM_WAIT_BYTES, "wait");
static_assert(sizeof(struct hfm_slot) == HFM_SLOT_BYTES, "communicator");
static_assert(offsetof(struct hfm_page, waits) == HFM_WAITS_AT, "waits");
static_assert(offsetof(struct hfm_page, calls) == HFM_CALLS_AT, "calls");
static_assert(offsetof(struct hfm_page, comms) == HFM_COMMS_AT, "communicators");
static_assert(sizeof(struct hfm_thread) == HFM_THREAD_BYTES, "thread");
static_assert(offsetof(struct hfm_page, threads) == HFM_THREADS_AT, "threads");
static_assert(offsetof(struct hfm_page, targets) == HFM_TARGETS_AT, "targets");
static_assert(offsetof(struct hfm_page, counts) == HFM_COUNTS_AT, "counts");
static_assert(offsetof(struct hfm_page, polled) == 72 && offsetof(struct hfm_page, state) == 88, "calls");
static_assert(offsetof(struct hfm_page, changes) == 112, "changes");

/* Bytes of the page of a rank in a world of that size. */
static inline size_t hfm_page_bytes(size_t size) {
	return sizeof(struct hfm_page) + 2 * size * sizeof(uint64_t) + HFM_MOST_COMMS * size * sizeof(uint32_t);
}

/* The layer's questions to libholdfast: in which protected array bytes lie, and how far from its beginning `base` is;
 * and the other way round. NULL: in none. */
struct hf_memory {
	const char *(*array_of)(const void *at, size_t bytes, const void *base, int64_t *offset);
	void *(*base_in)(const char *array, int64_t offset, int64_t from, size_t bytes);
};

/* The reasons for which a checkpoint would be refused. */
struct hfm_met {
	uint64_t count; /* 0: the rest is of no meaning */
	char text[HFM_MET_BYTES - sizeof(uint64_t)];
};

/* Behind the page of a rank that holdfast run --watch looks at. The first half are calls that no checkpoint can keep,
 * and how often the program has made them; the second half is the last answer. */
struct hfm_watching {
	uint64_t asked;    /* questions about pending operations; the daemon writes it */
	uint64_t answered; /* of those */
	uint64_t receives; /* pending at the last answer */
	uint64_t ended;    /* 1: MPI_Finalize has been called, 2: libholdfast has got a page of its own */
	struct hfm_met met[HFM_MOST_MET];
};

static_assert(sizeof(struct hfm_met) == HFM_MET_BYTES && offsetof(struct hfm_watching, met) == 32, "watching");

/* The functions of the layer for libholdfast; its hf_message_layer returns them. The rank's own thread calls, between
 * calls of MPI. A text that is returned describes the failure; NULL: success. */
struct hf_message_layer {
	uint32_t version; /* HFM_PAGE_VERSION */
	/* Messages and collectives that it has seen since MPI_Init; UINT64_MAX: it has not seen MPI_Init. */
	uint64_t (*seen)(void);
	/* MPI is initialized, and not through the layer. */
	bool (*passed_by)(void);
	/* Of MPI_COMM_WORLD. */
	void (*place)(int *rank, int *size);
	/* From now on counts and state live in this memory, which has zeros and stays. */
	const char *(*share)(void *page, size_t bytes);
	/* Receives the messages that have come. */
	void (*turn)(void);
	/* All ranks have stopped: communicators that were freed are forgotten. A rank with several threads gets two calls:
	 * from the first one on they begin no call of MPI, but to come as far as targets, and at the second they have
	 * stopped. */
	const char *(*cut)(void);
	/* Nothing is in flight any more, on any rank: files are synchronized, and windows under MPI_Win_lock_all
	 * flushed. If no rank has busy operations MPI does the files, which is collective. */
	const char *(*sync)(uint32_t busy);
	/* The mailbox, and the pending operations, as a record that the layer keeps until the next call. */
	const char *(*save)(const void **record, size_t *bytes);
	/* Takes messages of a record for the communicators that there are, and for those to come. */
	const char *(*load)(const void *record, size_t bytes);
	/* The rank goes on. */
	void (*resume)(void);
	/* The request in a variable is protected under a name, or not any more; a NULL name is all. */
	const char *(*protect)(const char *name, void *variable, int fortran, const struct hf_memory *memory);
	bool (*unprotect)(const char *name);
	/* Memory is as it was at the checkpoint: makes requests of the record again, now and as they get names. */
	const char *(*post)(void);
};

#endif
