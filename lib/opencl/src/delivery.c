/* Messages that the server sends by itself: bytes of reads that do not block, and news of events. One thread receives,
 * and
   never waits for anything else. */
#include "hfcl.h"

static void release_event(void *e) { clReleaseEvent(e); }

static void release_mem(void *m) { clReleaseMemObject(m); }

/* let_go gives the receiver's reference back. If it is the last one, a context may go with it, which calls the
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
	cl_event e = hfcl_expected(number);
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
	hfcl_unexpect(e);
	hfcl_delivered();
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
		hfcl_report_loss();
		return true;
	}
	if (op != HFCL_NOTE || bulk != 0) {
		return false;
	}
	hfcl_noted(watch, event, status);
	return true;
}

void *hfcl_receive_all(void *arg) {
	int fd = *(int *)arg;
	while (take_one(fd)) {
	}
	/* nothing comes any more: whoever waits gets an error, from its own connection or here */
	hfcl_lose();
	hfcl_ring_end();
	hfcl_end_deliveries();
	cl_event left = hfcl_expect_no_more();
	while (left != NULL) {
		cl_event next = left->next_pending;
		take_bytes(left, CL_DEVICE_NOT_AVAILABLE);
		hfcl_finish_event(left, CL_DEVICE_NOT_AVAILABLE);
		let_go(left);
		left = next;
	}
	hfcl_noted(0, 0, CL_DEVICE_NOT_AVAILABLE);
	hfcl_report_loss();
	return NULL;
}
