/* Commands that move bytes between the program's memory and memory objects. */
#include "hfcl.h"

static struct rows rows_of(const struct place *p, void *host) {
	return (struct rows){ (char *)host + p->origin[2] * p->slice_pitch + p->origin[1] * p->row_pitch + p->origin[0],
		p->region[0], p->region[1], p->region[2], p->row_pitch, p->slice_pitch };
}

/* begin begins the request of a transfer. */
static cl_int begin(struct transfer *t, struct command *m, uint32_t flags) {
	bool delivered = (flags & HFCL_DELIVER) != 0 || (!t->write && !t->blocking && flags == 0);
	cl_int rc = hfcl_command(m, t->write ? HFCL_WRITE : HFCL_READ, t->type, t->q, t->n, t->waits, t->event, delivered);
	if (rc == CL_SUCCESS) {
		m->rings = flags != 0;
		hfcl_put32(&m->call, flags | (t->blocking && (flags & HFCL_DELIVER) == 0 ? HFCL_BLOCKING : 0));
		hfcl_put_place(&m->call, t->m, &t->place);
	}
	return rc;
}

static bool packed(const struct rows *r) {
	return (r->row_pitch == r->row || r->rows == 1) && (r->slice_pitch == r->row * r->rows || r->slices == 1);
}

/* COPIED is how much a write that blocks copies to slots, also out of an area: it then need not wait for the device,
   which takes longer. */
enum { COPIED = 128 << 10 };

/* direct sends a transfer whose host's bytes lie in an area; false: they do not, or other ways are faster. */
static bool direct(struct transfer *t, cl_int *rc) {
	uint64_t area, offset;
	size_t size = hfcl_rows_size(&t->host);
	if (!hfcl_in_area(t->host.at, hfcl_end_of(&t->host), &area, &offset) ||
		(t->write && t->blocking && size <= COPIED && t->n == 0 && t->place.form == HFCL_LINEAR)) {
		return false;
	}
	bool rows = !packed(&t->host);
	if (rows && t->place.form == HFCL_PIXELS) { /* goes the other way when reads into the area are over */
		struct call c;
		hfcl_begin(&c, HFCL_AREA_WAIT);
		hfcl_put64(&c, area);
		hfcl_ask(&c);
		hfcl_end(&c);
		return false;
	}
	struct command m;
	*rc = begin(t, &m, HFCL_IN_AREA);
	if (*rc == CL_SUCCESS) {
		hfcl_put64(&m.call, area);
		hfcl_put64(&m.call, offset);
		hfcl_put64(&m.call, rows ? t->host.row_pitch : 0);
		hfcl_put64(&m.call, rows ? t->host.slice_pitch : 0);
		*rc = t->blocking ? hfcl_issue(&m, NULL, NULL) : hfcl_submit(&m);
	}
	return true;
}

static size_t piece_size(size_t whole, size_t piece) {
	size_t left = whole - piece * HFCL_SLOT_BYTES;
	return left < HFCL_SLOT_BYTES ? left : HFCL_SLOT_BYTES;
}

static void fill_slot(const struct slots *s, const struct transfer *t, size_t piece) {
	memcpy(hfcl_slot(s, piece), t->host.at + piece * HFCL_SLOT_BYTES, piece_size(t->host.row, piece));
	hfcl_set_slot(s, piece, HFCL_FULL);
}

/* follow fills or empties the slots of a transfer that the server carries out, from a piece on. */
static void follow(const struct slots *s, const struct transfer *t, size_t piece, size_t pieces) {
	for (; piece < pieces; piece++) {
		if (!hfcl_await_slot(s, piece, t->write ? HFCL_EMPTY : HFCL_FULL)) {
			return; /* the answer says why */
		}
		if (t->write) {
			fill_slot(s, t, piece);
			continue;
		}
		memcpy(t->host.at + piece * HFCL_SLOT_BYTES, hfcl_slot(s, piece), piece_size(t->host.row, piece));
		hfcl_set_slot(s, piece, HFCL_EMPTY);
	}
}

/* through_slots moves a range by way of slots; false: it has to go another way. A write that has all its bytes in slots
   waits for nothing. */
static bool through_slots(struct transfer *t, cl_int *rc) {
	size_t pieces = (t->host.row + HFCL_SLOT_BYTES - 1) / HFCL_SLOT_BYTES;
	bool one_go = t->write && (!t->blocking || (pieces <= HFCL_SLOTS / 4 && t->n == 0));
	if (t->place.form != HFCL_LINEAR || (!t->blocking && (!t->write || pieces > HFCL_SLOTS)) ||
		hfcl_ring_device_lost()) {
		return false;
	}
	struct slots s;
	unsigned most = pieces > HFCL_SLOTS / 4 && !one_go ? HFCL_SLOTS / 4 : (unsigned)pieces;
	if (hfcl_take_slots(t->q->device->o.id, most, one_go ? most : 1, &s) == 0) {
		return false;
	}
	struct command m;
	bool blocking = t->blocking;
	t->blocking = !one_go;
	*rc = begin(t, &m, HFCL_IN_SLOTS);
	t->blocking = blocking;
	int slot = -1;
	if (*rc == CL_SUCCESS && !one_go && (slot = hfcl_ring_ask()) < 0) {
		hfcl_give_slots(&s, true);
		hfcl_end(&m.call);
		*rc = hfcl_answered(&m, CL_OUT_OF_RESOURCES);
		return false;
	}
	if (*rc != CL_SUCCESS) {
		hfcl_give_slots(&s, true);
		return true;
	}
	hfcl_put64(&m.call, s.area->number);
	hfcl_put32(&m.call, s.n);
	for (unsigned i = 0; i < s.n; i++) {
		hfcl_put64(&m.call, (uint64_t)s.list[i]);
	}
	size_t filled = 0;
	for (; t->write && filled < s.n && filled < pieces; filled++) {
		fill_slot(&s, t, filled);
	}
	if (one_go) {
		*rc = hfcl_answered(&m, hfcl_post(&m.call));
		hfcl_give_slots(&s, false); /* each is free when the server has emptied it */
		return true;
	}
	*rc = hfcl_ask_in(&m.call, slot);
	if (*rc == CL_SUCCESS) {
		follow(&s, t, filled, pieces);
		*rc = hfcl_answer_in(slot);
	}
	hfcl_end(&m.call);
	*rc = hfcl_answered(&m, *rc);
	hfcl_give_slots(&s, true);
	return true;
}

/* show lets the object of a mapping live until its bytes have come. */
static void show(const struct transfer *t, cl_event e) {
	if (t->type == CL_COMMAND_MAP_BUFFER || t->type == CL_COMMAND_MAP_IMAGE) {
		hfcl_retain(t->m);
		e->shown = t->m;
	}
}

/* unexpect gives up a read that was expected, false: the receiver has it. */
static bool unexpect(cl_event e) {
	if (!hfcl_unexpect(e)) {
		return false;
	}
	cl_mem shown = e->shown;
	e->shown = NULL;
	clReleaseEvent(e);
	if (shown != NULL) {
		clReleaseMemObject(shown);
	}
	return true;
}

/* leave sends a transfer by way of bounce memory that does not block; the receiver hears when it is complete. */
static cl_int leave(const struct transfer *t, struct command *m, struct bounce *b) {
	cl_event e = m->made;
	e->into = t->write ? (struct rows){ b->at, 0, 1, 1, 0, 0 } : t->host; /* a write has no bytes to take */
	e->bounce = b;
	show(t, e);
	hfcl_retain(e);
	hfcl_expect(e);
	cl_int rc = hfcl_submit(m);
	if (rc != CL_SUCCESS && unexpect(e)) {
		hfcl_give_bounce(b);
	}
	clReleaseEvent(e);
	return rc;
}

/* by_bounce moves bytes by way of bounce memory; false: they have to go another way. As by slots, a write of few bytes
   waits for nothing. */
static bool by_bounce(struct transfer *t, cl_int *rc) {
	size_t size = hfcl_rows_size(&t->host);
	bool waits = t->blocking && !(t->write && size <= HFCL_SLOTS / 4 * HFCL_SLOT_BYTES && t->n == 0);
	bool for_slots = t->place.form == HFCL_LINEAR && (t->write ? size <= HFCL_SLOTS * HFCL_SLOT_BYTES : t->blocking);
	if (for_slots || hfcl_ring_device_lost()) { /* those were just not free: a write that waits for that is faster */
		return false;
	}
	struct bounce *b = hfcl_take_bounce(t->q->device->o.id, size, false);
	if (b == NULL) {
		return false;
	}
	if (t->write) {
		hfcl_copy_rows(&t->host, b->at, true);
	}
	struct command m;
	*rc = begin(t, &m, HFCL_IN_AREA | (waits ? 0 : HFCL_DELIVER | (t->event == NULL ? HFCL_NO_EVENT : 0)));
	if (*rc != CL_SUCCESS) {
		hfcl_give_bounce(b);
		return true;
	}
	hfcl_put64(&m.call, b->area->number);
	hfcl_put64(&m.call, (uint64_t)(b->at - b->area->at));
	hfcl_put64(&m.call, 0); /* packed */
	hfcl_put64(&m.call, 0);
	if (!waits) {
		*rc = leave(t, &m, b);
		return true;
	}
	*rc = hfcl_issue(&m, NULL, NULL);
	if (*rc == CL_SUCCESS && !t->write) {
		hfcl_copy_rows(&t->host, b->at, false);
	}
	hfcl_give_bounce(b);
	return true;
}

/* A write from memory that a read fills later. */
struct late {
	struct rows from;
	struct bounce *to;
	cl_event filled, done; /* the library's own; the write's */
	cl_mem m;              /* the memory may be its */
};

static void end_late(void *data) {
	struct late *l = data;
	clReleaseEvent(l->filled);
	clReleaseEvent(l->done);
	clReleaseMemObject(l->m);
	free(l);
}

/* fill_later takes the bytes when the read has brought them, and keeps their memory until the write is over. When a
   device is lost the program may have given its memory back. */
static void *fill_later(void *data) {
	struct late *l = data;
	hfcl_wait_for_reads(&l->from);
	bool lost = hfcl_lost() || hfcl_ring_device_lost();
	if (!lost) {
		hfcl_copy_rows(&l->from, l->to->at, true);
	}
	clSetUserEventStatus(l->filled, lost ? CL_DEVICE_NOT_AVAILABLE : CL_COMPLETE);
	clWaitForEvents(1, &l->done);
	hfcl_give_bounce(l->to);
	hfcl_call_later(end_late, l);
	return NULL;
}

/* send_late sends the write, which waits for its events and its bytes. */
static cl_int send_late(const struct transfer *t, struct late *l) {
	cl_event list[t->n + 1];
	for (cl_uint i = 0; i < t->n; i++) {
		list[i] = t->waits[i];
	}
	list[t->n] = l->filled;
	struct transfer gated = *t;
	gated.waits = list;
	gated.n = t->n + 1;
	gated.event = &l->done;
	struct command m;
	cl_int rc = begin(&gated, &m, HFCL_IN_AREA | (t->event == NULL ? HFCL_NO_EVENT : 0));
	if (rc != CL_SUCCESS) {
		return rc;
	}
	hfcl_put64(&m.call, l->to->area->number);
	hfcl_put64(&m.call, (uint64_t)(l->to->at - l->to->area->at));
	hfcl_put64(&m.call, 0); /* packed */
	hfcl_put64(&m.call, 0);
	return hfcl_submit(&m);
}

enum { MOST_LATE = 4096 }; /* events that such a write waits for: the list is on the stack */

/* later gives a write that does not block to the server before its bytes are there: the read may wait for a user event
   that this thread sets afterwards. False: it has to wait for the read. */
static bool later(struct transfer *t, cl_int *rc) {
	struct late *l = t->n > MOST_LATE ? NULL : calloc(1, sizeof *l);
	if (l == NULL || (l->to = hfcl_take_bounce(t->q->device->o.id, hfcl_rows_size(&t->host), true)) == NULL) {
		free(l);
		return false;
	}
	l->from = t->host;
	l->m = t->m;
	l->filled = clCreateUserEvent(t->q->context, rc);
	if (*rc == CL_SUCCESS && (*rc = send_late(t, l)) != CL_SUCCESS) {
		clReleaseEvent(l->filled);
	}
	if (*rc != CL_SUCCESS) {
		hfcl_give_bounce(l->to);
		free(l);
		return true;
	}
	hfcl_retain(t->m);
	if (t->event != NULL) {
		hfcl_retain(l->done);
		*t->event = l->done;
	}
	if (!hfcl_thread(fill_later, l)) {
		fill_later(l);
	}
	return true;
}

cl_int hfcl_transfer(struct transfer *t) {
	struct command m;
	cl_int rc = hfcl_check_waits(t->q->context, t->n, t->waits);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	if (t->write && !t->blocking && !hfcl_ring_device_lost() && hfcl_reads_pending(&t->host) && later(t, &rc)) {
		return rc;
	}
	hfcl_wait_for_reads(&t->host);
	if (direct(t, &rc) || through_slots(t, &rc) || by_bounce(t, &rc)) {
		return rc;
	}
	rc = begin(t, &m, 0);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	if (t->write) {
		return hfcl_issue(&m, &t->host, NULL);
	}
	if (t->blocking) {
		return hfcl_issue(&m, NULL, &t->host);
	}
	m.made->into = t->host;
	hfcl_retain(m.made);
	cl_event e = m.made;
	show(t, e);
	hfcl_expect(e);
	rc = hfcl_issue(&m, NULL, NULL);
	if (rc != CL_SUCCESS) {
		unexpect(e);
	}
	clReleaseEvent(e);
	return rc;
}

cl_int hfcl_transfer_pixels(cl_command_queue q, cl_mem m, cl_command_type type, bool write, bool blocking,
	const size_t *origin, const size_t *region, const struct rows *host, cl_uint n, const cl_event *waits,
	cl_event *event) {
	struct transfer t = { q, m, type, write, blocking, { .form = HFCL_PIXELS }, *host, n, waits, event };
	memcpy(t.place.origin, origin, sizeof t.place.origin);
	memcpy(t.place.region, region, sizeof t.place.region);
	return hfcl_transfer(&t);
}

cl_int hfcl_transfer_range(cl_command_queue q, cl_mem m, cl_command_type type, bool write, bool blocking, size_t offset,
	size_t size, void *host, cl_uint n, const cl_event *waits, cl_event *event) {
	struct transfer t = { q, m, type, write, blocking, hfcl_place_linear(offset, size), hfcl_linear(host, size), n,
		waits, event };
	return hfcl_transfer(&t);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, size_t offset,
	size_t size, void *to, cl_uint n, const cl_event *waits, cl_event *event) {
	cl_int rc = hfcl_check_buffer(q, m);
	if (rc == CL_SUCCESS && (to == NULL || hfcl_check_range(m, offset, size) != CL_SUCCESS)) {
		rc = CL_INVALID_VALUE;
	}
	if (rc == CL_SUCCESS) {
		rc = hfcl_check_host(m, CL_MEM_HOST_WRITE_ONLY);
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	return hfcl_transfer_range(
		q, m, CL_COMMAND_READ_BUFFER, false, blocking != CL_FALSE, offset, size, to, n, waits, event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueWriteBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, size_t offset,
	size_t size, const void *from, cl_uint n, const cl_event *waits, cl_event *event) {
	cl_int rc = hfcl_check_buffer(q, m);
	if (rc == CL_SUCCESS && (from == NULL || hfcl_check_range(m, offset, size) != CL_SUCCESS)) {
		rc = CL_INVALID_VALUE;
	}
	if (rc == CL_SUCCESS) {
		rc = hfcl_check_host(m, CL_MEM_HOST_READ_ONLY);
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	return hfcl_transfer_range(q, m, CL_COMMAND_WRITE_BUFFER, true, blocking != CL_FALSE, offset, size,
		(void *)(uintptr_t)from, n, waits, event);
}

static cl_int transfer_box(struct transfer *t, const size_t *origin, const size_t *host_origin, const size_t *region,
	const size_t pitches[4], void *host) {
	cl_int rc = hfcl_check_buffer(t->q, t->m);
	if (rc == CL_SUCCESS && (host == NULL || origin == NULL || host_origin == NULL || region == NULL)) {
		rc = CL_INVALID_VALUE;
	}
	struct place there;
	if (rc == CL_SUCCESS) {
		rc = hfcl_place_box(&t->place, origin, region, pitches[0], pitches[1], t->m->size);
	}
	if (rc == CL_SUCCESS) {
		rc = hfcl_place_box(&there, host_origin, region, pitches[2], pitches[3], SIZE_MAX / 2);
	}
	if (rc == CL_SUCCESS) {
		rc = hfcl_check_host(t->m, t->write ? CL_MEM_HOST_READ_ONLY : CL_MEM_HOST_WRITE_ONLY);
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	t->host = rows_of(&there, host);
	return hfcl_transfer(t);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueReadBufferRect(cl_command_queue q, cl_mem m, cl_bool blocking,
	const size_t *origin, const size_t *host_origin, const size_t *region, size_t row_pitch, size_t slice_pitch,
	size_t host_row_pitch, size_t host_slice_pitch, void *to, cl_uint n, const cl_event *waits, cl_event *event) {
	struct transfer t = { q, m, CL_COMMAND_READ_BUFFER_RECT, false, blocking != CL_FALSE, { 0 }, { 0 }, n, waits,
		event };
	const size_t pitches[4] = { row_pitch, slice_pitch, host_row_pitch, host_slice_pitch };
	return transfer_box(&t, origin, host_origin, region, pitches, to);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueWriteBufferRect(cl_command_queue q, cl_mem m, cl_bool blocking,
	const size_t *origin, const size_t *host_origin, const size_t *region, size_t row_pitch, size_t slice_pitch,
	size_t host_row_pitch, size_t host_slice_pitch, const void *from, cl_uint n, const cl_event *waits,
	cl_event *event) {
	struct transfer t = { q, m, CL_COMMAND_WRITE_BUFFER_RECT, true, blocking != CL_FALSE, { 0 }, { 0 }, n, waits,
		event };
	const size_t pitches[4] = { row_pitch, slice_pitch, host_row_pitch, host_slice_pitch };
	return transfer_box(&t, origin, host_origin, region, pitches, (void *)(uintptr_t)from);
}
