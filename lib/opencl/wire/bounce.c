/* Bounce memory: shared with the server, it takes the bytes of a transfer whose own memory is the program's alone: of
   one that does not block, or whose rows are not packed. Small ones use slots that lie side by side, others areas that
   are kept for the next transfer to or from the device. */
#include "wire.h"

enum { RUN = HFCL_SLOTS / 4 };                /* slots of one transfer */
static const size_t smallest = 2 << 20;       /* area */
static const size_t most_idle = 128 << 20;    /* bytes of areas that no transfer uses */
static const size_t most = (size_t)512 << 20; /* bytes of all of them */

static struct {
	pthread_mutex_t lock;
	struct bounce *idle; /* the one given back last first */
	size_t idle_bytes, bytes;
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* take_idle gives an idle area of the device that has room, but not far too much. */
static struct bounce *take_idle(uint64_t device, size_t size) {
	pthread_mutex_lock(&pool.lock);
	struct bounce **at = &pool.idle;
	while (*at != NULL && ((*at)->device != device || (*at)->area->size < size || (*at)->area->size / 8 > size)) {
		at = &(*at)->next;
	}
	struct bounce *b = *at;
	if (b != NULL) {
		*at = b->next;
		pool.idle_bytes -= b->area->size;
	}
	pthread_mutex_unlock(&pool.lock);
	return b;
}

/* reserve counts the bytes of a new area; false: there are too many. */
static bool reserve(size_t size) {
	pthread_mutex_lock(&pool.lock);
	bool ok = size <= most - pool.bytes;
	if (ok) {
		pool.bytes += size;
	}
	pthread_mutex_unlock(&pool.lock);
	return ok;
}

static void unreserve(size_t size) {
	pthread_mutex_lock(&pool.lock);
	pool.bytes -= size;
	pthread_mutex_unlock(&pool.lock);
}

static struct bounce *new_area(uint64_t device, size_t size) {
	size = (size + smallest - 1) / smallest * smallest;
	if (!reserve(size)) {
		return NULL;
	}
	struct bounce *b = calloc(1, sizeof *b);
	if (b == NULL || (b->area = hfcl_area(size)) == NULL) {
		unreserve(size);
		free(b);
		return NULL;
	}
	b->device = device;
	b->at = b->area->at;
	hfcl_area_share(b->area, device);
	return b;
}

static struct bounce *of_slots(uint64_t device, size_t size) {
	struct slots s;
	if (size > RUN * HFCL_SLOT_BYTES ||
		!hfcl_take_run(device, (unsigned)((size + HFCL_SLOT_BYTES - 1) / HFCL_SLOT_BYTES), &s)) {
		return NULL;
	}
	struct bounce *b = calloc(1, sizeof *b);
	if (b == NULL) {
		hfcl_give_slots(&s, false);
		return NULL;
	}
	b->slots = s;
	b->area = s.area;
	b->at = hfcl_slot(&s, 0);
	return b;
}

struct bounce *hfcl_take_bounce(uint64_t device, size_t size, bool needed) {
	if (size > most || hfcl_lost()) {
		return NULL;
	}
	struct bounce *b = of_slots(device, size);
	if (needed && size <= HFCL_SLOT_BYTES) {
		size = smallest;
	}
	if (b == NULL) {
		b = take_idle(device, size);
	}
	if (b == NULL && size > HFCL_SLOT_BYTES) { /* for less, no area is worth its making */
		b = new_area(device, size);
	}
	return b;
}

static void end(void *data) {
	struct bounce *b = data;
	unreserve(b->area->size);
	hfcl_area_end(b->area);
	free(b);
}

/* hfcl_give_bounce waits for nothing: the receiver calls it. */
void hfcl_give_bounce(struct bounce *b) {
	if (b->slots.n > 0) {
		hfcl_give_slots(&b->slots, false);
		free(b);
		return;
	}
	pthread_mutex_lock(&pool.lock);
	bool keep = pool.idle_bytes + b->area->size <= most_idle;
	if (keep) {
		pool.idle_bytes += b->area->size;
		b->next = pool.idle;
		pool.idle = b;
	}
	pthread_mutex_unlock(&pool.lock);
	if (!keep) {
		hfcl_call_later(end, b);
	}
}
