/* The connection to the server: requests and replies, and memory that it maps too. It knows nothing of the API's
   objects. */
#ifndef HFCL_WIRE_H
#define HFCL_WIRE_H

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <CL/cl.h>
#pragma GCC diagnostic pop

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "the wire and kernel arguments have 8-byte addresses");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

/* A thread is never cancelled in a call of this library, which may hold locks that others wait for: each place that
   might let it end begins with the first of these, and ends with the second. */
static inline int hfcl_no_cancel(void) {
	int before;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}
static inline void hfcl_cancel_again(int before) { pthread_setcancelstate(before, &(int){ 0 }); }

/* Bytes of the program as the API addresses them: slices of rows. */
struct rows {
	char *at;
	size_t row, rows, slices, row_pitch, slice_pitch;
};

/* rows.c */
struct rows hfcl_linear(void *at, size_t n);
size_t hfcl_rows_size(const struct rows *);
const char *hfcl_end_of(const struct rows *);
void hfcl_copy_rows(const struct rows *, char *packed, bool out); /* out: of the rows, else into them */
bool hfcl_send(int fd, const void *head, size_t n, const void *body, size_t m, const struct rows *);
bool hfcl_receive(int fd, void *to, size_t n);
bool hfcl_receive_rows(int fd, const struct rows *);

/* later.c */
bool hfcl_thread(void *(*run)(void *), void *data); /* one that takes no signals */
bool hfcl_run_later(void);                          /* starts the thread of hfcl_call_later */
void hfcl_call_later(void (*call)(void *), void *data);

/* channel.c: the sockets to the server */
struct connection {
	struct connection *next;
	int fd;
};
bool hfcl_pair(int ends[2]);
bool hfcl_open_channel(int control); /* with the ring open */
void hfcl_close_channel(void);
bool hfcl_lost(void);
void hfcl_lose(void); /* the server is gone */
bool hfcl_pass_area(int fd);
unsigned hfcl_max_areas(void);
bool hfcl_pass(int control, char what, int fd); /* sends a byte with a descriptor, -1: without */
struct connection *hfcl_take_connection(void);
void hfcl_give_connection(struct connection *, bool broken);
bool hfcl_few_connections(
	void); /* a call that may last takes none of the last ones: the call that ends it may need one */

/* ring.c: requests without an answer, or with a status alone, in memory that the server maps */
bool hfcl_ring_open(int control);
bool hfcl_ring_put(const uint8_t *message, size_t n); /* false: the server is gone */
uint64_t hfcl_ring_position(void); /* earlier operations are carried out before those that wait for it */
bool hfcl_ring_device_lost(void);
void hfcl_ring_unask(int slot);
int hfcl_ring_ask(void);                                 /* a reply slot, -1: none is free */
cl_int hfcl_ring_answer(int slot, uint64_t *deliveries); /* waits; the slot is free then */
void hfcl_ring_end(void);
_Atomic uint32_t *hfcl_ring_word(size_t at);
void hfcl_ring_wake(_Atomic uint32_t *);
void hfcl_ring_sleep(_Atomic uint32_t *, uint32_t value); /* while it has this value, a second at most */
bool hfcl_ring_awake(_Atomic uint32_t *, uint32_t value); /* a moment; true: it has another value */

/* area.c: memory that the server maps too */
struct area {
	struct area *next;
	uint64_t number;
	char *at;
	size_t size;
};
struct area *hfcl_area(size_t size);                  /* NULL where that cannot be */
void hfcl_area_share(struct area *, uint64_t device); /* the device moves bytes there without a copy from now on */
void hfcl_area_end(struct area *);                    /* unmaps it; commands that use it go on */
bool hfcl_in_area(const char *from, const char *to, uint64_t *number, uint64_t *offset);
struct slots { /* of one transfer, which uses them in turn */
	struct area *area;
	unsigned n;
	int list[HFCL_SLOTS];
};
unsigned hfcl_take_slots(uint64_t device, unsigned most, unsigned least, struct slots *); /* at least so many, or 0 */
void hfcl_give_slots(const struct slots *, bool reset);          /* reset: the server has done with all */
bool hfcl_take_run(uint64_t device, unsigned n, struct slots *); /* slots side by side, as memory without turns */
char *hfcl_slot(const struct slots *, size_t piece);
void hfcl_set_slot(const struct slots *, size_t piece, uint32_t to);
bool hfcl_await_slot(const struct slots *, size_t piece, uint32_t want); /* false: the command has failed */

/* bounce.c: shared memory for the bytes of one transfer, one behind the other */
struct bounce {
	struct bounce *next;
	struct area *area;
	char *at;
	uint64_t device;    /* that knows the area */
	struct slots slots; /* that it consists of, n is 0 where it is an area of its own */
};
/* hfcl_take_bounce gives NULL where the transfer goes another way; few bytes get an area where it is needed alone. */
struct bounce *hfcl_take_bounce(uint64_t device, size_t size, bool needed);
void hfcl_give_bounce(struct bounce *);

/* message.c: a request, its reply. A reply may say how many deliveries were sent before it, for which its reader waits;
   the receiver counts them. */
void hfcl_delivered(void);
void hfcl_end_deliveries(void);
struct call {
	uint32_t op;
	bool failed; /* no memory, or a reply that says less than is read from it */
	uint8_t *b;
	size_t n, room, at;
	uint8_t fixed[512];
};
void hfcl_begin(struct call *, uint32_t op);
void hfcl_put32(struct call *, uint32_t);
void hfcl_put64(struct call *, uint64_t);
void hfcl_put_bytes(struct call *, const void *, size_t); /* with their length before */
void hfcl_put_box(struct call *, const size_t *origin, const size_t *region);
/* hfcl_run sends the request with the bytes of out, and receives a reply, whose bulk goes to in. It gives the
   status. hfcl_end must follow. */
cl_int hfcl_run(struct call *, const struct rows *out, const struct rows *in);
/* hfcl_ask is hfcl_run for a request whose reply is a status alone; it takes the ring where it can. */
cl_int hfcl_ask(struct call *);
cl_int hfcl_ask_in(struct call *, int slot); /* sends it; where it succeeds hfcl_answer_in must follow */
cl_int hfcl_answer_in(int slot);
/* hfcl_post sends a request whose reply the program need not wait for. It ends the call, and fails
   if the server is gone. */
cl_int hfcl_post(struct call *);
uint32_t hfcl_get32(struct call *);
uint64_t hfcl_get64(struct call *);
const char *hfcl_get_bytes(struct call *, size_t *n);
char *hfcl_get_text(struct call *); /* a copy that the caller frees, NULL without memory */
void hfcl_end(struct call *);
cl_int hfcl_release(uint64_t id); /* when the commands that use it are complete */

#endif
